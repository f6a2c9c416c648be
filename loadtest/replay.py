"""Which requests of a recording are replayed, and when: its clock's grid, the window, the speed.  Pure.

Reading recordings is in `traces`; what a replayed request holds is in `workload`.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise

__all__ = ["clock_step_ns", "due_times", "spread", "window"]

NS = 1_000_000_000
_ODD_SHARE = 0.05


def clock_step_ns(stamps_ns: Sequence[int]) -> int:
    """Step of the recording's clock: the gap that 95 % of neighbouring different stamps keep at least.

    Not the very smallest, so that a few odd stamps do not count.  0 when all stamps are equal.
    """
    gaps = sorted(after - before for before, after in pairwise(stamps_ns) if after > before)
    return gaps[int(_ODD_SHARE * len(gaps))] if gaps else 0


def spread(stamps_ns: Sequence[int]) -> Iterator[int]:
    """The ascending stamps, those of one instant apart: evenly over the clock's step, and not past the next stamp.

    A clock that ticks each 3 s puts all requests of 3 s on one instant; replayed so, they are a burst that never was.
    Order and the first stamp of each instant stay.
    """
    step_ns = clock_step_ns(stamps_ns)
    groups = [(stamp_ns, sum(1 for _ in group)) for stamp_ns, group in groupby(stamps_ns)]
    nexts = [stamp_ns for stamp_ns, _ in groups[1:]]
    for number, (stamp_ns, size) in enumerate(groups):
        room_ns = min(step_ns, nexts[number] - stamp_ns) if number < len(nexts) else step_ns
        yield from (stamp_ns + room_ns * n // size for n in range(size))


def window(stamps_ns: Sequence[int], from_s: float, window_s: float) -> range:
    """Places of the ascending stamps from ``from_s`` after the first on, for ``window_s``; 0: to the end."""
    if not stamps_ns:
        return range(0)
    start_ns = stamps_ns[0] + int(from_s * NS)
    first = bisect.bisect_left(stamps_ns, start_ns)
    end = bisect.bisect_left(stamps_ns, start_ns + int(window_s * NS)) if window_s else len(stamps_ns)
    return range(first, end)


def due_times(stamps_ns: Sequence[int], places: range, from_s: float, speed: float) -> Iterator[int]:
    """When the requests at ``places`` are due, ns from the window's start, ``speed`` times as fast as recorded."""
    start_ns = stamps_ns[0] + int(from_s * NS) if stamps_ns else 0
    return (int((stamps_ns[place] - start_ns) / speed) for place in places)
