"""A result says what the run directory holds: known numbers in, the same numbers out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loadtest.experiment.client_figures import (
    distribution,
    held_back_s,
    histogram_json,
    latencies_s,
    send_lateness_s,
)
from loadtest.experiment.result import analyze
from loadtest.experiment.starts import across_starts
from tests.synthetic_run import (
    BLOCK_S,
    RATE,
    SETTLE_S,
    STREAMS,
    Files,
    compare_run,
    equality,
    histogram,
    load_run,
    write,
)
from tests.system.result_shape import assert_compare_shape


def folded(tmp_path: Path, files: Files) -> dict[str, Any]:
    return analyze(write(files, tmp_path / "run"))


def codes(result: dict[str, Any]) -> set[str]:
    return {reason["code"] for reason in result["verdict"]["reasons"]}


def test_a_compare_has_the_contract_s_shape_and_the_costs_that_went_in(tmp_path: Path) -> None:
    result = folded(tmp_path, compare_run())

    assert_compare_shape(result)
    assert result["verdict"] == {"state": "valid", "reasons": []}
    low, high = result["differences"][0]["cpu_us_per_chunk"]["ci95"]
    assert low < 5.0 < high
    assert result["differences"][0]["significant"] is True
    assert result["control"]["significant"] is False
    assert result["rounds"] == {
        "planned": 30,
        "used": 30,
        "void": {},
        "void_by_arm": {"filter-off": {}, "filter-on": {}, "filter-off:again": {}},
    }


def test_without_noise_costs_come_out_to_the_digit(tmp_path: Path) -> None:
    files = compare_run(("filter-off", "filter-on", "parse-orjson"), rounds=8, noise=0.0)
    for block in files["blocks.jsonl"]:
        cost_us = {"filter-off": 45.0, "filter-on": 40.0, "parse-orjson": 42.0}[block["policy"]]
        block["cpu_ns"] = cost_us * 1000 * block["chunks"]

    result = folded(tmp_path, files)

    assert [(d["a"], d["b"]) for d in result["differences"]] == [
        ("filter-off", "filter-on"),
        ("filter-off", "parse-orjson"),
        ("filter-on", "parse-orjson"),
    ]
    assert [d["cpu_us_per_chunk"]["estimate"] for d in result["differences"]] == pytest.approx([5.0, 3.0, -2.0])
    assert result["control"]["cpu_us_per_chunk"]["estimate"] == pytest.approx(0.0)
    arm = result["arms"]["filter-on"]
    assert arm["cpu_us_per_chunk"] == {
        "mean": pytest.approx(40.0),
        "ci95": pytest.approx([40.0, 40.0]),
        "by_round": [40.0] * 8,
    }
    assert arm["core_share_at_rate"] == pytest.approx(40.0 * 15_400 / 1e6)
    assert result["differences"][0]["core_share_at_rate"]["estimate"] == pytest.approx(0.077)
    assert result["differences"][0]["relative"] == pytest.approx(5 / 40)


def test_arms_sum_their_blocks(tmp_path: Path) -> None:
    files = compare_run(rounds=8)
    wall_s = BLOCK_S - SETTLE_S
    chunks = round(RATE * wall_s)
    for block in files["blocks.jsonl"]:
        if block["arm"] == "filter-on":
            block.update({"events": 2 * chunks, "reads": chunks, "run_queue_wait_ns": round(0.01 * wall_s * 1e9)})
            block.update(
                {"lag": histogram([1_000_000] * 99 + [8_000_000]), "lag_kernel": histogram([0] * 99 + [4_000_000])}
            )

    arm = folded(tmp_path, files)["arms"]["filter-on"]

    assert arm["rounds"] == 8
    assert arm["chunks"] == 8 * chunks
    assert arm["events_per_read"] == 2.0
    assert arm["run_queue_wait_share"] == pytest.approx(0.01)
    assert arm["chunks_per_s"] == pytest.approx(RATE)
    assert arm["loop_lag_s"]["p50"] == pytest.approx(0.001, rel=0.016)
    assert arm["loop_lag_s"]["max"] == 0.008
    assert arm["loop_lag_s"]["kernel_share"] == pytest.approx(4 / (99 + 8))
    assert arm["policy_events"] == {"offered": 8 * chunks, "unchanged": 8 * chunks, "changed": 0, "parsed": 0}


def test_folding_twice_gives_the_same_result(tmp_path: Path) -> None:
    path = write(compare_run(), tmp_path / "run")

    first, second = analyze(path), analyze(path)

    assert json.dumps(first) == json.dumps(second)
    assert json.loads(json.dumps(first)) == first


def test_a_void_block_takes_its_round_out_of_every_arm(tmp_path: Path) -> None:
    files = compare_run(rounds=10)
    bad = next(block for block in files["blocks.jsonl"] if block["round"] == 3)
    bad["chunks"] = round(bad["chunks"] * 0.9)

    result = folded(tmp_path, files)

    assert result["rounds"]["used"] == 9
    assert result["rounds"]["void"] == {"missed_rate": 1}
    assert result["rounds"]["void_by_arm"][bad["arm"]] == {"missed_rate": 1}
    assert {arm["rounds"] for arm in result["arms"].values()} == {9}


def test_a_run_that_broke_off_before_any_block_still_has_a_result(tmp_path: Path) -> None:
    files = compare_run()
    manifest = {**files["manifest.json"], "failure": "gen0 was killed by SIGKILL"}

    result = folded(tmp_path, {"manifest.json": manifest})

    assert result["verdict"]["state"] == "void"
    assert result["verdict"]["reasons"][0]["text"].startswith("gen0 was killed by SIGKILL")
    assert result["rounds"] == {
        "planned": 30,
        "used": 0,
        "void": {"not_run": 30},
        "void_by_arm": {"filter-off": {}, "filter-on": {}, "filter-off:again": {}},
    }
    assert result["arms"]["filter-off"]["cpu_us_per_chunk"] is None
    assert result["differences"][0]["cpu_us_per_chunk"] is None
    assert result["client"]["ttft_s"]["n"] == 0
    assert result["client"]["streams"]["started"] == 0
    assert result["reconciliation"]["state"] == "unknown"


def test_a_last_line_cut_short_by_a_dying_process_is_dropped(tmp_path: Path) -> None:
    path = write(compare_run(rounds=8), tmp_path / "run")
    with (path / "blocks.jsonl").open("a") as blocks:
        blocks.write('{"round": 8, "slo')

    assert analyze(path)["rounds"]["used"] == 8


def test_no_speed_is_claimed_for_a_policy_whose_output_differs(tmp_path: Path) -> None:
    files = compare_run(("filter-off", "filter-on", "parse-orjson"))
    gate = files["equality.json"]
    gate["state"] = "differs"
    first = {"case": "escaped key", "event_index": 3, "expected": "a", "got": "b"}
    gate["policies"]["filter-on"].update({"state": "differs", "first_difference": first})

    result = folded(tmp_path, files)

    claims = {(d["a"], d["b"]): d["cpu_us_per_chunk"] is not None for d in result["differences"]}
    assert claims == {
        ("filter-off", "filter-on"): False,
        ("filter-off", "parse-orjson"): True,
        ("filter-on", "parse-orjson"): False,
    }
    assert result["differences"][0]["withheld"] == "the output of filter-on differs from the reference"
    [reason] = result["verdict"]["reasons"]
    assert (reason["code"], reason["state"]) == ("equality_differs", "suspect")
    assert "case escaped key, event 3" in reason["text"]


def test_without_the_gate_every_difference_is_withheld(tmp_path: Path) -> None:
    files = compare_run()
    del files["equality.json"]

    result = folded(tmp_path, files)

    assert result["equality"]["state"] == "not_run"
    assert result["differences"][0]["cpu_us_per_chunk"] is None
    assert "equality_not_run" in codes(result)


def test_a_stall_of_the_load_counts_by_its_length(tmp_path: Path) -> None:
    """Stopped for 8 of 60 s, Locust leaves one sample of 8 s, not eight."""
    files = compare_run()
    health = files["client.json"]["health"]
    stalled = {**health[40], "wall_s": 8.0, "cpu_s": 0.2, "lag_max_s": 7.9}
    files["client.json"]["health"] = [*health[:33], stalled, *health[41:]]

    assert "load_loop_lag" in codes(folded(tmp_path, files))


def test_a_dead_path_is_told_except_of_verbatim_whose_it_is(tmp_path: Path) -> None:
    files = compare_run(("filter-on", "verbatim"), costs_us={"verbatim": 39.0})
    files["equality.json"] = equality(("filter-on", "verbatim"), changed=0)

    result = folded(tmp_path, files)

    assert result["dead_path"] == ["filter-on"]
    [reason] = result["verdict"]["reasons"]
    assert reason["state"] == "note"
    assert "filter-on's rewrite changed 0 events" in reason["text"]


def test_counters_are_held_against_one_another_without_the_gate_s_traffic(tmp_path: Path) -> None:
    result = folded(tmp_path, compare_run())

    assert result["reconciliation"]["state"] == "equal"
    rows = {row["what"]: row for row in result["reconciliation"]["rows"]}
    assert rows["chunks"] == {
        "what": "chunks",
        "gen": 100 * STREAMS,
        "orchestrator": 100 * STREAMS,
        "client": 100 * STREAMS,
        "equal": True,
        "rule": "equal",
        "room": 0,
        "holds": True,
    }
    assert rows["replies"]["orchestrator"] == STREAMS
    assert "orchestrator" not in rows["tokens"]


def test_a_count_that_differs_by_one_is_named_with_every_figure(tmp_path: Path) -> None:
    files = compare_run()
    files["client.json"]["usage_events"] -= 1

    result = folded(tmp_path, files)

    assert result["reconciliation"]["state"] == "differs"
    assert [row["what"] for row in result["reconciliation"]["rows"] if not row["equal"]] == ["usage_events"]
    [reason] = result["verdict"]["reasons"]
    assert reason["text"] == "counters are not equal: usage events (gen 1,000, orchestrator 1,000, client 999)"
    assert reason["state"] == "suspect"


def test_counters_of_several_gen_servers_add_up(tmp_path: Path) -> None:
    files = load_run()
    files["counters.json"]["gen1"] = {"chunks": 7, "streams": {"started": 0}}
    files["counters.json"]["gen0"]["chunks"] -= 7

    assert folded(tmp_path, files)["reconciliation"]["state"] == "equal"


def test_with_a_gate_and_no_counters_from_before_the_load_nothing_is_said(tmp_path: Path) -> None:
    files = compare_run()
    del files["counters_before.json"]

    assert folded(tmp_path, files)["reconciliation"] == {"state": "unknown", "rows": []}


def test_latency_counts_from_the_planned_send_and_the_sent_one_stands_beside_it() -> None:
    stamps = {"planned_ns": 10**9, "sent_ns": 1_200_000_000, "first_token_ns": 1_500_000_000}
    stream = {**stamps, "last_token_ns": 2_500_000_000, "end_ns": 2_600_000_000, "tokens": 11, "outcome": "ok"}

    spans = {key: values.tolist() for key, values in latencies_s([stream, {**stream, "outcome": "cut"}]).items()}

    assert spans == {
        "ttft_s": [0.5],
        "ttft_from_sent_s": [pytest.approx(0.3)],
        "e2e_s": [1.6],
        "e2e_from_sent_s": [pytest.approx(1.4)],
        "tpot_s": [0.1],
    }


def test_a_distribution_is_of_observed_values() -> None:
    found = distribution(np.arange(1.0, 101.0))

    assert found == {"p50": 50.0, "p90": 90.0, "p95": 95.0, "p99": 99.0, "max": 100.0, "mean": 50.5, "n": 100}
    assert distribution(np.empty(0)) == {**dict.fromkeys(("p50", "p90", "p95", "p99", "max", "mean")), "n": 0}
    assert histogram_json(histogram([2_000_000] * 10))["p99"] == pytest.approx(0.002)
    assert histogram_json(None)["n"] == 0


def test_a_load_run_has_its_own_schema_and_the_same_checks(tmp_path: Path) -> None:
    files = load_run()

    result = folded(tmp_path, files)

    assert result["schema"] == "disagg-sim/run/1"
    assert result["verdict"] == {"state": "valid", "reasons": []}
    assert result["client"]["streams"] == {"planned": 400, "started": 400, "ok": 400, "failed": {}, "aborted": 0}
    assert result["client"]["ttft_s"]["n"] == 400
    assert result["client"]["ttft_s"]["mean"] > result["client"]["ttft_from_sent_s"]["mean"]
    assert result["processes"]["gen0"]["cpu_share"] == pytest.approx(0.25, abs=0.01)
    assert result["orchestrator"]["events_per_read"] == 1.0
    assert result["reconciliation"]["state"] == "equal"


def test_only_what_was_measured_counts_for_a_process(tmp_path: Path) -> None:
    """The ramp's CPU and lag are over before the first block."""
    files = compare_run()
    for sample in files["client.json"]["health"][:8]:
        sample.update({"cpu_s": 1.0, "lag_max_s": 0.4, "run_queue_wait_s": 0.9})

    assert folded(tmp_path, files)["verdict"] == {"state": "valid", "reasons": []}


