"""The interval covers what it says, at the round counts an experiment has, with drift, bad blocks and voids."""

from __future__ import annotations

import numpy as np
import pytest

from loadtest.experiment import stats

TRUE_DIFFERENCE_US = 5.0
SIMULATED_RUNS = 2_000


@pytest.mark.parametrize("rounds", [8, 12, 20, 40, 60])
def test_coverage_of_the_interval_is_nominal_over_2000_simulated_runs(rounds: int) -> None:
    rng = np.random.default_rng(rounds)
    covered_95 = covered_999 = 0
    for _ in range(SIMULATED_RUNS):
        off, on = simulated_run(rng, rounds)

        difference = stats.paired_difference(off, on, rng, resamples=1_000)

        assert difference.ci95 is not None
        assert difference.ci999 is not None
        covered_95 += difference.ci95[0] <= TRUE_DIFFERENCE_US <= difference.ci95[1]
        covered_999 += difference.ci999[0] <= TRUE_DIFFERENCE_US <= difference.ci999[1]

    assert 0.93 <= covered_95 / SIMULATED_RUNS <= 0.97
    assert covered_999 / SIMULATED_RUNS >= 0.995


def simulated_run(rng: np.random.Generator, usable_rounds: int) -> tuple[np.ndarray, np.ndarray]:
    """CPU us per chunk of two arms in the rounds that count.

    Drift common to a round (a random walk), noise per block with heavy tails that grows with the arm's cost,
    a neighbour that hits one block in twenty, and void blocks (the dear arm's more often), each of which takes
    its whole round away; the run goes on until ``usable_rounds`` are left.
    """
    drawn = 4 * usable_rounds
    drift = 60.0 + np.cumsum(rng.normal(0.0, 1.0, drawn))
    cost = drift[:, None] + np.array([TRUE_DIFFERENCE_US, 0.0])
    noise = 0.04 * cost * rng.standard_t(4, (drawn, 2))
    neighbour = (rng.random((drawn, 2)) < 0.05) * rng.exponential(8.0, (drawn, 2))
    measured = cost + noise + neighbour
    void = rng.random((drawn, 2)) < np.array([0.15, 0.08])
    kept = measured[~void.any(axis=1)][:usable_rounds]
    assert len(kept) == usable_rounds
    return kept[:, 0], kept[:, 1]


def test_a_percentile_bootstrap_would_not_cover_at_eight_rounds() -> None:
    """The reason for studentising: were this to pass, the simpler interval would do."""
    rng = np.random.default_rng(1)
    covered = 0
    for _ in range(SIMULATED_RUNS):
        off, on = simulated_run(rng, 8)
        differences = off - on
        means = differences[rng.integers(0, 8, (500, 8))].mean(axis=1)
        low, high = np.quantile(means, [0.025, 0.975])
        covered += low <= TRUE_DIFFERENCE_US <= high

    assert covered / SIMULATED_RUNS < 0.92


def test_common_drift_cancels_to_the_last_digit() -> None:
    rng = np.random.default_rng(3)
    drift = np.cumsum(rng.normal(0.0, 50.0, 20))

    difference = stats.paired_difference(100.0 + drift, 95.0 + drift, rng)

    assert difference.value == pytest.approx(5.0)
    assert difference.standard_error == pytest.approx(0.0, abs=1e-12)
    assert difference.ci95 == pytest.approx((5.0, 5.0))
    assert difference.significant


def test_estimate_standard_error_and_mde_are_the_textbook_ones() -> None:
    difference = stats.paired_difference([9.0, 12.0, 15.0], [8.0, 10.0, 12.0], np.random.default_rng(1))

    assert difference.value == 2.0
    assert difference.standard_error == pytest.approx(1 / 3**0.5)
    assert difference.mde == pytest.approx(2.8 / 3**0.5)
    assert difference.rounds == 3


def test_interval_nears_the_normal_one_when_rounds_are_many() -> None:
    sample = np.random.default_rng(5).normal(0.0, 1.0, 500)

    estimate = stats.mean_over_rounds(sample, np.random.default_rng(6))

    assert estimate.ci95 is not None
    assert estimate.ci999 is not None
    assert estimate.standard_error is not None
    assert (estimate.ci95[1] - estimate.value) / estimate.standard_error == pytest.approx(1.96, abs=0.04)
    assert (estimate.ci999[1] - estimate.value) / estimate.standard_error == pytest.approx(3.29, abs=0.2)


def test_same_seed_same_interval() -> None:
    values = [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0]

    first, second = (stats.mean_over_rounds(values, np.random.default_rng(7)) for _ in range(2))

    assert first == second


def test_swapping_the_arms_mirrors_the_interval() -> None:
    rng = np.random.default_rng(8)
    off, on = simulated_run(rng, 12)

    forth = stats.paired_difference(off, on, np.random.default_rng(9))
    back = stats.paired_difference(on, off, np.random.default_rng(9))

    assert back.value == pytest.approx(-forth.value)
    assert forth.ci95 is not None
    assert back.ci95 == pytest.approx((-forth.ci95[1], -forth.ci95[0]))


def test_one_round_gives_a_mean_and_no_interval() -> None:
    estimate = stats.mean_over_rounds([4.0], np.random.default_rng(1))

    assert estimate == stats.Estimate(4.0, None, None, None, None, 1)
    assert not estimate.significant


