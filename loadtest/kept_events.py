"""Events of a reply that is to be compared byte for byte, kept without a copy of what was foreseen.

An event that was proven to be the template's bytes around the next number need not be kept: it can be written again.
So a sampled stream costs a read no more than any other one, and holds its events once, not a thousand times.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from loadtest.reply_events import counted

__all__ = ["KeptEvents"]


@dataclass(frozen=True, slots=True)
class _Run:
    """``events`` events of ``count`` tokens each, the numbers from ``first`` on between ``before`` and ``after``."""

    before: bytes
    after: bytes
    first: int
    count: int
    events: int


class KeptEvents:
    """Events in their order; iterate to have them, each with its exact bytes."""

    __slots__ = ("_pieces", "_tail")

    def __init__(self) -> None:
        self._pieces: list[bytes | _Run] = []
        self._tail = b""

    def add(self, event: bytes) -> None:
        """Keep one event."""
        self._pieces.append(event)

    def add_run(self, before: bytes, after: bytes, first: int, count: int, events: int) -> None:
        """Keep ``events`` events that differ in their numbers only."""
        self._pieces.append(_Run(before, after, first, count, events))

    def add_to_last(self, tail: bytes) -> None:
        """Keep what belongs to the last event and came after it."""
        self._tail += tail

    def __iter__(self) -> Iterator[bytes]:
        held: bytes | None = None
        for event in self._written():
            if held is not None:
                yield held
            held = event
        if held is not None:
            yield held + self._tail

    def _written(self) -> Iterator[bytes]:
        for piece in self._pieces:
            if isinstance(piece, bytes):
                yield piece
                continue
            around = piece.before, piece.after
            for start in range(piece.first, piece.first + piece.count * piece.events, piece.count):
                yield counted(start, piece.count).join(around)