def test_late_sends_of_the_ramp_are_found_where_nothing_is_sent_later(tmp_path: Path) -> None:
    """The seed scenario sends every stream before the first block."""
    files = compare_run()
    for stream in files["streams.jsonl"][:20]:
        stream["sent_ns"] = stream["planned_ns"] + 5_000_000_000

    [reason] = folded(tmp_path, files)["verdict"]["reasons"]

    assert (reason["code"], reason["state"], reason["figure"]) == ("load_lateness", "void", 5.0)
    assert "requests went out 5.00 s after their time at p99" in reason["text"]


def test_late_sends_of_the_ramp_do_not_count_where_others_follow_in_the_blocks(tmp_path: Path) -> None:
    files = compare_run()
    streams = files["streams.jsonl"]
    for stream in streams[:500]:
        stream["sent_ns"] = stream["planned_ns"] + 900_000_000
    for stream in streams[500:]:
        for stamp in ("planned_ns", "sent_ns"):
            stream[stamp] += 12_000_000_000

    assert "load_lateness" not in codes(folded(tmp_path, files))


def test_every_send_of_a_load_run_counts_the_first_one_too(tmp_path: Path) -> None:
    files = load_run()
    for stream in files["streams.jsonl"]:
        stream["sent_ns"] += 5_000_000_000

    assert "load_lateness" in codes(folded(tmp_path, files))


