"""Options that override a scenario: which keys they set, and which scenarios have no use for them."""

from __future__ import annotations

import pytest

from loadtest.experiment.options import parser
from loadtest.experiment.overrides import (
    check_run_ends,
    check_streams_outlive,
    drained_after_s,
    lasting,
    scenario_from,
    settled_after_s,
)
from loadtest.experiment.warmup import asked_chunks_per_s, held
from loadtest.scenario import Scenario, load_scenario
from sim.core.settings import SettingError


def scenario(*words: str) -> Scenario:
    return scenario_from(parser().parse_args(words))


def test_rate_is_shared_out_over_standing_streams() -> None:
    made = scenario("compare", "--rate", "6000", "--streams", "300")

    assert (made.gen.tok_s, made.load.streams) == (20.0, 300)
    assert asked_chunks_per_s(made) == pytest.approx(6000)


def test_rate_is_replies_times_their_length_where_streams_come_and_go() -> None:
    made = scenario("run", "steady", "--rate", "8000")

    assert (made.load.request_rate, made.gen.tok_s) == (40.0, 25.0)  # replies of 200 tokens
    assert asked_chunks_per_s(made) is None


def test_seed_and_duration_reach_every_table() -> None:
    made = scenario("run", "steady", "--seed", "7", "--duration", "12.5")

    assert (made.ctx.seed, made.gen.seed, made.load.seed, made.load.duration_s) == (7, 7, 7, 12.5)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["run", "steady", "--streams", "5"], "--streams"),
        (["compare", "--request-rate", "5"], "--request-rate"),
        (["run", "steady", "--rate", "100", "--request-rate", "5"], "--rate"),
        (["compare", "--rate", "1e9"], "--rate"),
    ],
    ids=["streams of poisson", "request rate of standing streams", "two rates", "a rate out of range"],
)
def test_an_option_that_does_not_apply_is_refused_by_name(words: list[str], named: str) -> None:
    with pytest.raises(SettingError, match=named):
        scenario(*words)


def test_streams_that_end_before_the_blocks_are_refused() -> None:
    with pytest.raises(SettingError, match="output_tokens"):
        check_streams_outlive(load_scenario("smoke"), 88.0)
    check_streams_outlive(load_scenario("seed"), 88.0)


def test_a_run_of_hours_must_be_asked_for() -> None:
    with pytest.raises(SettingError, match=r"--duration: the streams of seed last 18\.0 h"):
        check_run_ends(load_scenario("seed"))
    check_run_ends(load_scenario("seed", ["duration_s=60"]))
    check_run_ends(load_scenario("smoke"))


def test_churn_goes_on_past_the_last_block_and_settles_after_one_stream() -> None:
    steady = load_scenario("steady")

    assert settled_after_s(steady) == 8.0  # 200 tokens at 25 tok/s
    assert lasting(steady, 99.0).load.duration_s == 99.0
    assert lasting(load_scenario("seed"), 99.0).load == load_scenario("seed").load


@pytest.mark.parametrize(
    ("rate_share", "events_per_read", "events_per_write", "expected"),
    [(1.0, 1.0, 1, True), (0.97, 1.15, 1, True), (0.96, 1.0, 1, False), (1.0, 1.2, 1, False), (1.0, 4.2, 4, True)],
)
def test_a_load_is_held_when_its_rate_came_and_reads_did_not_merge(
    rate_share: float, events_per_read: float, events_per_write: int, expected: bool
) -> None:
    assert held(rate_share, events_per_read, events_per_write) is expected


@pytest.mark.parametrize(
    ("words", "ends_s", "drained_s"),
    [
        (["smoke"], None, None),
        (["seed", "--duration", "20"], 28.0, 28.0),
        (["steady", "--duration", "20"], 20.0, 45.0),
        (["ramp-to-limit", "--duration", "20"], 20.0, 45.0),
        (["ramp-to-limit", "--duration", "20", "--set", "stop_timeout_s=2"], 20.0, 20.0),
        (["burst-start"], None, None),
        (["burst-start", "--duration", "20"], 20.0, 45.0),
        (["soak"], 14_400.0, 14_425.0),
    ],
)
def test_when_a_run_ends_and_when_what_is_live_is_drained(
    words: list[str], ends_s: float | None, drained_s: float | None
) -> None:
    load = scenario("run", *words).load

    assert (load.end_s, drained_after_s(load)) == (ends_s, drained_s)


def test_steps_share_the_duration() -> None:
    stepped = ["--set", "arrivals=steps", "--set", "step_rates=10,20,40,20", "--set", "request_rate=0"]
    load = scenario("run", "steady", *stepped, "--duration", "20").load

    assert (load.step_s, load.end_s) == (5.0, 20.0)
    assert scenario("run", "steady", *stepped).load.step_s == 10.0
