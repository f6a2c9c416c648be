"""Reader of Azure's LLM inference traces: ``TIMESTAMP,ContextTokens,GeneratedTokens`` (UTC, 100 ns digits).

Every row is checked, and what is wrong is said with its line number: a replay of half a file would look like a
lighter load.  CRLF, a byte-order mark and further columns are accepted.  Scaling and sending are not here.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from sim.core.settings import SettingError

__all__ = ["TraceError", "TraceRow", "read_azure_csv", "rows_of"]

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class TraceError(SettingError):
    """A trace that cannot be replayed; says file, line and reason."""


@dataclass(frozen=True, slots=True)
class TraceRow:
    """One recorded request; ``stamp_ns`` counts from the Unix epoch."""

    stamp_ns: int
    prompt_tokens: int
    output_tokens: int


def read_azure_csv(path: Path) -> list[TraceRow]:
    """All rows of the file.  TraceError names file and line of the first fault."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            return list(rows_of(lines, str(path)))
    except OSError as error:
        raise TraceError(f"{path}: cannot read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise TraceError(f"{path}: not UTF-8 text: {error.reason}") from None


def rows_of(lines: Iterable[str], name: str) -> Iterator[TraceRow]:
    """Rows of a trace given as lines, header first; ``name`` stands for the file in errors."""
    reader = csv.reader(lines)
    header = [column.strip() for column in next(reader, [])]
    if not header:
        raise TraceError(f"{name}: empty file; expected the columns {','.join(COLUMNS)}")
    missing = [column for column in COLUMNS if column not in header]
    if missing:
        raise TraceError(f"{name}:1: no column {', '.join(missing)}; expected {','.join(COLUMNS)}")
    places = [header.index(column) for column in COLUMNS]
    previous_ns: int | None = None
    for cells in reader:
        if not any(cell.strip() for cell in cells):
            continue
        where = f"{name}:{reader.line_num}"
        if len(cells) <= max(places):
            raise TraceError(f"{where}: {len(cells)} fields, expected {len(header)}")
        stamp, prompt, output = (cells[place].strip() for place in places)
        row = TraceRow(_stamp_ns(stamp, where), _tokens(prompt, COLUMNS[1], where), _tokens(output, COLUMNS[2], where))
        if previous_ns is not None and row.stamp_ns < previous_ns:
            raise TraceError(f"{where}: TIMESTAMP {stamp} is earlier than the row before it")
        previous_ns = row.stamp_ns
        yield row
    if previous_ns is None:
        raise TraceError(f"{name}: no rows after the header")


def _tokens(text: str, column: str, where: str) -> int:
    """A token count; the recorded 0 (a refused or cancelled request) becomes 1, the least that can be asked for."""
    try:
        value = int(text)
    except ValueError:
        raise TraceError(f"{where}: {column} {text!r} is not a whole number") from None
    if value < 0:
        raise TraceError(f"{where}: {column} {value} is negative")
    return max(1, value)


def _stamp_ns(text: str, where: str) -> int:
    """Time in ns; `datetime` keeps only 6 of the file's 7 decimals, so the fraction is read apart."""
    whole, dot, rest = text.partition(".")
    digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
    try:
        moment = datetime.fromisoformat(whole + rest[len(digits) :])
    except ValueError:
        moment = None
    if moment is None or (dot and not 1 <= len(digits) <= 9):
        raise TraceError(f"{where}: TIMESTAMP {text!r} is not of the form 2023-11-16 18:15:46.6805900")
    since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000_000 + int(digits.ljust(9, "0") if digits else 0)
