"""A recording read whole: its format found, each line checked, what is wrong said with file and line.

A replay of half a file would look like a lighter load, so a broken row refuses the file; where rows may be skipped
they are counted, and the first of them are told.  CRLF, a byte-order mark and blank lines are accepted.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from loadtest.traces.azure import AZURE
from loadtest.traces.burstgpt import BURSTGPT
from loadtest.traces.csv_format import cells_of
from loadtest.traces.mooncake import parse_line
from loadtest.traces.rows import ParsedRow, TraceError, TraceRow

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
    found = _format_of(first, f"{name}:{number}") if trace_format == "auto" else trace_format
    parse: Callable[[str, str], ParsedRow]
    if found == "mooncake":
        parse, numbered = parse_line, _chained(number, first, numbered)
    else:
        where = f"{name}:{number}"
        parse = _CSV_FORMATS[found].line_parser(cells_of(_text(first, where), where), where)
    rows: list[TraceRow] = []
    skipped, faults = 0, []
    for number, line in numbered:
        where = f"{name}:{number}"
        try:
            rows.append(_checked(parse(_text(line, where), where), rows, where))
        except TraceError as error:
            if not skip_bad:
                raise
            skipped += 1
            if skipped <= TOLD_FAULTS:
                faults.append(str(error))
    if not rows:
        after = f"; all {skipped} were skipped, the first: {faults[0]}" if faults else " after the header"
        raise TraceError(f"{name}: no rows{after}")
    return Recording(tuple(rows), skipped, tuple(faults))


def _checked(parsed: ParsedRow, rows: list[TraceRow], where: str) -> TraceRow:
    if rows and parsed.row.stamp_ns < rows[-1].stamp_ns:
        raise TraceError(f"{where}: {parsed.stamp} is earlier than the row before it")
    return parsed.row


def _not_blank(lines: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """Numbers from 1 and lines, without their ends."""
    for number, line in enumerate(lines, 1):
        line = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
        if line.strip():
            yield number, line.rstrip(b"\r\n")


def _chained(number: int, first: bytes, rest: Iterator[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
    yield number, first
    yield from rest


def _text(line: bytes, where: str) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise TraceError(f"{where}: not UTF-8 text: {error.reason}") from None


def _format_of(first: bytes, where: str) -> str:
    text = _text(first, where)
    if text.lstrip().startswith("{"):
        return "mooncake"
    header = cells_of(text, where)
    columns, name = max((csv_format.found_in(header), name) for name, csv_format in _CSV_FORMATS.items())
    if not columns:
        raise TraceError(f"{where}: {text[:60]!r} begins no recording of a known format; expected {_EXPECTED}")
    return name
