"""The copies of the load that a test is made of: which have begun, which were told to stop, when all are over.

Locust counts users, and one user is one copy.  It starts a user anew wherever it misses one, also in place of a copy
that is over; the number of copies is what was asked for, so such a user gets none.
"""

from __future__ import annotations

__all__ = ["Copies"]


class Copies:
    """Copies of one test, numbered from 0 in the order in which they begin."""

    def __init__(self) -> None:
        self._begun = 0
        self._stopped = 0
        self._live: set[int] = set()

    def ask(self, wanted: int) -> int | None:
        """The number of one more copy; None if as many as ``wanted`` have begun, those told to stop not counted."""
        if self._begun - self._stopped >= wanted:
            return None
        number = self._begun
        self._begun += 1
        self._live.add(number)
        return number

    def stop(self, number: int) -> None:
        """A copy that has not ended is told to stop: another one may take its place."""
        self._stopped += number in self._live

    def end(self, number: int) -> None:
        """Nothing of a copy is under way any more."""
        self._live.discard(number)

    @property
    def live(self) -> int:
        """Copies that have begun and not ended."""
        return len(self._live)

    def missing(self, wanted: int) -> int:
        """Copies still to begin."""
        return max(0, wanted - (self._begun - self._stopped))

    def all_over(self, wanted: int) -> bool:
        """Whether ``wanted`` copies have begun and every copy has ended."""
        return not self._live and self._begun > 0 and not self.missing(wanted)
