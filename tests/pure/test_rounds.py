"""Every arm stands in every place equally often, and a round counts as a whole or not at all."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.experiment.blocks import Block, IncompleteBlockError
from loadtest.experiment.rounds import (
    Arm,
    JudgedRounds,
    RoundRules,
    arms_with_control,
    block_schedule,
    judge_rounds,
)
from tests.synthetic_run import BLOCK_S, RATE, SETTLE_S, compare_run

ARMS = ["filter-off", "filter-on", "filter-off:again"]
RULES = RoundRules(measured_s=BLOCK_S - SETTLE_S, asked_chunks_per_s=RATE)


def judged(blocks: list[dict[str, Any]], planned: int = 4, rules: RoundRules = RULES) -> JudgedRounds:
    return judge_rounds(blocks, ARMS, planned, rules)


@pytest.fixture
def blocks() -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = compare_run(rounds=4)["blocks.jsonl"]
    return lines


def of(blocks: list[dict[str, Any]], number: int, arm: str) -> dict[str, Any]:
    return next(block for block in blocks if (block["round"], block["arm"]) == (number, arm))


@given(arms=st.integers(1, 6), cycles=st.integers(1, 4), seed=st.integers(0, 2**32))
def test_over_a_cycle_every_arm_stands_in_every_place_once(arms: int, cycles: int, seed: int) -> None:
    named = [Arm(f"arm{i}", "parse") for i in range(arms)]

    blocks = block_schedule(named, arms * cycles, 1, np.random.default_rng(seed))

    for cycle in range(cycles):
        rounds = range(cycle * arms, (cycle + 1) * arms)
        places = Counter((block.arm, block.slot) for block in blocks if block.round in rounds)
        assert places == Counter({(arm.name, slot): 1 for arm in named for slot in range(arms)})


def test_orders_are_drawn_anew_by_seed() -> None:
    arms = arms_with_control(["a", "b", "c"])

    first, again, other = (block_schedule(arms, 12, 1, np.random.default_rng(seed)) for seed in (1, 1, 2))

    assert first == again
    assert first != other


def test_a_round_that_cycles_do_not_fill_is_still_whole() -> None:
    blocks = block_schedule(arms_with_control(["a", "b"]), 5, 7, np.random.default_rng(1))

    assert [(block.round, block.slot) for block in blocks] == [(r, s) for r in range(5) for s in range(3)]
    assert {block.length_ns for block in blocks} == {7}


def test_the_first_policy_runs_twice_as_control() -> None:
    assert arms_with_control(["filter-off", "filter-on"]) == [
        Arm("filter-off", "filter-off"),
        Arm("filter-on", "filter-on"),
        Arm("filter-off:again", "filter-off"),
    ]


@pytest.mark.parametrize(("policies", "message"), [([], "no policy"), (["a", "b", "a"], "named twice")])
def test_a_list_of_policies_that_cannot_be_compared_is_refused(policies: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        arms_with_control(policies)


def test_rounds_without_fault_all_count(blocks: list[dict[str, Any]]) -> None:
    result = judged(blocks)

    assert [round_["filter-on"].round for round_ in result.used] == [0, 1, 2, 3]
    assert result.void == {}
    assert result.void_by_arm == {arm: {} for arm in ARMS}


@pytest.mark.parametrize(("share", "counts"), [(0.971, True), (0.969, False), (1.029, True), (1.031, False)], ids=str)
def test_a_rate_off_by_more_than_3_percent_voids_the_whole_round(
    blocks: list[dict[str, Any]], share: float, counts: bool
) -> None:
    bad = of(blocks, 2, "filter-on")
    bad["chunks"] = round(bad["chunks"] * share)

    result = judged(blocks)

    assert (2 not in result.void_rounds) is counts
    assert len(result.used) == (4 if counts else 3)
    assert result.void_by_arm["filter-on"] == ({} if counts else {"missed_rate": 1})


def test_without_an_asked_rate_no_rate_is_missed(blocks: list[dict[str, Any]]) -> None:
    of(blocks, 2, "filter-on")["chunks"] //= 2

    assert len(judged(blocks, rules=RoundRules(measured_s=0.6, asked_chunks_per_s=None)).used) == 4


def test_in_lockstep_a_block_may_hold_one_step_more_or_fewer(blocks: list[dict[str, Any]]) -> None:
    """At 65 ms a step, 0.6 s hold 9 steps or 10: 8 % apart, with the rate kept."""
    of(blocks, 2, "filter-on")["chunks"] = 9 * 1000
    rules = RoundRules(measured_s=0.6, asked_chunks_per_s=RATE, step_s=0.065)

    assert len(judged(blocks, rules=rules).used) == 4
    of(blocks, 2, "filter-on")["chunks"] = 7 * 1000
    assert len(judged(blocks, rules=rules).used) == 3


def test_faults_are_counted_by_round_and_by_arm(blocks: list[dict[str, Any]]) -> None:
    blocks.remove(of(blocks, 0, "filter-off"))
    of(blocks, 1, "filter-on")["wall_ns"] = int(0.3e9)
    of(blocks, 1, "filter-off")["chunks"] //= 2
    del of(blocks, 3, "filter-off:again")["cpu_ns"]

    result = judged(blocks, planned=6)

    assert [next(iter(round_.values())).round for round_ in result.used] == [2]
    assert result.void == {"missing": 1, "incomplete": 2, "not_run": 2}
    assert result.void_rounds == {0: "missing", 1: "incomplete", 3: "incomplete"}
    assert result.void_by_arm == {
        "filter-off": {"missing": 1, "missed_rate": 1},
        "filter-on": {"incomplete": 1},
        "filter-off:again": {"incomplete": 1},
    }
    assert result.planned == len(result.used) + sum(result.void.values())


def test_a_block_s_figures_follow_from_its_ledger(blocks: list[dict[str, Any]]) -> None:
    record = {
        **blocks[0],
        "cpu_ns": 400_000_000,
        "chunks": 8_000,
        "events": 8_400,
        "reads": 8_000,
        "wall_ns": 500_000_000,
    }

    block = Block.from_record(record)

    assert block.cpu_us_per_chunk == 50.0
    assert block.chunks_per_s == 16_000.0
    assert block.events_per_read == 1.05


@pytest.mark.parametrize("name", ["wall_ns", "chunks", "reads"])
def test_a_block_in_which_nothing_happened_is_incomplete(blocks: list[dict[str, Any]], name: str) -> None:
    with pytest.raises(IncompleteBlockError):
        Block.from_record({**blocks[0], name: 0})
