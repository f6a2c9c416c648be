"""The limit from passes and failures: where the chance to pass crosses one half, and how sure that is.  Pure.

The chance falls with the rate and nothing else is assumed of it: isotonic regression over every probe of a policy
that could be attributed, those of the search too.  The interval is a bootstrap over probes.  Each resample knows the
crossing only to within two neighbouring rates, and the interval spans these, or clean data would have none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from loadtest.experiment.stats import FloatArray

__all__ = ["RESAMPLES", "Limit", "Ratio", "Trial", "falling_chances", "fit_limit", "fit_ratio"]

RESAMPLES = 2_000
LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class Trial:
    """One attributable probe; trials of different policies with the same ``pair`` were made side by side."""

    rate_tok_s: float
    passed: bool
    pair: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit in tok/s: ``estimate`` with its interval, or only a bound from one side."""

    estimate: float | None = None
    ci95: tuple[float, float] | None = None
    at_least: float | None = None
    below: float | None = None

    @property
    def centre(self) -> float | None:
        """Where to look closer: the estimate, or the bound there is."""
        return self.estimate or self.at_least or self.below


@dataclass(frozen=True, slots=True)
class Ratio:
    """One limit over another."""

    estimate: float
    ci95: tuple[float, float]

    @property
    def differs(self) -> bool:
        """Whether the interval leaves out 1."""
        return not self.ci95[0] <= 1.0 <= self.ci95[1]


def falling_chances(passes: FloatArray, counts: FloatArray) -> FloatArray:
    """Shares of passes per rate, in ascending order of rate, made to fall: neighbours that rise are pooled.

    Pool-adjacent-violators; ``passes`` out of ``counts`` at each rate.
    """
    pools: list[list[float]] = []  # passes, count, rates pooled
    for passed, count in zip(passes, counts, strict=True):
        pools.append([float(passed), float(count), 1.0])
        while len(pools) > 1 and pools[-1][0] * pools[-2][1] > pools[-2][0] * pools[-1][1]:
            last = pools.pop()
            pools[-1] = [a + b for a, b in zip(pools[-1], last, strict=True)]
    return np.concatenate([np.full(int(rates), passed / count) for passed, count, rates in pools])


def _crossing(rates: FloatArray, passed: FloatArray) -> tuple[float, float, float]:
    """(rate still above one half, crossing, rate below it), tok/s; 0 and infinity stand for rates not probed."""
    levels, places = np.unique(rates, return_inverse=True)
    counts = np.bincount(places).astype(np.float64)
    chances = falling_chances(np.bincount(places, weights=passed).astype(np.float64), counts)
    above = int(np.count_nonzero(chances >= 0.5))
    if above == 0:
        return 0.0, 0.0, float(levels[0])
    if above == len(levels):
        return float(levels[-1]), np.inf, np.inf
    low, high = float(levels[above - 1]), float(levels[above])
    share = (chances[above - 1] - 0.5) / (chances[above - 1] - chances[above])
    return low, float(low * (high / low) ** share), high


def fit_limit(trials: Sequence[Trial], seed: int) -> Limit:
    """The limit of one policy; ``seed`` is the bootstrap's."""
    if not trials:
        return Limit()
    rates, passed = _columns(trials)
    low, estimate, high = _crossing(rates, passed)
    if low == 0.0:
        return Limit(below=high)
    if high == np.inf:
        return Limit(at_least=low)
    rng = np.random.default_rng(seed)
    crossings = np.array([_crossing(rates[drawn], passed[drawn]) for drawn in _draws(trials, rng)])
    tail = (1.0 - LEVEL) / 2
    bounds = (
        float(np.quantile(crossings[:, 0], tail, method="lower")),
        float(np.quantile(crossings[:, 2], 1.0 - tail, method="higher")),
    )
    # A resample without a pass, or without a failure, has no bound of its own: what was probed is as far as it goes.
    return Limit(estimate, (max(bounds[0], float(rates.min())), min(bounds[1], float(rates.max()))))


def fit_ratio(a: Sequence[Trial], b: Sequence[Trial], seed: int) -> Ratio | None:
    """Limit of ``a`` over that of ``b``; None where either has no estimate.

    Probes made side by side are drawn together, so what the machine did to both of them cancels.
    """
    limits = [fit_limit(trials, seed) for trials in (a, b)]
    if limits[0].estimate is None or limits[1].estimate is None:
        return None
    (rates_a, passed_a), (rates_b, passed_b) = _columns(a), _columns(b)
    pairs = sorted({t.pair for t in a if t.pair is not None} | {t.pair for t in b if t.pair is not None})
    rng = np.random.default_rng(seed)
    ratios = []
    for _ in range(RESAMPLES):
        together = rng.integers(0, len(pairs), len(pairs)) if pairs else np.empty(0, np.int64)
        chosen = [pairs[index] for index in together]
        (low_a, _, high_a), (low_b, _, high_b) = (
            _crossing(rates[drawn], passed[drawn])
            for rates, passed, drawn in (
                (rates_a, passed_a, _drawn_with(a, chosen, rng)),
                (rates_b, passed_b, _drawn_with(b, chosen, rng)),
            )
        )
        if low_a and low_b and np.isfinite(high_a) and np.isfinite(high_b):
            # A crossing lies anywhere between two rates: clean steps differ by chance, as far as these are apart.
            share_a, share_b = rng.random(2)
            ratios.append(low_a * (high_a / low_a) ** share_a / (low_b * (high_b / low_b) ** share_b))
    if not ratios:
        return None
    tail = (1.0 - LEVEL) / 2
    bounds = np.quantile(ratios, [tail, 1.0 - tail])
    return Ratio(limits[0].estimate / limits[1].estimate, (float(bounds[0]), float(bounds[1])))


def _columns(trials: Sequence[Trial]) -> tuple[FloatArray, FloatArray]:
    rates = np.array([trial.rate_tok_s for trial in trials], np.float64)
    return rates, np.array([trial.passed for trial in trials], np.float64)


def _draws(trials: Sequence[Trial], rng: np.random.Generator) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    return rng.integers(0, len(trials), (RESAMPLES, len(trials)))


def _drawn_with(
    trials: Sequence[Trial], pairs: Sequence[tuple[int, int]], rng: np.random.Generator
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Indices of one resample: the probes of ``pairs``, and as many of the others as there are."""
    places = {trial.pair: index for index, trial in enumerate(trials) if trial.pair is not None}
    alone = [index for index, trial in enumerate(trials) if trial.pair is None]
    drawn = [places[pair] for pair in pairs if pair in places]
    if alone:
        drawn += [alone[index] for index in rng.integers(0, len(alone), len(alone))]
    return np.array(drawn, np.int64)
