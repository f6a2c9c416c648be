"""Figures of a bench run: medians with their spread over passes, ratios taken within a pass.  Pure.

A box drifts by tens of percent over an hour, and by much less within one pass.  So a ratio is the median of the passes'
own ratios, never the ratio of two medians.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

__all__ = ["Cells", "Figure", "Spread", "figure_at", "spread_of"]

Cell = Mapping[str, Any]
Figure = Callable[[Cell], float | None]


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, least and greatest of ``count`` values."""

    median: float
    low: float
    high: float
    count: int


def spread_of(values: Iterable[float | None]) -> Spread | None:
    """Of the values that there are; None when there is none."""
    known = [value for value in values if value is not None]
    return Spread(median(known), min(known), max(known), len(known)) if known else None


def figure_at(*path: str) -> Figure:
    """The number at ``path`` in a cell; None where a step of it is missing."""

    def figure(cell: Cell) -> float | None:
        value: Any = cell
        for step in path:
            if not isinstance(value, Mapping) or value.get(step) is None:
                return None
            value = value[step]
        return float(value)

    return figure


@dataclass(frozen=True, slots=True)
class Cells:
    """All cells of a run: each has table, load, name and pass, and its figures or a problem."""

    cells: Sequence[Cell]

    def names(self, table: str, load: str | None = None) -> list[str]:
        """Names in a table, in the order measured."""
        rows = (cell for cell in self.cells if cell["table"] == table and load in (None, cell["load"]))
        return list(dict.fromkeys(cell["name"] for cell in rows))

    def of(self, table: str, load: str, name: str) -> list[Cell]:
        """The cells of one name, measured or not."""
        wanted = (table, load, name)
        return [cell for cell in self.cells if (cell["table"], cell["load"], cell["name"]) == wanted]

    def spread(self, table: str, load: str, name: str, figure: Figure) -> Spread | None:
        """A figure over the passes."""
        return spread_of(figure(cell) for cell in self.of(table, load, name) if not cell.get("problem"))

    def compared(
        self,
        one: tuple[str, str, str],
        other: tuple[str, str, str],
        figure: Figure,
        by: Callable[[float, float], float | None],
        other_figure: Figure | None = None,
    ) -> Spread | None:
        """``by`` of both figures of each pass that has the two; ``one`` and ``other`` are (table, load, name)."""
        ours, theirs = self._by_pass(one, figure), self._by_pass(other, other_figure or figure)
        return spread_of(by(ours[number], theirs[number]) for number in ours if number in theirs)

    def ratio(
        self, one: tuple[str, str, str], other: tuple[str, str, str], figure: Figure, other_figure: Figure | None = None
    ) -> Spread | None:
        """``one`` over ``other``, pass by pass."""
        return self.compared(one, other, figure, lambda a, b: a / b if b else None, other_figure)

    def difference(self, one: tuple[str, str, str], other: tuple[str, str, str], figure: Figure) -> Spread | None:
        """``one`` less ``other``, pass by pass."""
        return self.compared(one, other, figure, lambda a, b: a - b)

    def _by_pass(self, key: tuple[str, str, str], figure: Figure) -> dict[int, float]:
        found = {}
        for cell in self.of(*key):
            value = None if cell.get("problem") else figure(cell)
            if value is not None:
                found[int(cell["pass"])] = value
        return found
