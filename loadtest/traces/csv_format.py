"""Recordings in CSV: three columns are wanted, in any order; others are left alone.

A row is one line: none of these formats breaks one inside quotes, and so an open quote cannot swallow what follows.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass

from loadtest.traces.rows import ParsedRow, TraceError, TraceRow, tokens_of

__all__ = ["CsvFormat", "cells_of"]


@dataclass(frozen=True, slots=True)
class CsvFormat:
    """Names of the columns stamp, prompt tokens, reply tokens; and from a stamp's text and its place to ns."""

    columns: tuple[str, str, str]
    stamp_ns: Callable[[str, str], int]

    def found_in(self, header: list[str]) -> int:
        """How many of the columns a header has."""
        return len(set(self.columns) & set(header))

    def line_parser(self, header: list[str], where: str) -> Callable[[str, str], ParsedRow]:
        """From a line and its place to a row.  TraceError for columns that ``header`` lacks, later for a bad line."""
        missing = [column for column in self.columns if column not in header]
        if missing:
            raise TraceError(f"{where}: no column {', '.join(missing)}; expected {','.join(self.columns)}")
        places = [header.index(column) for column in self.columns]
        stamp_column, prompt_column, output_column = self.columns

        def parse(line: str, where: str) -> ParsedRow:
            cells = cells_of(line, where)
            if len(cells) <= max(places):
                raise TraceError(f"{where}: {len(cells)} fields, expected {len(header)}")
            stamp, prompt, output = (cells[place] for place in places)
            row = TraceRow(
                self.stamp_ns(stamp, where),
                tokens_of(prompt, prompt_column, where),
                tokens_of(output, output_column, where),
            )
            return ParsedRow(f"{stamp_column} {stamp}", row)

        return parse


def cells_of(line: str, where: str) -> list[str]:
    """The fields of one line, without the blanks around them."""
    try:
        return [cell.strip() for cell in next(csv.reader([line], strict=True), [])]
    except csv.Error as error:
        raise TraceError(f"{where}: not CSV: {error}") from None
