"""A reason not simply to believe a run, and the form that most of them share: a figure above a limit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

__all__ = ["STATES", "Reason", "graded", "percent"]

STATES = ("void", "suspect", "note")
"""By weight.  A note does not change a verdict."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a run is not simply believed; ``state`` is void, suspect or note.

    ``figure`` is what was held against a limit, None where there is none.
    """

    code: str
    state: str
    text: str
    figure: float | None = None

    def to_json(self) -> dict[str, Any]:
        """As result.json holds it."""
        return {"code": self.code, "state": self.state, "text": self.text, "figure": self.figure}


def graded(
    code: str, figure: float | None, suspect: float, void: float, text: Callable[[str], str]
) -> Iterator[Reason]:
    """A reason if ``figure`` is above a limit; ``text`` is given the limit that was passed, as a percentage."""
    if figure is not None and figure > suspect:
        state, limit = ("void", void) if figure > void else ("suspect", suspect)
        yield Reason(code, state, text(percent(limit)), figure)


def percent(share: float) -> str:
    """A share as people read it: 3 %, 0.4 %."""
    return f"{share * 100:.3g} %"
