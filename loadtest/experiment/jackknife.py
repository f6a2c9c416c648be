"""The interval of any reckoning with means over rounds: a difference with a factor, a ratio, a sum of arms.

The reckoning is taken apart into one value per round, as often as there are rounds leaving one of them out
(the jackknife's pseudo-values), and `stats.mean_over_rounds` gives their interval as for any other figure.  What
is linear, such as a - 1.05 b, falls apart exactly into its own value of each round, so that the interval of a - b
is the one of the paired difference.  Two runs share no round: each is taken apart by itself, and the two half
widths are added as squares (Zou and Donner, Statistics in Medicine 27, 2008).

Pure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from loadtest.experiment.stats import FloatArray, mean_over_rounds

__all__ = ["Reckoned", "reckoned"]


@dataclass(frozen=True, slots=True)
class Reckoned:
    """A value and its 95 % interval; None where the rounds are too few for one."""

    value: float
    ci95: tuple[float, float] | None


def reckoned(
    function: Callable[[Sequence[FloatArray]], float], runs: Sequence[FloatArray], rng: np.random.Generator
) -> Reckoned:
    """``function`` of the means of each run, and its interval over their rounds.

    Each of ``runs`` is [round, figure]; the function gets a vector of means for each.  Whatever the function raises
    passes.
    """
    means = [run.mean(axis=0) for run in runs]
    value = function(means)
    squares = 0.0
    for number, run in enumerate(runs):
        n = len(run)
        if n < 2:
            return Reckoned(value, None)
        without = (run.sum(axis=0) - run) / (n - 1)
        left_out = [function([*means[:number], row, *means[number + 1 :]]) for row in without]
        interval = mean_over_rounds(n * value - (n - 1) * np.array(left_out), rng).ci95
        if interval is None:
            return Reckoned(value, None)
        squares += ((interval[1] - interval[0]) / 2) ** 2
    half = math.sqrt(squares)
    return Reckoned(value, (value - half, value + half))
