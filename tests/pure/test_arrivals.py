"""Arrivals are known beforehand: offsets in ns, ascending, from the settings and the seed alone."""

from __future__ import annotations

from itertools import islice
from random import Random

import pytest

from loadtest import arrivals

S = 1_000_000_000


def test_staggered_streams_start_evenly_over_the_ramp():
    assert list(arrivals.staggered(4, 2.0)) == [0, S // 2, S, 3 * S // 2]


def test_a_ramp_of_no_time_starts_all_at_once():
    assert list(arrivals.staggered(3, 0.0)) == [0, 0, 0]


def test_constant_arrivals_do_not_add_up_rounding():
    due = list(islice(arrivals.constant(3.0), 3_000_001))

    assert due[:4] == [0, 333_333_333, 666_666_666, S]
    assert due[3_000_000] == 1_000_000 * S


def test_poisson_gaps_have_the_mean_and_the_spread_of_an_exponential():
    due = list(islice(arrivals.poisson(50.0, Random(7)), 20_000))
    gaps_s = [(b - a) / S for a, b in zip([0, *due], due, strict=False)]
    mean = sum(gaps_s) / len(gaps_s)
    variance = sum((gap - mean) ** 2 for gap in gaps_s) / len(gaps_s)

    assert mean == pytest.approx(0.02, rel=0.03)
    assert variance**0.5 / mean == pytest.approx(1.0, rel=0.03)
    assert due == sorted(due)


def test_poisson_arrivals_follow_from_the_seed():
    first, again, other = (list(islice(arrivals.poisson(5.0, Random(seed)), 50)) for seed in (1, 1, 2))

    assert first == again
    assert first != other


@pytest.mark.parametrize(("speed", "due"), [(1.0, [0, 4 * S, 5 * S]), (2.0, [0, 2 * S, 5 * S // 2])])
def test_a_replay_counts_from_its_first_row_and_scales(speed, due):
    assert list(arrivals.replay([100 * S, 104 * S, 105 * S], speed)) == due


@pytest.mark.parametrize(
    ("duration_s", "limit", "due"),
    [(0.0, 3, [0, S, 2 * S]), (2.0, 0, [0, S]), (2.5, 0, [0, S, 2 * S]), (10.0, 2, [0, S]), (1.0, 5, [0])],
)
def test_duration_and_limit_cap_an_endless_schedule(duration_s, limit, due):
    assert arrivals.capped(arrivals.constant(1.0), duration_s, limit) == due


def test_without_a_cap_all_are_kept():
    assert arrivals.capped([0, S, 9 * S], 0.0, 0) == [0, S, 9 * S]
