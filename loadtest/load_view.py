"""What an operations port shows of a load, be it this process's own or that of all workers together."""

from __future__ import annotations

from typing import Protocol

from loadtest.recorder import Recorder, Totals

__all__ = ["LoadView"]


class LoadView(Protocol):
    """Counts as of now; what has ended is in ``recorder``, what is live is added by `totals`."""

    @property
    def recorder(self) -> Recorder:
        """Streams that have ended, and the times of all."""

    def live(self) -> int:
        """Number of streams that are not recorded yet."""

    def totals(self) -> Totals:
        """Tokens and events of the streams that have ended and of those that have not."""
