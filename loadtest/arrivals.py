"""When is request n due?  Offsets in ns from the start of the load, ascending, all known before the first is sent.

The load is open loop: a slow server gets the next request no later, and latency counts from these times
(coordinated omission).  No clock, no sleep, no global randomness here; sending on time is `users`' job.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count, islice, takewhile
from random import Random

__all__ = ["capped", "constant", "poisson", "replay", "staggered"]

NS = 1_000_000_000


def staggered(streams: int, ramp_s: float) -> Iterator[int]:
    """``streams`` arrivals, evenly over ``ramp_s``: a standing load that comes up without a burst."""
    return (int(n * ramp_s * NS / streams) for n in range(streams))


def constant(request_rate: float) -> Iterator[int]:
    """One arrival each 1/``request_rate`` s, without end; n times the gap, so that no rounding adds up."""
    return (int(n * NS / request_rate) for n in count())


def poisson(request_rate: float, rng: Random) -> Iterator[int]:
    """Arrivals of independent clients, without end: gaps are exponential with mean 1/``request_rate`` s."""
    due_s = 0.0
    while True:
        due_s += rng.expovariate(request_rate)
        yield int(due_s * NS)


def replay(stamps_ns: Iterable[int], speed: float) -> Iterator[int]:
    """A recording's arrivals from its first one on, ``speed`` times as fast."""
    first: int | None = None
    for stamp_ns in stamps_ns:
        if first is None:
            first = stamp_ns
        yield int((stamp_ns - first) / speed)


def capped(due_ns: Iterable[int], duration_s: float, limit: int) -> list[int]:
    """The arrivals before ``duration_s``, at most ``limit``; 0 stands for no cap."""
    if duration_s > 0:
        end_ns = int(duration_s * NS)
        due_ns = takewhile(lambda due: due < end_ns, due_ns)
    return list(islice(due_ns, limit) if limit > 0 else due_ns)