@pytest.mark.parametrize(
    ("process", "key", "value", "code"),
    [
        ("load", "run_queue_wait_s", 0.5, "load_cpu_starvation"),
        ("load", "cpu_s", 0.9, "load_cpu"),
        ("load", "lag_max_s", 0.2, "load_loop_lag"),
        ("gen0", "run_queue_wait_s", 0.5, "gen_cpu_starvation"),
        ("gen0", "cpu_s", 0.9, "gen_cpu"),
        ("ctx0", "throttled_s", 0.1, "ctx_throttled"),
    ],
)
def test_a_process_in_trouble_is_named(tmp_path: Path, process: str, key: str, value: float, code: str) -> None:
    files = compare_run()
    samples = files["client.json"]["health"] if process == "load" else files["samples.json"][process]["samples"]
    for sample in samples:
        sample[key] = value

    assert code in codes(folded(tmp_path, files))


def distributed(lost: int = 0) -> Files:
    """The load run by two workers, the second one's sends all late; with ``lost`` it died."""
    files = load_run()
    client = files["client.json"]
    late = 0
    for stream in files["streams.jsonl"]:
        stream["worker"] = stream["seq"] % 2
        stream["sent_ns"] += 30_000_000 * stream["worker"]
        late += stream["worker"]
    shared = {key: client.pop(key) for key in ("health", "lag", "lag_loop", "lag_kernel") if key in client}
    client["health"] = []
    client["workers"] = [
        {"index": 0, "planned": 200, "lost": 0, "gone": False, **shared},
        {"index": 1, "planned": late + lost, "lost": lost, "gone": lost > 0, **shared},
    ]
    return files