def test_rounds_that_all_agree_give_an_interval_of_no_width() -> None:
    estimate = stats.mean_over_rounds([2.5] * 8, np.random.default_rng(1))

    assert estimate.ci95 == (2.5, 2.5)
    assert estimate.ci999 == (2.5, 2.5)


@pytest.mark.parametrize(
    ("a", "b", "message"), [([1.0], [1.0, 2.0], "arms differ in rounds: 1 and 2"), ([], [], "no round")]
)
def test_rounds_that_do_not_pair_are_refused(a: list[float], b: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        stats.paired_difference(a, b, np.random.default_rng(1))


def test_marginal_costs_tell_chunks_from_requests() -> None:
    rng = np.random.default_rng(10)
    chunks = rng.integers(9_000, 11_000, (30, 2)).astype(float)
    requests = rng.integers(20, 120, (30, 2)).astype(float)
    cpu_us = chunks * np.array([45.0, 40.0]) + requests * 700.0

    slopes = stats.marginal_costs(chunks, requests, cpu_us)

    assert slopes is not None
    assert slopes.mean(axis=0) == pytest.approx([45.0, 40.0, 700.0])


def test_intervals_of_marginal_costs_cover() -> None:
    rng = np.random.default_rng(11)
    covered = {"difference": 0, "request": 0}
    runs = 600
    for _ in range(runs):
        chunks = rng.integers(9_000, 11_000, (12, 2)).astype(float)
        requests = rng.poisson(60, (12, 2)).astype(float)
        load = 1.0 + 0.03 * rng.standard_t(5, (12, 2))
        cpu_us = (chunks * np.array([45.0, 40.0]) + requests * 700.0) * load
        slopes = stats.marginal_costs(chunks, requests, cpu_us)
        assert slopes is not None
        difference = stats.paired_difference(slopes[:, 0], slopes[:, 1], rng, resamples=1_000)
        request = stats.mean_over_rounds(slopes[:, 2], rng, resamples=1_000)
        assert difference.ci95 is not None
        assert request.ci95 is not None
        covered["difference"] += difference.ci95[0] <= 5.0 <= difference.ci95[1]
        covered["request"] += request.ci95[0] <= 700.0 <= request.ci95[1]

    assert 0.92 <= covered["difference"] / runs <= 0.98
    assert 0.90 <= covered["request"] / runs <= 0.98


@pytest.mark.parametrize(
    "requests", [np.zeros((10, 2)), np.full((10, 2), 50.0), np.full((10, 2), 50.0) + np.arange(20).reshape(10, 2) / 1e3]
)
def test_no_slopes_where_requests_do_not_vary_apart_from_chunks(requests: np.ndarray) -> None:
    chunks = np.full((10, 2), 10_000.0)

    assert stats.marginal_costs(chunks, requests, chunks * 40.0) is None


def test_no_slopes_with_no_more_rounds_than_slopes() -> None:
    rng = np.random.default_rng(12)
    chunks, requests = rng.random((3, 2)) + 1, rng.random((3, 2)) + 1

    assert stats.marginal_costs(chunks, requests, chunks) is None


def test_quantiles_are_observed_values() -> None:
    assert stats.quantiles([1.0, 2.0, 3.0, 4.0], [0.5, 0.99, 0.0]) == [2.0, 4.0, 1.0]
    with pytest.raises(ValueError, match="no value"):
        stats.quantiles([], [0.5])


@pytest.mark.parametrize("rounds", range(1, 9))
def test_an_interval_is_none_where_rounds_are_too_few_for_one(rounds: int) -> None:
    values = np.random.default_rng(20).normal(5.0, 1.0, 8)[:rounds]

    estimate = stats.mean_over_rounds(values, np.random.default_rng(21))

    assert (estimate.ci95 is None) == (rounds < 4)
    assert (estimate.ci999 is None) == (rounds < 5)
    assert (estimate.mde is None) == (rounds < 2)
    for low, high in filter(None, (estimate.ci95, estimate.ci999)):
        assert high - low < 200
    assert estimate.significant == (rounds >= 4)


def test_an_interval_is_none_where_residuals_are_alike_and_resamples_have_no_spread() -> None:
    """0.1, 0.3, 0.1, 0.3: one resample in eight draws one residual only, whatever rounding makes of its spread."""
    estimate = stats.mean_over_rounds([0.1, 0.3, 0.1, 0.3], np.random.default_rng(1))

    assert (estimate.ci95, estimate.ci999) == (None, None)
    assert estimate.mde == pytest.approx(2.8 * 0.11547 / 2, rel=1e-4)


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [
        (0, 10, 0.0, 0.2775),
        (10, 10, 0.7225, 1.0),
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilsons_interval_is_what_is_published(successes: int, trials: int, low: float, high: float) -> None:
    """The last three: Newcombe 1998, table I, method 3; none for a share of nothing."""
    assert stats.wilson_interval(successes, trials) == (pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5))
    assert stats.wilson_interval(0, 0) is None


def test_wilsons_interval_covers() -> None:
    rng = np.random.default_rng(1)
    for share, trials in ((0.99, 400), (0.9, 100), (0.5, 30)):
        drawn = rng.binomial(trials, share, 4_000)
        held = [low <= share <= high for low, high in (stats.wilson_interval(int(k), trials) or (1, 0) for k in drawn)]
        assert 0.93 <= np.mean(held) <= 0.98
