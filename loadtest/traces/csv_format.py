"""Recordings in CSV: three columns are wanted, in any order; others are left alone.

A row is one line: none of these formats breaks one inside quotes, and so an open quote cannot swallow what follows.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass

from loadtest.traces.rows import TraceError, TraceRow, tokens_of

__all__ = ["CsvFormat", "cells_of"]


@dataclass(frozen=True, slots=True)
class CsvFormat:
    """Names of the columns stamp, prompt tokens, reply tokens; and from a stamp's text to ns."""

    columns: tuple[str, str, str]
    stamp_ns: Callable[[str], int]

    def found_in(self, header: list[str]) -> int:
        """How many of the columns a header has."""
        return len(set(self.columns) & set(header))

    def line_parser(self, header: list[str]) -> Callable[[str], TraceRow]:
        """From a line to its row.  TraceError for columns that ``header`` lacks, later for a bad line."""
        missing = [column for column in self.columns if column not in header]
        if missing:
            raise TraceError(f"no column {', '.join(missing)}; expected {','.join(self.columns)}")
        stamp_at, prompt_at, output_at = (header.index(column) for column in self.columns)
        needed = max(stamp_at, prompt_at, output_at)
        _, prompt_column, output_column = self.columns

        def parse(line: str) -> TraceRow:
            cells = cells_of(line)
            if len(cells) <= needed:
                raise TraceError(f"{len(cells)} fields, expected {len(header)}")
            return TraceRow(
                self.stamp_ns(cells[stamp_at]),
                tokens_of(cells[prompt_at], prompt_column),
                tokens_of(cells[output_at], output_column),
            )

        return parse


def cells_of(line: str) -> list[str]:
    """The fields of one line, without the blanks around them."""
    if '"' not in line:
        return [cell.strip() for cell in line.split(",")]
    try:
        return [cell.strip() for cell in next(csv.reader([line], strict=True), [])]
    except csv.Error as error:
        raise TraceError(f"not CSV: {error}") from None
