"""A recording read whole: its format found, each line checked, what is wrong said with file and line.

A replay of half a file would look like a lighter load, so a broken row refuses the file; where rows may be skipped
they are counted, and the first of them are told.  CRLF, a byte-order mark and blank lines are accepted.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from loadtest.traces.azure import AZURE
from loadtest.traces.burstgpt import BURSTGPT
from loadtest.traces.csv_format import cells_of
from loadtest.traces.mooncake import parse_line
from loadtest.traces.rows import TraceError, TraceRow

__all__ = ["TOLD_FAULTS", "Recording", "read_trace", "recording_of"]

TOLD_FAULTS = 3
_CSV_FORMATS = {"azure": AZURE, "burstgpt": BURSTGPT}
_EXPECTED = "; ".join(
    [*(f"{name}: {','.join(csv_format.columns)}" for name, csv_format in _CSV_FORMATS.items()), "mooncake: JSON lines"]
)


@dataclass(frozen=True, slots=True)
class Recording:
    """Rows by time; how many lines were skipped, and what was wrong with the first `TOLD_FAULTS` of them."""

    rows: tuple[TraceRow, ...]
    skipped: int = 0
    faults: tuple[str, ...] = ()


def read_trace(path: Path, trace_format: str = "auto", *, skip_bad: bool = False) -> Recording:
    """The recording in a file.  TraceError names file and line of the first fault, unless it may be skipped."""
    try:
        with path.open("rb") as lines:
            return recording_of(lines, str(path), trace_format, skip_bad=skip_bad)
    except OSError as error:
        raise TraceError(f"{path}: cannot read: {error.strerror}") from None


def recording_of(lines: Iterable[bytes], name: str, trace_format: str = "auto", *, skip_bad: bool = False) -> Recording:
    """The recording in a file's lines; ``name`` stands for the file in errors."""
    numbered = _not_blank(lines)
    number, first = next(numbered, (0, b""))
    if not number:
        raise TraceError(f"{name}: empty file; expected {_EXPECTED}")
    try:
        parse, in_first = _line_parser(_text(first), trace_format)
    except TraceError as error:
        raise TraceError(f"{name}:{number}: {error}") from None
    if in_first:
        numbered = chain([(number, first)], numbered)
    rows: list[TraceRow] = []
    skipped, faults, last_ns = 0, [], 0
    for number, line in numbered:
        try:
            row = _not_before(last_ns, parse(_text(line)))
        except TraceError as error:
            told = f"{name}:{number}: {error}"
            if not skip_bad:
                raise TraceError(told) from None
            skipped += 1
            if skipped <= TOLD_FAULTS:
                faults.append(told)
        else:
            rows.append(row)
            last_ns = row.stamp_ns
    if not rows:
        after = f"; all {skipped} were skipped, the first: {faults[0]}" if faults else " after the header"
        raise TraceError(f"{name}: no rows{after}")
    return Recording(tuple(rows), skipped, tuple(faults))


def _not_before(last_ns: int, row: TraceRow) -> TraceRow:
    if row.stamp_ns < last_ns:
        raise TraceError(f"recorded {(last_ns - row.stamp_ns) / 1e9:g} s earlier than the row before it")
    return row


def _not_blank(lines: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """Numbers from 1 and lines, without their ends."""
    for number, line in enumerate(lines, 1):
        line = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
        if line.strip():
            yield number, line.rstrip(b"\r\n")


def _text(line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise TraceError(f"not UTF-8 text: {error.reason}") from None


def _line_parser(first: str, trace_format: str) -> tuple[Callable[[str], TraceRow], bool]:
    """What parses the lines of that format, or of the one that the first line shows; and whether that is a row."""
    if trace_format == "mooncake" or (trace_format == "auto" and first.lstrip().startswith("{")):
        return parse_line, True
    header = cells_of(first)
    if trace_format == "auto":
        columns, trace_format = max((csv_format.found_in(header), name) for name, csv_format in _CSV_FORMATS.items())
        if not columns:
            raise TraceError(f"{first[:60]!r} begins no recording of a known format; expected {_EXPECTED}")
    return _CSV_FORMATS[trace_format].line_parser(header), False
