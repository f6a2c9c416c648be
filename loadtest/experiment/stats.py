"""Statistics of the experiment: paired differences over rounds, arm means, marginal costs.

The unit of analysis is the round, never the chunk: ten million chunks from eight rounds are eight samples.
Pure: numbers and a generator in, numbers out.  What makes a round void is `rounds`; what a figure means for
the run is `verdict`.

Intervals are symmetrised bootstrap-t.  Each resample draws n residuals with replacement, gives each a random
sign, and is studentised by its own standard error; the interval is the estimate plus or minus the wanted
quantile of |t*| times the standard error.  Studentising is what keeps the coverage at 8 rounds, where a
percentile bootstrap covers 87-89 % instead of 95.  The sign is justified by the design: both arms of a round
meet the same neighbours in random order, so the noise of their difference has no preferred direction.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "CONTROL_LEVEL",
    "LEVEL",
    "MDE_FACTOR",
    "RESAMPLES",
    "Estimate",
    "FloatArray",
    "marginal_costs",
    "mean_over_rounds",
    "paired_difference",
    "quantiles",
    "wilson_interval",
]

LEVEL = 0.95
CONTROL_LEVEL = 0.999
"""The A/A control is judged at this level: at 95 % one honest run in twenty would accuse itself."""
MDE_FACTOR = 2.8
"""1.96 + 0.84: an effect this many standard errors away is seen with 80 % power at 5 %."""
RESAMPLES = 20_000
"""Leaves 20 resamples beyond the 99.9 % point."""
NORMAL_95 = 1.959964
"""Standard errors on either side that hold 95 % of a normal distribution."""
LEAST_ROUNDS, CONTROL_LEAST_ROUNDS = 4, 5
"""Below these an interval at LEVEL, and at CONTROL_LEVEL, is set by resamples of one value n times over."""
FAR_OUT = 1e9
"""Stands for an infinite t; an interval that reaches it is none."""
NO_SPREAD = 1e-12
"""Variance, of the squares, that is only what rounding left."""
DRAWN_AT_ONCE = 2_000_000
"""Bounds the memory of a run of many rounds to some tens of MB."""
LEAST_EIGENVALUE = 1e-4
"""Requests that vary by about 1 % against the chunks: below it the two slopes are noise of one another."""

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over rounds; every field but ``rounds`` in the unit of the values.

    ``ci95`` is None below LEAST_ROUNDS rounds, ``ci999`` below CONTROL_LEAST_ROUNDS, and either where the resamples
    have no bound at its level; ``standard_error`` and ``mde`` are None for a single round.
    """

    value: float
    standard_error: float | None
    ci95: tuple[float, float] | None
    ci999: tuple[float, float] | None
    mde: float | None
    rounds: int

    @property
    def significant(self) -> bool:
        """Whether the 95 % interval leaves out zero."""
        return self.ci95 is not None and not self.ci95[0] <= 0.0 <= self.ci95[1]


def paired_difference(a: ArrayLike, b: ArrayLike, rng: np.random.Generator, *, resamples: int = RESAMPLES) -> Estimate:
    """Mean of a - b over rounds, where ``a[i]`` and ``b[i]`` are two arms of the same round.

    Raises ValueError when the two differ in length or hold no round.
    """
    a_values, b_values = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if a_values.shape != b_values.shape:
        raise ValueError(f"arms differ in rounds: {a_values.size} and {b_values.size}")
    return mean_over_rounds(a_values - b_values, rng, resamples=resamples)


def mean_over_rounds(values: ArrayLike, rng: np.random.Generator, *, resamples: int = RESAMPLES) -> Estimate:
    """Mean of one value per round, with its intervals.  Raises ValueError when there is no round."""
    sample = np.asarray(values, np.float64)
    n = sample.size
    if n == 0:
        raise ValueError("no round to take a mean over")
    mean = float(sample.mean())
    if n == 1:
        return Estimate(mean, None, None, None, None, 1)
    standard_error = float(sample.std(ddof=1)) / math.sqrt(n)
    q95, q999 = _t_quantiles(sample - mean, rng, resamples)

    def interval(quantile: float, least_rounds: int) -> tuple[float, float] | None:
        if n < least_rounds or quantile >= FAR_OUT:
            return None
        return mean - quantile * standard_error, mean + quantile * standard_error

    return Estimate(
        value=mean,
        standard_error=standard_error,
        ci95=interval(q95, LEAST_ROUNDS),
        ci999=interval(q999, CONTROL_LEAST_ROUNDS),
        mde=MDE_FACTOR * standard_error,
        rounds=n,
    )