def test_every_worker_of_the_load_is_a_process_with_its_own_lateness(tmp_path: Path) -> None:
    result = folded(tmp_path, distributed())

    assert [name for name in result["processes"] if name.startswith("load")] == ["load0", "load1"]
    assert result["processes"]["load1"]["cpu_share"] > 0
    assert result["processes"]["load0"]["loop_lag_s"] is not None
    (reason,) = [reason for reason in result["verdict"]["reasons"] if reason["code"] == "load_lateness"]
    assert "worker load1" in reason["text"]


def test_a_worker_that_died_makes_the_run_suspect_and_is_named(tmp_path: Path) -> None:
    result = folded(tmp_path, distributed(lost=50))

    (reason,) = [reason for reason in result["verdict"]["reasons"] if reason["code"] == "worker_lost"]
    assert (reason["state"], reason["figure"]) == ("suspect", 50.0)
    assert reason["text"].startswith("the load's worker load1 was lost: 50 of the 250 streams")


def test_a_gen_server_that_cannot_hold_its_rate_is_named(tmp_path: Path) -> None:
    files = compare_run()
    files["counters.json"]["gen0"]["pacing"]["delivered_interval_s"] = 0.075
    for block in files["blocks.jsonl"]:
        block["chunks"] = round(block["chunks"] * 0.87)

    result = folded(tmp_path, files)

    assert {"gen_rate", "too_few_rounds"} <= codes(result)
    assert result["verdict"]["state"] == "void"
    assert result["verdict"]["reasons"][0]["text"].startswith("the gen server gen0 could not hold its rate")


