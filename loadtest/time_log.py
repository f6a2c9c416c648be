"""Times of every token, noted at the price of a list's append and put into a histogram a lot at a time.

A histogram's record is a fifth of what a token costs to read; in a lot, away from the reads, it is a third of that.
"""

from __future__ import annotations

from sim.core.histogram import LogHistogram

__all__ = ["TimeLog"]


class TimeLog:
    """Times in ns.  ``pending`` is for appending to; whoever lets others append calls `fold` every now and then."""

    __slots__ = ("_histogram", "pending")

    def __init__(self) -> None:
        self.pending: list[int] = []
        self._histogram = LogHistogram()

    def record_ns(self, value_ns: int, count: int = 1) -> None:
        """Add ``count`` occurrences of ``value_ns``."""
        self._histogram.record_ns(value_ns, count)

    def fold(self) -> None:
        """Put what is pending into the histogram."""
        self._histogram.record_all_ns(self.pending)
        self.pending.clear()

    @property
    def histogram(self) -> LogHistogram:
        """Of all times until now."""
        self.fold()
        return self._histogram