def _t_quantiles(residuals: FloatArray, rng: np.random.Generator, resamples: int) -> tuple[float, float]:
    """The |t*| that a share LEVEL, and a share CONTROL_LEVEL, of the symmetrised resamples stay below."""
    n = residuals.size
    both_signs = np.concatenate([residuals, -residuals])
    at_once = max(1, DRAWN_AT_ONCE // n)
    t = np.concatenate(
        [
            _studentised(both_signs[rng.integers(0, 2 * n, (min(at_once, resamples - done), n))])
            for done in range(0, resamples, at_once)
        ]
    )
    q95, q999 = np.quantile(t, [LEVEL, CONTROL_LEVEL], method="higher")
    return float(q95), float(q999)


def _studentised(drawn: FloatArray) -> FloatArray:
    """|mean| / its standard error, per row."""
    n = drawn.shape[1]
    totals = drawn.sum(axis=1)
    squares = np.einsum("ij,ij->i", drawn, drawn)
    spread = squares - totals * totals / n
    variances = np.where(spread > NO_SPREAD * squares, spread, 0.0) / (n - 1)
    # A resample of one value n times over has no spread: infinitely far out, or (0 / 0) exactly at home.
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.abs(totals / n) / np.sqrt(variances / n)
    finite: FloatArray = np.nan_to_num(t, nan=0.0, posinf=FAR_OUT)
    return finite


def marginal_costs(chunks: ArrayLike, requests: ArrayLike, cpu_us: ArrayLike) -> FloatArray | None:
    """What one chunk more (per arm) and one request more (all arms alike) cost, as one value per round.

    All three arguments are [round, arm]; the answer is [round, arm + 1] in us, the request's column last.
    Least squares of a block's CPU on its chunks and its requests, without an intercept: at one rate and block
    length it could not be told from the chunks.  A column's mean is the fitted slope and its scatter the
    slope's error (each round's influence on the fit), so that `mean_over_rounds` and `paired_difference` give
    a slope's interval, clustered by round, as they do for any other figure.

    None when the requests do not vary apart from the chunks, so that the slopes can't be told apart, or when
    there are no more rounds than slopes.
    """
    chunk_counts, request_counts = np.asarray(chunks, np.float64), np.asarray(requests, np.float64)
    cpu = np.asarray(cpu_us, np.float64)
    rounds, arms = chunk_counts.shape
    slopes = arms + 1
    if rounds <= slopes:
        return None
    design = np.zeros((rounds, arms, slopes))
    design[:, np.arange(arms), np.arange(arms)] = chunk_counts
    design[:, :, arms] = request_counts
    gram = np.einsum("rai,raj->ij", design, design)
    if not _separable(gram):
        return None
    slope = np.linalg.solve(gram, np.einsum("rai,ra->i", design, cpu))
    residuals = cpu - design @ slope
    scores = np.einsum("rai,ra->ri", design, residuals)
    # A fit is closer to its own data than to the truth; the factor gives the lost degrees of freedom back.
    lost = math.sqrt(cpu.size / (cpu.size - slopes))
    influence: FloatArray = slope + rounds * lost * np.linalg.solve(gram, scores.T).T
    return influence


def _separable(gram: FloatArray) -> bool:
    """Whether the columns, scaled to length 1, are far enough from being combinations of each other."""
    lengths = np.sqrt(np.diag(gram))
    if np.any(lengths == 0):
        return False
    return bool(np.linalg.eigvalsh(gram / np.outer(lengths, lengths))[0] > LEAST_EIGENVALUE)


def quantiles(values: ArrayLike, probabilities: Sequence[float]) -> list[float]:
    """Sample quantiles by nearest rank: each is a value that was observed.  ValueError when empty."""
    sample = np.asarray(values, np.float64)
    if not sample.size:
        raise ValueError("no value to take quantiles of")
    return [float(q) for q in np.quantile(sample, probabilities, method="inverted_cdf")]


def wilson_interval(successes: int, trials: int) -> tuple[float, float] | None:
    """Wilson's 95 % score interval of a share, for trials that do not depend on one another; None without any."""
    if not trials:
        return None
    share, z2 = successes / trials, NORMAL_95**2
    middle = share + z2 / (2 * trials)
    reach = NORMAL_95 * math.sqrt(share * (1 - share) / trials + z2 / (4 * trials**2))
    low, high = ((middle + sign * reach) / (1 + z2 / trials) for sign in (-1, 1))
    return max(0.0, low), min(1.0, high)