def test_starvation_is_judged_over_every_block_the_void_ones_too(tmp_path: Path) -> None:
    files = compare_run()
    for block in files["blocks.jsonl"]:
        block["run_queue_wait_ns"] = block["wall_ns"] // 3
        block["chunks"] //= 2

    result = folded(tmp_path, files)

    assert result["verdict"]["reasons"][0]["text"].startswith("CPU starvation: the orchestrator")
    assert result["machine"]["orchestrator_run_queue_wait_share"] == pytest.approx(1 / 3)


def test_the_yardstick_tells_a_machine_that_changed_its_speed(tmp_path: Path) -> None:
    files = compare_run()
    for block in files["blocks.jsonl"][60:]:
        block["spin_ns"] *= 2

    assert "spin_drift" in codes(folded(tmp_path, files))


def test_requests_inside_blocks_are_taken_apart_from_chunks(tmp_path: Path) -> None:
    files = compare_run(rounds=20)
    rng = np.random.default_rng(5)
    for block in files["blocks.jsonl"]:
        block["requests"] = int(rng.poisson(60))
        block["chunks"] = round(block["chunks"] * rng.uniform(0.98, 1.02))
        cost_us = {"filter-off": 45.0, "filter-on": 40.0}[block["policy"]]
        block["cpu_ns"] = round(cost_us * 1e3 * block["chunks"] + 700e3 * block["requests"])

    result = folded(tmp_path, files)

    slopes = result["regression"]
    assert slopes["cpu_us_per_chunk"]["filter-off"]["estimate"] == pytest.approx(45.0)
    assert slopes["cpu_us_per_chunk"]["filter-on"]["estimate"] == pytest.approx(40.0)
    assert slopes["cpu_us_per_request"]["estimate"] == pytest.approx(700.0)
    assert slopes["differences"] == [
        {"a": "filter-off", "b": "filter-on", "estimate": pytest.approx(5.0), "ci95": pytest.approx([5.0, 5.0])}
    ]
    assert result["arms"]["filter-on"]["cpu_us_per_chunk"]["mean"] > 44  # the ratio alone mixes the two


