"""When is request n due?  Offsets in ns from the start of the load, ascending, made one by one as they are asked for.

The load is open loop: a slow server gets the next request no later, and latency counts from these times
(coordinated omission).  No clock, no sleep, no global randomness here; sending on time is `sender`'s job, and so is
what closed arrivals wait for.  Which requests of a recording are replayed is in `replay`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import count, islice, repeat, takewhile
from random import Random

__all__ = ["bursts", "capped", "closed", "constant", "gamma", "poisson", "ramp", "staggered", "steps"]

NS = 1_000_000_000
_ROUNDING = 1e-9
"""Of a request: a count that misses a whole number by less is that number."""


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


def gamma(request_rate: float, burstiness: float, rng: Random) -> Iterator[int]:
    """Gaps of a gamma distribution with shape ``burstiness`` and mean 1/``request_rate`` s, without end.

    Their coefficient of variation is ``burstiness ** -0.5``: 1 is Poisson, below 1 is burstier, above 1 more even.
    """
    due_s = 0.0
    while True:
        due_s += rng.gammavariate(burstiness, 1 / (request_rate * burstiness))
        yield int(due_s * NS)


def ramp(from_rate: float, to_rate: float, duration_s: float) -> Iterator[int]:
    """Requests per second that change evenly from ``from_rate`` to ``to_rate`` within ``duration_s``.

    Up to time t, ``N(t) = from_rate t + (to_rate - from_rate) t^2 / (2 duration_s)`` requests are due; request n is
    due when N reaches n, so the count is exact and nothing drifts.
    """
    slope = (to_rate - from_rate) / duration_s
    for n in range(_whole((from_rate + to_rate) / 2 * duration_s)):
        # The root of N(t) = n in the form that holds for a slope of 0 too.
        divisor = from_rate + math.sqrt(max(0.0, from_rate**2 + 2 * slope * n))
        yield int(2 * n * NS / divisor) if n else 0


def steps(request_rates: Sequence[float], step_s: float) -> Iterator[int]:
    """Each of the rates for ``step_s``, evenly, its first request at the step's own start; rate 0 is silence."""
    for number, rate in enumerate(request_rates):
        start_ns = int(number * step_s * NS)
        yield from (start_ns + int(n * NS / rate) for n in range(_whole(rate * step_s)))


def bursts(size: int, every_s: float) -> Iterator[int]:
    """``size`` arrivals in one instant, again each ``every_s`` without end; 0: once."""
    for number in count() if every_s else range(1):
        yield from repeat(int(number * every_s * NS), size)


def closed() -> Iterator[int]:
    """Arrivals without end that are all due at once: each is sent when an earlier one is over."""
    return repeat(0)


def capped(due_ns: Iterable[int], duration_s: float, limit: int) -> Iterator[int]:
    """The arrivals before ``duration_s``, at most ``limit``; 0 stands for no cap."""
    if duration_s > 0:
        end_ns = int(duration_s * NS)
        due_ns = takewhile(lambda due: due < end_ns, due_ns)
    return islice(due_ns, limit or None)


def _whole(requests: float) -> int:
    """How many of the requests 0, 1, 2... come before ``requests``."""
    return math.ceil(requests - _ROUNDING)
