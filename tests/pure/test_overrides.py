"""Options that override a scenario: which keys they set, and which scenarios have no use for them."""

from __future__ import annotations

import pytest

from loadtest.experiment.options import parser
from loadtest.experiment.overrides import (
    check_run_ends,
    check_shared_cap,
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
        (["compare", "--rate", "1e9"], "^--rate: gen.tok_s: "),
        (["run", "steady", "--trace", "f", "--request-rate", "5"], "--request-rate: contradicts --trace"),
        (["run", "steady", "--trace", "f", "--burstiness", "2"], "--burstiness: contradicts --trace"),
        (["run", "steady", "--trace", "f", "--arrivals", "poisson"], "--arrivals: contradicts --trace"),
        (
            ["run", "steady", "--arrivals", "constant", "--burstiness", "2"],
            "--burstiness: contradicts --arrivals const",
        ),
        (["run", "steady", "--arrivals", "closed", "--request-rate", "2"], "--request-rate: contradicts --arrivals cl"),
        (["run", "steady", "--arrivals", "ramp", "--request-rate", "2"], "--request-rate: contradicts --arrivals ramp"),
        (["run", "steady", "--arrivals", "closed"], "--arrivals: closed ones need --max-concurrency"),
        (["run", "smoke", "--burstiness", "2"], "--burstiness: smoke has staggered arrivals; it is for constant, "),
        (["run", "smoke", "--arrivals", "trace"], "load.trace: arrivals are 'trace', but no file is given"),
        (["run", "smoke", "--speed", "2"], "--speed: smoke reads no recording; give --trace"),
        (["run", "smoke", "--skip-bad-rows"], "--skip-bad-rows: smoke reads no recording; give --trace"),
        (["run", "smoke", "--trace", "/no/such.csv"], "--trace: load.trace: /no/such.csv: cannot read"),
        (["run", "smoke", "--goodput", "tpot:5", "itl:6"], "--goodput: itl is given twice"),
        (["run", "steady", "--arrivals", "bursts", "--rate", "5"], "--rate: bursts arrivals have none"),
        (["run", "steady", "--burstiness", "1e9"], "^--burstiness: load.burstiness: 1000000000.0 is out of range"),
        (["run", "steady", "--set", "streams=0", "--seed", "3"], "^--seed or --set: load.streams: 0 is out of range"),
    ],
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


def test_every_worker_of_the_load_needs_a_slot_of_the_cap() -> None:
    capped = scenario("run", "steady", "--max-concurrency", "2").load

    with pytest.raises(SettingError, match=r"--workers: max_concurrency is 2.*allowed: 1 to 2"):
        check_shared_cap(capped, 3)
    check_shared_cap(capped, 2)
    check_shared_cap(scenario("run", "steady").load, 3)


def test_a_slip_of_the_finger_does_not_start_hundreds_of_workers(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["run", "steady", "--workers", "300"])

    assert "'300' is not a whole number from 1 to 64" in capsys.readouterr().err


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


@pytest.mark.parametrize("name", ["poisson", "constant"])
def test_burstiness_makes_gamma_of_arrivals_with_a_rate(name: str) -> None:
    made = scenario("run", "steady", "--set", f"arrivals={name}", "--burstiness", "0.25", "--request-rate", "8")

    assert (made.load.arrivals, made.load.burstiness, made.load.request_rate) == ("gamma", 0.25, 8.0)