def test_further_starts_are_folded_into_their_spread(tmp_path: Path) -> None:
    path = write(compare_run(seed=1), tmp_path / "run")
    write(compare_run(seed=2), path / "start-2")
    interrupted = compare_run(seed=3)
    interrupted["manifest.json"]["interrupted"] = True
    write(interrupted, path / "start-10")
    (path / "start-11").mkdir()  # broke off before its manifest

    result = analyze(path)

    [spread] = result["restarts"]["differences"]
    assert result["restarts"]["starts"] == 3
    assert result["restarts"]["states"] == ["suspect", "valid", "suspect"]
    assert spread["estimates"][0] == result["differences"][0]["cpu_us_per_chunk"]["estimate"]
    assert spread["mean"] == pytest.approx(sum(spread["estimates"]) / 3)
    assert (spread["low"], spread["high"]) == (min(spread["estimates"]), max(spread["estimates"]))
    assert codes(result) == {"other_start"}


def test_a_start_without_an_estimate_leaves_the_others_spread() -> None:
    def start(estimate: float | None) -> dict[str, Any]:
        figure = None if estimate is None else {"estimate": estimate, "ci95": None}
        difference = {"a": "off", "b": "on", "cpu_us_per_chunk": figure}
        return {"verdict": {"state": "valid"}, "differences": [difference]}

    [spread] = across_starts([start(5.0), start(None), start(7.0)])["differences"]

    assert spread["estimates"] == [5.0, None, 7.0]
    assert (spread["mean"], spread["low"], spread["high"]) == (6.0, 5.0, 7.0)
    assert spread["standard_deviation"] == pytest.approx(2**0.5)


def test_a_directory_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        analyze(tmp_path)


@pytest.mark.parametrize("make", [compare_run, load_run])
def test_a_load_that_died_before_it_wrote_what_it_counted_makes_the_run_void(tmp_path: Path, make: Any) -> None:
    files = make()
    del files["client.json"]

    result = folded(tmp_path, files)

    assert result["verdict"]["state"] == "void"
    assert result["verdict"]["reasons"][0]["code"] == "client_missing"


@pytest.mark.parametrize("make", [compare_run, load_run])
def test_a_run_of_which_no_stream_was_started_is_void(tmp_path: Path, make: Any) -> None:
    files = make()
    files["streams.jsonl"] = []
    files["client.json"]["streams"] = {"planned": 10, "started": 0, "ok": 0, "failed": {}, "aborted": 0}

    reasons = {r["code"]: r["state"] for r in folded(tmp_path, files)["verdict"]["reasons"]}

    assert reasons["no_streams"] == "void"


def test_what_the_servers_did_not_leave_is_named(tmp_path: Path) -> None:
    files = load_run()
    files["samples.json"] = {"gen0": files["samples.json"]["gen0"], "ctx0": {"samples": []}}
    del files["counters.json"]["ctx0"]

    result = folded(tmp_path, files)

    texts = {reason["code"]: reason["text"] for reason in result["verdict"]["reasons"]}
    assert result["verdict"]["state"] == "suspect"
    assert texts["samples_missing"].startswith("no per-second samples of orchestrator, ctx0:")
    assert texts["counters_missing"].startswith("no counters of ctx0:")
    assert set(texts) == {"samples_missing", "counters_missing"}
    assert (result["orchestrator"]["cpu_s"], result["orchestrator"]["cpu_us_per_chunk"]) == (None, None)


@pytest.mark.parametrize(
    ("make", "name", "words"),
    [
        (compare_run, "counters_before.json", "counters_before.json is missing"),
        (load_run, "counters.json", "there are no counters of two parties"),
    ],
)
def test_counters_that_can_not_be_compared_make_a_run_suspect(tmp_path: Path, make: Any, name: str, words: str) -> None:
    files = make()
    del files[name]

    result = folded(tmp_path, files)

    assert result["reconciliation"]["state"] == "unknown"
    reason = next(r for r in result["verdict"]["reasons"] if r["code"] == "not_reconciled")
    assert reason["state"] == "suspect"
    assert words in reason["text"]


def test_streams_that_the_servers_began_and_nobody_saw_end_are_counted(tmp_path: Path) -> None:
    files = compare_run()
    files["client.json"]["streams"]["ok"] -= 3

    [reason] = folded(tmp_path, files)["verdict"]["reasons"]

    assert (reason["code"], reason["state"], reason["figure"]) == ("streams_without_end", "suspect", 3.0)
    assert "only 997 of the 1,000 streams" in reason["text"]


