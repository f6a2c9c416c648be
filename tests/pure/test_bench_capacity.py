"""The climb to the highest rate of a core: what holds a step, who gave out first, where it starts and ends."""

from __future__ import annotations

import pytest

from bench.capacity import LADDER_TOK_S, climb, judge_step, start_of
from tests.bench_results import cell


def step(relay=0.5, others=0.5, **more):
    made = cell({"gen": 1.0, "relay": 1.0}, **more)
    made["processes"]["relay"]["cpu_share"] = relay
    made["processes"]["gen"]["cpu_share"] = others
    return made


@pytest.mark.parametrize(
    ("made", "state", "why"),
    [
        (step(), "held", ""),
        (step(relay=0.99, others=0.99), "held", ""),
        (step(transit_s=None), "held", ""),
        (step(0.93, transit_s=None), "relay", "latency is not known; the relay's core is 93% busy"),
        (step(transit_s={"p50": 0.0, "p99": 0.0509, "max": 1.0}), "held", ""),
        (
            step(relay=0.97, transit_s={"p50": 0.0, "p99": 0.052, "max": 1.0}),
            "relay",
            "added p99 51 ms; the relay's core is 97% busy",
        ),
        (step(relay=0.98, behind=True), "relay", "15,000 tok/s arrived; the relay's core is 98% busy"),
        (
            step(relay=0.7, others=0.98, delivered_share=0.9),
            "generator",
            "15,000 tok/s arrived; the fakes' core is 98% busy, the relay's 70%",
        ),
        (
            step(relay=0.7, gen_share=0.9, delivered_share=0.9),
            "generator",
            "15,000 tok/s arrived; the fakes' core is 50% busy, the relay's 70%",
        ),
        (step(0.95, 0.98, delivered_share=0.9), "relay", "15,000 tok/s arrived; the relay's core is 95% busy"),
        (step(relay=0.95, lost="3 streams: cut"), "relay", "3 streams: cut; the relay's core is 95% busy"),
        ({"problem": "only 900 of 1000 streams were open"}, "relay", "only 900 of 1000 streams were open"),
    ],
)  # fmt: skip
def test_a_step_is_held_or_says_who_gave_out(made, state, why):
    assert judge_step(made, direct_p99_s=0.001) == (state, why)


async def climbed(first, limit, *, generator=False):
    tried = []

    async def measure(rate):
        tried.append(rate)
        if rate <= limit:
            return step()
        return step(relay=0.7 if generator else 0.99, others=0.99, behind=True)

    return await climb((10, 20, 30, 40), first, measure, 0.0), tried


async def test_a_climb_goes_up_to_the_first_step_that_is_not_held():
    result, tried = await climbed(1, 30)

    assert tried == [20, 30, 40]
    assert (result["highest_tok_s"], result["bound"]) == (30, "relay")
    assert [one["state"] for one in result["steps"]] == ["held", "held", "relay"]


async def test_a_climb_that_starts_too_high_goes_down_to_the_first_that_is():
    result, tried = await climbed(3, 20)

    assert tried == [40, 30, 20]
    assert (result["highest_tok_s"], result["bound"]) == (20, "relay")


async def test_a_climb_says_when_the_generator_or_the_ladder_ended_it():
    by_generator, _ = await climbed(0, 20, generator=True)
    by_ladder, _ = await climbed(0, 100)

    assert (by_generator["highest_tok_s"], by_generator["bound"]) == (20, "generator")
    assert (by_ladder["highest_tok_s"], by_ladder["bound"]) == (40, "ladder")


async def test_a_climb_that_holds_nothing_says_so():
    result, tried = await climbed(1, 0)

    assert tried == [20, 10]
    assert (result["highest_tok_s"], result["bound"]) == (None, "relay")


def test_a_climb_starts_where_the_cost_allows():
    assert LADDER_TOK_S[start_of(LADDER_TOK_S, 35.0)] == 20_000
    assert LADDER_TOK_S[start_of(LADDER_TOK_S, 20.0)] == 35_000
    assert start_of(LADDER_TOK_S, 10_000.0) == 0
    assert start_of((800,), None) == 0
