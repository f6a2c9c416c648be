"""Which rate to probe next: up in steps to the first that fails, then the gap between pass and fail halved.

After that the neighbourhood of the limit is probed in rounds, the policies side by side.  Pure: outcomes in, rates
out; the same outcomes give the same rates.  What the limit then is, `capacity_fit` says.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from loadtest.experiment.capacity_slo import FAIL, PASS, UNATTRIBUTABLE

__all__ = [
    "FURTHER_ROUNDS",
    "RAMP_FACTOR",
    "REPEAT_OFFSETS",
    "RESOLUTION",
    "LimitSearch",
    "repeat_order",
    "repeat_rate",
]

RAMP_FACTOR = 1.6
RESOLUTION = 1.06
"""The search ends when the failing rate is no more than this times the passing one."""
LOWEST_SHARE = 1 / 40
"""Of the rate that the ramp starts with: below it nothing is looked for."""
REPEAT_OFFSETS = (-0.09, -0.03, 0.03, 0.09)
"""Natural logarithms of the rates of a round over the best estimate so far."""
FURTHER_ROUNDS = 2
"""At most, when after the rounds asked for a limit is still a bound: one that comes on softly can hide by chance."""
_CONFIRMED = 2


class LimitSearch:
    """Looks for the limit of one policy between ``start`` and ``top`` tok/s, or below ``start`` if that fails.

    On the way up a rate that is not held is probed again: two of three decide.  `next_rate` is None at the end;
    then ``low`` is the highest rate held (None if none was), and ``high`` the lowest that was not (None if all were),
    ``high_state`` saying whether it failed or could not be attributed.
    """

    def __init__(self, start: float, top: float) -> None:
        self.low: float | None = None
        self.high: float | None = None
        self.high_state: str | None = None
        self._start = start
        self._top = top
        self._rate: float | None = start
        self._tries: list[str] = []

    def next_rate(self) -> float | None:
        """The rate to probe, tok/s; None when there is nothing more to find out."""
        return self._rate

    @property
    def bracketed(self) -> bool:
        """Whether a rate held and a higher one failed, so that there is a limit to look at more closely."""
        return self.low is not None and self.high_state == FAIL

    @property
    def phase(self) -> str:
        """What the next probe is: ramp, confirm (again, on the way up) or bisect."""
        if self.low is not None and self.high is not None:
            return "bisect"
        return "confirm" if self._tries else "ramp"

    def record(self, state: str) -> None:
        """The outcome of the probe at `next_rate`."""
        assert self._rate is not None
        self._tries.append(state)
        decided = self._decided()
        if decided is None:
            return
        rate, self._tries = self._rate, []
        if decided == PASS:
            self.low = rate
        else:
            self.high, self.high_state = rate, decided
        self._rate = self._after()

    def _decided(self) -> str | None:
        tries = self._tries
        if tries[0] == PASS:
            return PASS
        if self.phase == "bisect":
            # A single failure will do, as rounds of repeats follow; what says nothing is asked again.
            return tries[-1] if tries[-1] != UNATTRIBUTABLE or len(tries) == _CONFIRMED else None
        for state in (PASS, FAIL, UNATTRIBUTABLE):
            if tries.count(state) == _CONFIRMED:
                return state
        return FAIL if len(tries) > _CONFIRMED else None

    def _after(self) -> float | None:
        if self.low is None:
            assert self.high is not None
            down = self.high / RAMP_FACTOR
            return down if down >= self._start * LOWEST_SHARE else None
        if self.high is None:
            return min(self.low * RAMP_FACTOR, self._top) if self.low < self._top else None
        return math.sqrt(self.low * self.high) if self.high / self.low > RESOLUTION else None


def repeat_rate(estimate_tok_s: float, offset: int) -> float:
    """The rate of place ``offset`` in a round, around the best estimate so far."""
    return estimate_tok_s * math.exp(REPEAT_OFFSETS[offset])


def repeat_order(policies: Sequence[str], round_: int, rng: np.random.Generator) -> list[tuple[int, str]]:
    """(offset, policy) of every probe of a round: offsets shuffled, at each one policy right after the other.

    Which policy goes first alternates from offset to offset and from round to round, so that each is first equally
    often and what the machine does in between strikes all alike.
    """
    offsets = [int(offset) for offset in rng.permutation(len(REPEAT_OFFSETS))]
    count = len(policies)
    return [
        (offset, policies[(place + turn + round_) % count])
        for place, offset in enumerate(offsets)
        for turn in range(count)
    ]