def test_aborted_streams_make_a_run_suspect_that_nobody_interrupted(tmp_path: Path) -> None:
    files = compare_run()
    files["client.json"]["streams"].update({"ok": STREAMS - 5, "aborted": 5})

    assert codes(folded(tmp_path, files)) == {"streams_aborted"}


def test_a_directory_that_measured_nothing_is_refused_by_its_kind(tmp_path: Path) -> None:
    manifest = {"kind": "up", "scenario": {"name": "seed"}}

    with pytest.raises(ValueError, match="is of kind up, which measures nothing"):
        folded(tmp_path, {"manifest.json": manifest})


@pytest.mark.parametrize("used", [1, 2, 3, 4, 5])
def test_few_rounds_leave_an_interval_that_is_null_and_not_one_of_a_million(tmp_path: Path, used: int) -> None:
    result = folded(tmp_path, compare_run(rounds=used))

    for difference in (*result["differences"], result["control"]):
        figure = difference["cpu_us_per_chunk"]
        assert set(figure) == {"estimate", "ci95", "ci999", "mde", "standard_error"}
        assert (figure["ci95"] is None, figure["ci999"] is None) == (used < 4, used < 5)
        assert (figure["mde"] is None, figure["standard_error"] is None) == (used < 2, used < 2)
        assert (difference["core_share_at_rate"]["ci95"] is None) == (used < 4)
        assert all(abs(bound) < 1e6 for bound in (*(figure["ci95"] or ()), *(figure["ci999"] or ())))
    assert {arm["cpu_us_per_chunk"]["ci95"] is None for arm in result["arms"].values()} == {used < 4}


BAD_FILES = [
    ("manifest.json", '{"kind": "compare", ', "manifest.json is not JSON: "),
    ("manifest.json", "[1]", "manifest.json does not hold a JSON object"),
    ("manifest.json", '{"seed": 1}', "manifest.json lacks kind"),
    ("manifest.json", '{"kind": "run", "seed": 1}', "manifest.json lacks command, started, scenario, versions, host"),
    (
        "blocks.jsonl",
        '{"round": 0, "arm": "a"}\n{"round"\n',
        "blocks.jsonl, line 2, is not JSON: Expecting ':' delimiter at column 9",
    ),
    ("blocks.jsonl", '{"round": 0}\n', "blocks.jsonl, line 1, lacks arm"),
    ("streams.jsonl", "7\n", "streams.jsonl, line 1, does not hold a JSON object"),
    ("samples.json", "", "samples.json is not JSON: "),
    ("counters.json", "\udcff", "counters.json is not JSON: "),
    ("client.json", "{}", "client.json lacks streams"),
    ("equality.json", '{"state": "equal"}', "equality.json lacks streams, policies, dead_path"),
]


@pytest.mark.parametrize(("name", "text", "words"), BAD_FILES)
def test_a_file_that_is_not_what_it_should_be_is_named(tmp_path: Path, name: str, text: str, words: str) -> None:
    path = write(compare_run(rounds=1), tmp_path / "run")
    (path / name).write_bytes(text.encode("utf-8", "surrogateescape"))

    with pytest.raises(ValueError, match=words) as caught:
        analyze(path)

    assert str(path / name) in str(caught.value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("arms", []),
        ("arms", [{"name": "a"}]),
        ("rounds_planned", "30"),
        ("scenario", {}),
        ("notes", "one"),
        ("seed", None),
    ],
)
def test_a_manifest_whose_key_holds_something_else_is_refused_by_the_key(tmp_path: Path, key: str, value: Any) -> None:
    files = compare_run(rounds=1)
    files["manifest.json"][key] = value

    with pytest.raises(ValueError, match=f"holds something else than it should under {key}$"):
        folded(tmp_path, files)


