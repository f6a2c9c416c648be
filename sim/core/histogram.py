"""Histogram of times with a bounded relative error: what lag, intervals and lateness are kept in.

Buckets as in HdrHistogram: each power of two is cut into 64, so a value is known to 1.6 %.  Histograms of
many blocks or processes add up exactly, and percentiles are read from the sum, never averaged.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = ["LogHistogram"]

_SUB_BITS = 6
_SUB = 1 << _SUB_BITS


class LogHistogram:
    """Counts of non-negative times in ns."""

    __slots__ = ("count", "counts", "max_ns", "sum_ns")

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self.count = 0
        self.sum_ns = 0
        self.max_ns = 0

    def record_ns(self, value_ns: int, count: int = 1) -> None:
        """Add ``count`` occurrences of ``value_ns``; what is negative counts as 0."""
        if value_ns < 0:
            value_ns = 0
        shift = value_ns.bit_length() - _SUB_BITS - 1
        index = value_ns if shift <= 0 else (shift << _SUB_BITS) + (value_ns >> shift)
        counts = self.counts
        counts[index] = counts.get(index, 0) + count
        self.count += count
        self.sum_ns += value_ns * count
        if value_ns > self.max_ns:
            self.max_ns = value_ns

    def record_all_ns(self, values_ns: Sequence[int]) -> None:
        """Add one occurrence of each value; of many values in few buckets, at a fraction of `record_ns`'s price."""
        if not values_ns:
            return
        ascending = sorted(values_ns)
        if ascending[0] < 0:
            ascending = [max(0, value_ns) for value_ns in ascending]
        done = 0
        while done < len(ascending):
            shift = max(0, ascending[done].bit_length() - _SUB_BITS - 1)
            index = (shift << _SUB_BITS) + (ascending[done] >> shift)
            start, done = done, bisect_right(ascending, _upper_ns(index), done)
            self.counts[index] = self.counts.get(index, 0) + done - start
        self.count += len(ascending)
        self.sum_ns += sum(ascending)
        self.max_ns = max(self.max_ns, ascending[-1])

    def merge(self, other: LogHistogram) -> None:
        """Add all that ``other`` holds."""
        for index, count in other.counts.items():
            self.counts[index] = self.counts.get(index, 0) + count
        self.count += other.count
        self.sum_ns += other.sum_ns
        self.max_ns = max(self.max_ns, other.max_ns)

    def since(self, earlier: LogHistogram) -> LogHistogram:
        """What was recorded after ``earlier``, a copy of this one as it was then; its maximum is known to a bucket."""
        grown = LogHistogram()
        for index, count in self.counts.items():
            if more := count - earlier.counts.get(index, 0):
                grown.counts[index] = more
        grown.count, grown.sum_ns = self.count - earlier.count, self.sum_ns - earlier.sum_ns
        grown.max_ns = min(self.max_ns, _upper_ns(max(grown.counts))) if grown.counts else 0
        return grown

    def quantile_s(self, q: float) -> float | None:
        """The value below which a share ``q`` (0..1) lies, seconds; None when empty.

        The upper edge of the bucket it falls into, never above the greatest value recorded.
        """
        if not self.count:
            return None
        wanted = max(1, -int(-q * self.count // 1))
        for upper_s, cumulative in self.buckets():
            if cumulative >= wanted:
                return min(upper_s, self.max_ns / 1e9)
        return self.max_ns / 1e9

    def mean_s(self) -> float | None:
        """Mean in seconds (exact, not from buckets); None when empty."""
        return self.sum_ns / self.count / 1e9 if self.count else None

    def buckets(self) -> Iterator[tuple[float, int]]:
        """(upper edge in s, values at or below it), ascending, of the buckets in use."""
        cumulative = 0
        for index in sorted(self.counts):
            cumulative += self.counts[index]
            yield _upper_ns(index) / 1e9, cumulative

    def to_json(self) -> dict[str, Any]:
        """All that is needed to read it back."""
        return {
            "count": self.count,
            "sum_ns": self.sum_ns,
            "max_ns": self.max_ns,
            "counts": {str(index): self.counts[index] for index in sorted(self.counts)},
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> LogHistogram:
        """Read what `to_json` gave."""
        histogram = cls()
        histogram.counts = {int(index): int(count) for index, count in value["counts"].items()}
        histogram.count, histogram.sum_ns = int(value["count"]), int(value["sum_ns"])
        histogram.max_ns = int(value["max_ns"])
        return histogram


def _upper_ns(index: int) -> int:
    """The greatest ns value that falls into bucket ``index``."""
    if index < 2 * _SUB:
        return index
    shift = (index >> _SUB_BITS) - 1
    return (((index & (_SUB - 1)) + _SUB + 1) << shift) - 1
