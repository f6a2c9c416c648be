"""Intervals of reckonings with several means: the paired difference's where it is one, and honest elsewhere."""

from __future__ import annotations

import numpy as np
import pytest

from loadtest.experiment.jackknife import reckoned
from loadtest.experiment.stats import mean_over_rounds, paired_difference


def rounds(seed: int, n: int = 30, costs: tuple[float, ...] = (30.0, 25.0), noise: float = 0.08) -> np.ndarray:
    rng = np.random.default_rng(seed)
    drift = 1 + 0.05 * rng.standard_normal((n, 1))
    return np.array(costs) * drift * (1 + noise * rng.standard_normal((n, len(costs))))


def test_a_difference_has_the_interval_of_the_paired_difference() -> None:
    table = rounds(1)
    found = reckoned(lambda means: means[0][0] - means[0][1], [table], np.random.default_rng(7))
    paired = paired_difference(table[:, 0], table[:, 1], np.random.default_rng(7))

    assert found.value == pytest.approx(paired.value)
    assert found.ci95 == pytest.approx(paired.ci95)


def test_a_factor_goes_into_every_round() -> None:
    table = rounds(2)
    found = reckoned(lambda means: means[0][0] - 1.05 * means[0][1], [table], np.random.default_rng(7))

    assert found.ci95 == pytest.approx(
        mean_over_rounds(table[:, 0] - 1.05 * table[:, 1], np.random.default_rng(7)).ci95
    )


def test_one_runs_rounds_alone_give_the_mean_s_interval_and_two_runs_add_as_squares() -> None:
    now, then = rounds(3)[:, :1], rounds(4, n=12)[:, 1:]
    one = [mean_over_rounds(run[:, 0], np.random.default_rng(5)).ci95 for run in (now, then)]
    halves = [(high - low) / 2 for low, high in one if low is not None]
    both = reckoned(lambda means: means[0][0] - means[1][0], [now, then], np.random.default_rng(5))

    assert both.ci95 is not None
    assert both.value == pytest.approx(now.mean() - then.mean())
    assert (both.ci95[1] - both.ci95[0]) / 2 == pytest.approx(np.hypot(*halves), rel=0.05)


@pytest.mark.parametrize("n", [8, 30])
def test_a_ratio_s_interval_covers_the_truth(n: int) -> None:
    inside = 0
    for seed in range(300):
        table = rounds(seed, n=n)
        found = reckoned(lambda means: means[0][0] / means[0][1], [table], np.random.default_rng(seed))
        assert found.ci95 is not None
        inside += found.ci95[0] <= 1.2 <= found.ci95[1]

    assert 0.92 <= inside / 300 <= 0.99


def test_two_runs_ratio_covers_the_truth() -> None:
    inside = 0
    for seed in range(300):
        runs = [rounds(seed, n=30)[:, :1], rounds(seed + 10_000, n=12)[:, 1:]]
        found = reckoned(lambda means: np.log(means[0][0] / means[1][0]), runs, np.random.default_rng(seed))
        assert found.ci95 is not None
        inside += found.ci95[0] <= np.log(1.2) <= found.ci95[1]

    assert 0.92 <= inside / 300 <= 0.99


@pytest.mark.parametrize("n", [1, 2, 3])
def test_too_few_rounds_have_a_value_and_no_interval(n: int) -> None:
    table = rounds(1, n=n)
    found = reckoned(lambda means: means[0][0], [table], np.random.default_rng(1))

    assert found.value == pytest.approx(table[:, 0].mean())
    assert found.ci95 is None


def test_what_the_reckoning_raises_passes() -> None:
    with pytest.raises(ZeroDivisionError):
        reckoned(lambda means: 1.0 / float(means[0][0] * 0), [rounds(1)], np.random.default_rng(1))