def capped_run(cap: int = 10, arrivals: str = "constant", goodput: dict[str, Any] | None = None) -> Files:
    """A load run of 400 streams, the last 100 of which the cap held back 300 ms."""
    files = load_run()
    files["manifest.json"]["scenario"]["load"] |= {"max_concurrency": cap, "arrivals": arrivals}
    for number, line in enumerate(files["streams.jsonl"]):
        held_ns = 300_000_000 if number >= 300 and arrivals != "closed" else 0
        line["ready_ns"] = line["planned_ns"] + held_ns
        for stamp in ("sent_ns", "first_token_ns", "last_token_ns", "end_ns"):
            line[stamp] += held_ns
    files["client.json"]["goodput"] = goodput
    files["client.json"]["streams"]["unsent"] = 0
    return files


def test_what_the_cap_held_back_is_not_put_down_to_the_sender(tmp_path: Path) -> None:
    result = folded(tmp_path, capped_run())
    client = result["client"]

    assert client["concurrency"] == {"max": 10, "closed_loop": False}
    assert (client["held_s"]["n"], client["held_s"]["p50"]) == (100, 0.3)
    assert client["lateness_s"]["max"] == pytest.approx(0.0002)
    assert client["ttft_s"]["p99"] > client["ttft_from_sent_s"]["p99"] + 0.25
    assert result["verdict"] == {"state": "valid", "reasons": []}

    late = capped_run()
    for line in late["streams.jsonl"]:
        line["ready_ns"] = line["planned_ns"]
    reasons = folded(tmp_path / "late", late)["verdict"]["reasons"]
    assert [reason["code"] for reason in reasons] == ["load_lateness"]


@pytest.mark.parametrize(("cap", "arrivals"), [(0, "poisson"), (10, "closed")])
def test_where_nothing_can_be_held_back_there_is_no_such_figure(tmp_path: Path, cap: int, arrivals: str) -> None:
    client = folded(tmp_path, capped_run(cap, arrivals))["client"]

    assert client["held_s"] is None
    assert client["concurrency"] == ({"max": 10, "closed_loop": True} if cap else None)


def test_lines_from_before_the_cap_read_as_never_held() -> None:
    line = {"planned_ns": 5, "sent_ns": 2_000_005}

    assert send_lateness_s([line]).tolist() == [0.002]
    assert held_back_s([line]).tolist() == []


GOODPUT = {
    "limits": {"ttft_ms": 500.0, "itl_ms": 0.0, "e2e_ms": 9000.0},
    "within": 300,
    "of": 400,
    "missed": {"ttft": 90, "itl": 0, "e2e": 20, "failed": 0, "unsent": 0},
}


def test_goodput_is_a_share_with_its_interval_and_a_rate(tmp_path: Path) -> None:
    files = capped_run(goodput=GOODPUT)
    goodput = folded(tmp_path, files)["client"]["goodput"]
    planned = min(line["planned_ns"] for line in files["streams.jsonl"])
    seconds = (max(line["end_ns"] for line in files["streams.jsonl"]) - planned) / 1e9

    assert goodput == {
        "limits": {"ttft_ms": 500.0, "itl_ms": None, "e2e_ms": 9000.0},
        "within": 300,
        "of": 400,
        "share": 0.75,
        "ci95": [pytest.approx(0.7053, abs=1e-4), pytest.approx(0.7899, abs=1e-4)],
        "requests_per_s": pytest.approx(300 / seconds),
        "missed": GOODPUT["missed"],
    }


def test_there_is_no_goodput_without_limits_or_without_the_loads_counts(tmp_path: Path) -> None:
    files = capped_run(goodput=GOODPUT)
    del files["client.json"]

    assert folded(tmp_path, capped_run())["client"]["goodput"] is None
    assert folded(tmp_path / "no client", files)["client"]["goodput"] is None


def test_goodput_of_no_stream_at_all_has_no_share(tmp_path: Path) -> None:
    files = capped_run(goodput={**GOODPUT, "within": 0, "of": 0})
    files["streams.jsonl"] = []
    goodput = folded(tmp_path, files)["client"]["goodput"]

    assert (goodput["share"], goodput["ci95"], goodput["requests_per_s"]) == (None, None, None)
