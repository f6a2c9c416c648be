"""The limit from outcomes: pooling, the crossing, bounds, and that intervals hold the truth as often as they say."""

from __future__ import annotations

import numpy as np
import pytest

from loadtest.experiment import capacity_fit
from loadtest.experiment.capacity_fit import Trial, falling_chances, fit_limit, fit_ratio
from tests.capacity_runs import by_limit, search


def trials(*outcomes):
    return [Trial(rate, passed) for rate, passed in outcomes]


@pytest.mark.parametrize(
    ("passes", "counts", "chances"),
    [
        ([3, 2, 0], [3, 4, 2], [1.0, 0.5, 0.0]),
        ([1, 2, 0], [2, 2, 2], [0.75, 0.75, 0.0]),
        ([0, 0, 2], [1, 1, 2], [0.5, 0.5, 0.5]),
        ([0, 1, 0, 1], [1, 1, 1, 1], [0.5, 0.5, 0.5, 0.5]),
        ([5, 0, 5], [5, 1, 5], [1.0, 5 / 6, 5 / 6]),
    ],
)
def test_chances_that_rise_are_pooled(passes, counts, chances):
    found = falling_chances(np.array(passes, float), np.array(counts, float))

    assert list(found) == pytest.approx(chances)


def test_the_limit_is_where_the_chance_crosses_one_half():
    sharp = fit_limit(trials((100, True), (200, True), (400, False), (800, False)), 1)
    soft = fit_limit(trials(*[(100, True)] * 4, *[(200, n < 3) for n in range(4)], *[(400, False)] * 4), 1)

    assert sharp.estimate == pytest.approx(np.sqrt(200 * 400))
    assert soft.estimate == pytest.approx(200 * 2 ** (0.25 / 0.75))


def test_an_interval_spans_the_gap_between_the_rates_even_of_clean_data():
    limit = fit_limit(trials(*[(100, True)] * 20, *[(200, False)] * 20), 1)

    assert limit.ci95 == (100, 200)


def test_one_sided_data_give_a_bound_and_none_give_nothing():
    assert fit_limit(trials((100, True), (200, True)), 1) == capacity_fit.Limit(at_least=200)
    assert fit_limit(trials((100, False), (200, False)), 1) == capacity_fit.Limit(below=100)
    assert fit_limit([], 1) == capacity_fit.Limit()
    assert fit_ratio(trials((100, True)), trials((100, True), (200, False)), 1) is None


def test_the_same_seed_gives_the_same_interval_and_the_order_of_probes_does_not_matter():
    mixed = trials((90, True), (100, True), (110, False), (115, True), (120, False), (140, False))
    one = fit_limit(mixed, 7)

    assert fit_limit(mixed, 7) == one
    assert fit_limit(mixed[::-1], 7).estimate == one.estimate


def test_a_higher_limit_gives_a_higher_estimate():
    estimates = []
    for limit in (8_000, 12_000, 18_000, 27_000):
        _, found = search({"a": by_limit(limit, 0.001)}, np.random.default_rng(3))
        estimates.append(fit_limit(found["a"], 1).estimate)

    assert estimates == sorted(estimates)
    assert [estimate / limit for estimate, limit in zip(estimates, (8_000, 12_000, 18_000, 27_000), strict=True)] == (
        pytest.approx([1.0] * 4, abs=0.04)
    )


@pytest.mark.parametrize(("width", "least"), [(0.005, 0.95), (0.03, 0.93), (0.08, 0.85)])
def test_intervals_hold_the_truth(width, least, monkeypatch):
    """Whole searches with three rounds of repeats; ``width``: the chance falls from 73 to 27 % over twice that."""
    monkeypatch.setattr(capacity_fit, "RESAMPLES", 200)
    covered = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        truth = float(np.exp(rng.uniform(np.log(8_000), np.log(40_000))))
        _, found = search({"a": by_limit(truth, width)}, rng)
        limit = fit_limit(found["a"], seed)
        if limit.ci95 is not None:  # a bound claims no interval
            covered.append(limit.ci95[0] <= truth <= limit.ci95[1])

    assert len(covered) >= 57
    assert np.mean(covered) >= least


def test_equal_policies_are_rarely_told_apart_and_a_fifth_mostly_is(monkeypatch):
    monkeypatch.setattr(capacity_fit, "RESAMPLES", 200)
    differ = {1.0: 0, 1.2: 0}
    for factor in differ:
        for seed in range(30):
            rng = np.random.default_rng(seed)
            systems = {"a": by_limit(15_000, 0.02), "b": by_limit(15_000 * factor, 0.02)}
            _, found = search(systems, rng)
            ratio = fit_ratio(found["a"], found["b"], seed)
            differ[factor] += ratio.differs
            assert 0.7 / factor < ratio.estimate < 1.3 / factor

    assert differ[1.0] <= 4
    assert differ[1.2] >= 26