def test_arrivals_by_option_take_the_scenarios_own_keys_with_them(tmp_path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('[load]\narrivals = "ramp"\nrequest_rate = 5\nend_request_rate = 9\nduration_s = 4\n')

    assert scenario("run", str(path), "--arrivals", "poisson").load.end_request_rate == 0
    steps = scenario("run", str(path), "--arrivals", "steps", "--set", "step_rates=1,2", "--set", "step_s=3").load
    assert (steps.arrivals, steps.rates_of_steps(), steps.end_s) == ("steps", [1.0, 2.0], 4.0)
    closed = scenario("run", str(path), "--arrivals", "closed", "--max-concurrency", "7").load
    assert (closed.arrivals, closed.max_concurrency, closed.duration_s) == ("closed", 7, 4.0)


TRACE = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.5,7,5\n2023-11-16 18:15:56.5,7,15\n"


def test_a_trace_by_option_replaces_any_arrivals(tmp_path) -> None:
    recording = tmp_path / "t.csv"
    recording.write_text(TRACE + "x,1,1\n")
    path = tmp_path / "mine.toml"
    path.write_text('[load]\narrivals = "gamma"\nburstiness = 2\nrequest_rate = 5\nduration_s = 4\n')
    words = ["run", str(path), "--trace", str(recording), "--speed", "2", "--skip-bad-rows", "--arrivals", "trace"]
    load = scenario(*words).load

    assert (load.arrivals, load.trace, load.speed, load.skip_bad_rows) == ("trace", str(recording), 2.0, True)
    with pytest.raises(SettingError, match=r"--trace or --speed: load.trace: .*t\.csv:4: TIMESTAMP 'x'"):
        scenario(*(word for word in words if word != "--skip-bad-rows"))
    with pytest.raises(SettingError, match="--rate: a trace has its own; --speed replays it faster or slower"):
        scenario(*words, "--rate", "9")


def test_arrivals_by_option_do_not_overrule_a_recording_that_was_set(tmp_path) -> None:
    recording = tmp_path / "t.csv"
    recording.write_text(TRACE)
    path = tmp_path / "mine.toml"
    path.write_text('[load]\ntrace = "t.csv"\nrequest_rate = 5\n')

    assert scenario("run", str(path), "--arrivals", "poisson", "--duration", "5").load.trace == ""
    with pytest.raises(SettingError, match=r"--arrivals: contradicts load.trace, .*t\.csv"):
        scenario("run", str(path), "--arrivals", "poisson", "--duration", "5", "--set", f"trace={recording}")


def test_goodput_is_given_as_other_generators_take_it() -> None:
    load = scenario("run", "smoke", "--goodput", "ttft:500", "tpot:50", "e2e:5000.5").load

    assert (load.goodput_ttft_ms, load.goodput_itl_ms, load.goodput_e2e_ms) == (500.0, 50.0, 5000.5)


@pytest.mark.parametrize("words", ["ttft", "ttft:", "ttft:0", "ttft:x", "tps:5"])
def test_a_goodput_that_is_no_limit_is_a_usage_error(words: str, capsys) -> None:
    with pytest.raises(SystemExit, match="2"):
        parser().parse_args(["run", "smoke", "--goodput", words])
    assert "--goodput" in capsys.readouterr().err


def test_a_compare_may_have_other_arrivals_which_last_as_long_as_its_blocks() -> None:
    made = scenario("compare", "--arrivals", "gamma", "--request-rate", "20", "--set", "output_tokens=200")

    assert (made.load.arrivals, made.load.burstiness) == ("gamma", 1.0)
    assert lasting(made, 99.0).load.duration_s == 99.0


@pytest.mark.parametrize(
    ("overrides", "seconds"),
    [
        (["arrivals=closed", "max_concurrency=5"], 99.0),
        (["arrivals=bursts", "burst_every_s=2"], 99.0),
        (["arrivals=bursts"], 30.0),
        (["arrivals=ramp", "end_request_rate=5"], 30.0),
    ],
)
def test_arrivals_without_an_end_last_as_long_as_they_are_needed(overrides: list[str], seconds: float) -> None:
    assert lasting(load_scenario("steady", overrides), 99.0).load.duration_s == seconds


@pytest.mark.parametrize(
    ("overrides", "tokens"),
    [
        ([], 200),
        (["lengths=range", "output_tokens_max=400", "prompt_tokens_max=999"], 300),
        (["lengths=azure-conv"], 211),
    ],
)
def test_a_token_rate_is_shared_by_the_mean_length_of_replies(overrides: list[str], tokens: float) -> None:
    words = [word for override in overrides for word in ("--set", override)]

    assert scenario("run", "steady", "--rate", "4000", *words).load.request_rate == pytest.approx(4000 / tokens)


def test_a_token_rate_is_shared_by_the_mean_length_of_a_files_replies(tmp_path) -> None:
    recording = tmp_path / "t.csv"
    recording.write_text(TRACE)

    made = scenario("run", "steady", "--rate", "40", "--set", "lengths=file", "--set", f"lengths_file={recording}")
    assert made.load.request_rate == 4.0  # replies of 5 and 15 tokens
    assert settled_after_s(scenario("run", "steady", "--trace", str(recording))) == pytest.approx(10 / 25)
