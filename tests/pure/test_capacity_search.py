"""The search for a limit: up, confirmed, halved, down from the start, and ended by whoever gives out."""

from __future__ import annotations

import numpy as np
import pytest

from loadtest.experiment.capacity_search import REPEAT_OFFSETS, RESOLUTION, LimitSearch, repeat_order, repeat_rate
from loadtest.experiment.capacity_slo import FAIL, PASS, UNATTRIBUTABLE


def run(judge, start=1000, top=100_000):
    """(rate, phase, outcome) of every probe, and the search at its end."""
    search, seen = LimitSearch(start, top), []
    while (rate := search.next_rate()) is not None:
        phase = search.phase
        state = judge(rate, len(seen))
        seen.append((round(rate), phase, state))
        search.record(state)
        assert len(seen) < 60
    return seen, search


def test_up_to_the_first_confirmed_failure_then_halving_the_gap():
    seen, search = run(lambda rate, _: PASS if rate <= 3000 else FAIL)

    assert seen[:5] == [
        (1000, "ramp", PASS),
        (1600, "ramp", PASS),
        (2560, "ramp", PASS),
        (4096, "ramp", FAIL),
        (4096, "confirm", FAIL),
    ]
    assert {phase for _, phase, _ in seen[5:]} == {"bisect"}
    assert search.low <= 3000 < search.high
    assert search.high / search.low <= RESOLUTION
    assert search.high_state == FAIL
    assert len(seen) == 5 + 4  # 1.6 over 2, four times halved in the logarithm, is 1.03


def test_a_single_failure_on_the_way_up_is_a_hiccup_if_two_of_three_hold():
    outcomes = [PASS, FAIL, PASS, PASS, FAIL, FAIL]
    seen, _ = run(lambda rate, n: outcomes[n] if n < len(outcomes) else PASS)

    assert [rate for rate, _, _ in seen[:6]] == [1000, 1600, 1600, 1600, 2560, 2560]


def test_a_start_that_fails_sends_the_search_down():
    seen, search = run(lambda rate, _: PASS if rate <= 300 else FAIL)

    assert [rate for rate, _, _ in seen[:7]] == [1000, 1000, 625, 625, 391, 391, 244]
    assert search.low <= 300 < search.high


def test_what_holds_nowhere_ends_the_search_at_a_fortieth_of_the_start():
    seen, search = run(lambda *_: FAIL)

    assert search.low is None
    assert seen[-1][0] == 37  # 1000 / 1.6^7; one step more would be below 25
    assert len(seen) == 16


def test_what_holds_everywhere_ends_the_search_at_the_top():
    seen, search = run(lambda *_: PASS, top=2000)

    assert [rate for rate, _, _ in seen] == [1000, 1600, 2000]
    assert (search.low, search.high) == (2000, None)


def test_a_generator_that_gives_out_bounds_the_search_from_above():
    seen, search = run(lambda rate, _: PASS if rate <= 2000 else UNATTRIBUTABLE)

    assert search.high_state == UNATTRIBUTABLE
    assert search.low <= 2000 < search.high
    bisected = [rate for rate, phase, state in seen if phase == "bisect" and state == UNATTRIBUTABLE]
    assert all(bisected.count(rate) == 2 for rate in bisected)  # asked again before it is believed


@pytest.mark.parametrize("outcomes", [(FAIL, PASS, UNATTRIBUTABLE), (UNATTRIBUTABLE, FAIL, PASS)])
def test_three_outcomes_that_all_differ_are_no_pass(outcomes):
    search = LimitSearch(1000, 2000)
    for state in outcomes:
        assert search.next_rate() == 1000
        search.record(state)

    assert search.high == 1000


def test_a_round_has_every_policy_at_every_offset_side_by_side_and_each_is_first_equally_often():
    policies = ["a", "b", "c", "d"]
    rng = np.random.default_rng(1)
    firsts = []
    for round_ in range(6):
        order = repeat_order(policies, round_, rng)
        groups = [order[i : i + 4] for i in range(0, len(order), 4)]
        assert sorted(offset for ((offset, _), *_) in groups) == list(range(len(REPEAT_OFFSETS)))
        for group in groups:
            assert len({offset for offset, _ in group}) == 1
            assert {policy for _, policy in group} == set(policies)
            firsts.append(group[0][1])

    assert {policy: firsts.count(policy) for policy in policies} == dict.fromkeys(policies, 6)


def test_the_order_of_rounds_follows_the_seed():
    orders = [repeat_order(["a", "b"], 0, np.random.default_rng(seed)) for seed in (1, 1, 2, 3, 4)]

    assert orders[0] == orders[1]
    assert any(order != orders[0] for order in orders[2:])


def test_repeats_lie_on_both_sides_of_the_estimate():
    rates = [repeat_rate(10_000, offset) for offset in range(len(REPEAT_OFFSETS))]

    assert [round(rate) for rate in rates] == [9139, 9704, 10305, 10942]
