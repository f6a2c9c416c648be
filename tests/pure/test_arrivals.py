"""Arrivals are known beforehand: offsets in ns, ascending, from the settings and the seed alone."""

from __future__ import annotations

import statistics
from itertools import islice
from random import Random

import pytest

from loadtest import arrivals

S = 1_000_000_000


def gaps_of(due_ns, count):
    due_ns = list(islice(due_ns, count))
    return [(b - a) / S for a, b in zip([0, *due_ns], due_ns, strict=False)]


def test_staggered_streams_start_evenly_over_the_ramp():
    assert list(arrivals.staggered(4, 2.0)) == [0, S // 2, S, 3 * S // 2]


def test_a_ramp_of_no_time_starts_all_at_once():
    assert list(arrivals.staggered(3, 0.0)) == [0, 0, 0]


def test_constant_arrivals_do_not_add_up_rounding():
    due = list(islice(arrivals.constant(3.0), 3_000_001))

    assert due[:4] == [0, 333_333_333, 666_666_666, S]
    assert due[3_000_000] == 1_000_000 * S


def test_poisson_gaps_have_the_mean_and_the_spread_of_an_exponential():
    gaps_s = gaps_of(arrivals.poisson(50.0, Random(7)), 20_000)
    mean = statistics.fmean(gaps_s)

    assert mean == pytest.approx(0.02, rel=0.03)
    assert statistics.pstdev(gaps_s) / mean == pytest.approx(1.0, rel=0.03)
    assert min(gaps_s) >= 0


def test_poisson_arrivals_follow_from_the_seed():
    first, again, other = (list(islice(arrivals.poisson(5.0, Random(seed)), 50)) for seed in (1, 1, 2))

    assert first == again
    assert first != other


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0, 100.0])
def test_gamma_gaps_have_the_mean_and_the_spread_of_their_burstiness(burstiness):
    gaps_s = gaps_of(arrivals.gamma(50.0, burstiness, Random(7)), 40_000)
    mean = statistics.fmean(gaps_s)

    assert mean == pytest.approx(0.02, rel=0.03)
    assert statistics.pstdev(gaps_s) / mean == pytest.approx(burstiness**-0.5, rel=0.04)


def test_gamma_arrivals_follow_from_the_seed_and_ascend():
    first, again, other = (list(islice(arrivals.gamma(5.0, 0.2, Random(seed)), 500)) for seed in (1, 1, 2))

    assert first == again == sorted(first)
    assert first != other


@pytest.mark.parametrize(
    ("rates", "duration_s", "count"),
    [((0, 10), 20, 100), ((10, 0), 20, 100), ((5, 15), 10, 100), ((7, 7), 10, 70), ((0, 1), 3, 2), ((0.1, 0.1), 5, 1)],
)
def test_a_ramp_has_the_exact_count_and_each_request_when_the_rate_says(rates, duration_s, count):
    due_s = [due / S for due in arrivals.ramp(*rates, duration_s)]
    slope = (rates[1] - rates[0]) / duration_s

    assert len(due_s) == count
    assert due_s[0] == 0
    assert due_s == sorted(due_s)
    assert all(due < duration_s for due in due_s)
    assert [rates[0] * t + slope * t * t / 2 for t in due_s] == pytest.approx(list(range(count)), abs=1e-6)


def test_a_long_ramp_does_not_drift():
    due = list(arrivals.ramp(100, 1900, 1000))

    assert len(due) == 1_000_000
    assert [due[n] / S for n in (1, 999_999)] == pytest.approx([0.01, 1000 - 1 / 1900], abs=1e-4)


def test_each_step_starts_afresh_and_rate_0_is_silence():
    assert list(arrivals.steps([2, 0, 3], 1.0)) == [0, S // 2, 2 * S, 2 * S + S // 3, 2 * S + 2 * S // 3]
    assert list(arrivals.steps([0.4, 1], 2.0)) == [0, 2 * S, 3 * S]
    assert sum(1 for _ in arrivals.steps([0.1] * 10, 10.0)) == 10


def test_bursts_come_once_or_again_without_end():
    assert list(arrivals.bursts(3, 0.0)) == [0, 0, 0]
    assert list(islice(arrivals.bursts(2, 1.5), 5)) == [0, 0, 3 * S // 2, 3 * S // 2, 3 * S]


def test_closed_arrivals_are_all_due_at_once():
    assert list(islice(arrivals.closed(), 3)) == [0, 0, 0]


@pytest.mark.parametrize(
    ("duration_s", "limit", "due"),
    [(0.0, 3, [0, S, 2 * S]), (2.0, 0, [0, S]), (2.5, 0, [0, S, 2 * S]), (10.0, 2, [0, S]), (1.0, 5, [0])],
)
def test_duration_and_limit_cap_an_endless_schedule(duration_s, limit, due):
    assert list(arrivals.capped(arrivals.constant(1.0), duration_s, limit)) == due


def test_a_capped_schedule_is_made_as_it_is_asked_for():
    endless = arrivals.capped(arrivals.closed(), 5.0, 0)

    assert [next(endless) for _ in range(3)] == [0, 0, 0]


def test_without_a_cap_all_are_kept():
    assert list(arrivals.capped([0, S, 9 * S], 0.0, 0)) == [0, S, 9 * S]
