"""Which requests of a schedule a process sends: every one of them belongs to exactly one share, for any number."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["SEQS_PER_COPY", "Share"]

SEQS_PER_COPY = 10_000_000
"""Numbers of requests that a copy has for itself, so that all shares of all copies number alike."""


@dataclass(frozen=True, slots=True)
class Share:
    """Part ``index`` (from 0) of ``of`` parts of one schedule."""

    index: int = 0
    of: int = 1

    def holds(self, seq: int) -> bool:
        """Whether request ``seq`` of the schedule is in this part."""
        return seq % self.of == self.index

    def slots(self, total: int) -> int:
        """This part's share of ``total`` slots; the parts add up to it."""
        return total // self.of + (self.index < total % self.of)
