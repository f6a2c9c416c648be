"""Times of every token, noted at the price of a list's append and put into a histogram a lot at a time.

A histogram's record is a fifth of what a token costs to read; in a lot, away from the reads, it is a third of that.

Where a chunk holds one token, the gap before it is both an inter-token and an inter-chunk latency.  It is noted once;
only the gaps before chunks of several tokens are noted twice, as the tokens' shares and as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sim.core.histogram import LogHistogram

__all__ = ["TimeLog", "TokenGaps"]


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


@dataclass(frozen=True, slots=True)
class TokenGaps:
    """Gaps between the arrivals of chunks.

    ``single``: before chunks of one token.  ``shared``, ``whole``: before chunks of several, as each token's share
    and undivided.
    """

    single: TimeLog = field(default_factory=TimeLog)
    shared: LogHistogram = field(default_factory=LogHistogram)
    whole: LogHistogram = field(default_factory=LogHistogram)

    def record_ns(self, gap_ns: int, tokens: int) -> None:
        """The gap before a chunk of ``tokens`` tokens."""
        if tokens == 1:
            self.single.record_ns(gap_ns)
        else:
            self.shared.record_ns(gap_ns // tokens, tokens)
            self.whole.record_ns(gap_ns)

    @property
    def itl(self) -> LogHistogram:
        """Inter-token latency: a chunk's gap shared evenly by its tokens."""
        return _sum(self.single.histogram, self.shared)

    @property
    def inter_chunk(self) -> LogHistogram:
        """Inter-chunk latency: every gap once, whatever the chunk holds."""
        return _sum(self.single.histogram, self.whole)


def _sum(one: LogHistogram, other: LogHistogram) -> LogHistogram:
    total = LogHistogram()
    total.merge(one)
    total.merge(other)
    return total
