"""A capacity run folded: limits, who comes first, what stopped each, what cannot be certified, and in words."""

from __future__ import annotations

import json

import numpy as np
import pytest

from loadtest.experiment.capacity_report import render_capacity_report
from loadtest.experiment.capacity_result import fold_capacity
from loadtest.experiment.capacity_text import render_capacity
from loadtest.experiment.rundir import RunDirectoryError
from tests.capacity_runs import by_limit, manifest, probe, search, write

POLICIES = ["filter-off", "filter-on"]
SYSTEMS = {"filter-off": by_limit(12_000), "filter-on": by_limit(18_000)}


def folded(path, records, head):
    return fold_capacity(write(path, records, head), head)


@pytest.fixture
def measured(tmp_path):
    records, _ = search(SYSTEMS, np.random.default_rng(1))
    return folded(tmp_path / "run", records, manifest(POLICIES))


def records_of(policy, rows, workers=1):
    head = {"policy": policy, "engine": "splice", "workers": workers, "phase": "ramp", "pair": None}
    return [{**head, **row} for row in rows]


def test_limits_come_with_intervals_and_in_order(measured):
    assert measured["schema"] == "disagg-sim/capacity/1"
    assert measured["verdict"] == {"state": "valid", "reasons": []}
    assert measured["slo"] == {"lag_ms": 50.0, "ttft_ms": 1000.0, "itl_ms": 100.0}
    for name, truth in (("filter-off", 12_000), ("filter-on", 18_000)):
        limit = measured["limits"][name]
        low, high = limit["limit_tok_s"]["ci95"]
        assert low <= truth <= high
        assert limit["limit_tok_s"]["estimate"] == pytest.approx(truth, rel=0.05)
        assert (limit["at_least_tok_s"], limit["below_tok_s"], limit["stopped_by"]) == (None, None, "slo:lag")
        assert limit["cpu_us_per_chunk"] == 25.0
        assert limit["at_limit"]["rate_tok_s"] <= limit["limit_tok_s"]["estimate"]
        assert sum(limit["probes"].values()) >= 20
    (comparison,) = measured["comparisons"]
    assert comparison["order"] == "<"
    assert comparison["ratio"]["ci95"][1] < 1.0
    assert measured["scaling"] == []


def test_folding_twice_gives_the_same(tmp_path):
    records, _ = search(SYSTEMS, np.random.default_rng(1))
    head = manifest(POLICIES)
    path = write(tmp_path / "run", records, head)

    assert json.dumps(fold_capacity(path, head)) == json.dumps(fold_capacity(path, head))


def test_policies_that_are_alike_show_no_difference(tmp_path):
    records, _ = search({name: by_limit(12_000) for name in POLICIES}, np.random.default_rng(2))
    result = folded(tmp_path / "run", records, manifest(POLICIES))

    assert result["comparisons"][0]["order"] == "no difference shown"
    text = " ".join(render_capacity(result, None).split())
    assert "filter-off and filter-on: no difference shown; the ratio of their limits is within [" in text


def test_a_generator_that_gives_out_leaves_a_lower_bound_and_says_whose_it_is(tmp_path):
    def gives_out(rate, _rng):
        return probe(rate, gen_due_share=1.0 if rate <= 30_000 else 0.9)

    records, _ = search({"filter-off": by_limit(12_000), "filter-on": gives_out}, np.random.default_rng(1))
    result = folded(tmp_path / "run", records, manifest(POLICIES))

    limit = result["limits"]["filter-on"]
    assert limit["limit_tok_s"] is None
    assert 28_000 < limit["at_least_tok_s"] <= 30_000
    assert limit["stopped_by"] == "generator"
    assert result["comparisons"][0] == {"a": "filter-off", "b": "filter-on", "order": "<", "ratio": None}
    assert any(entry["why"] == "the generator gave out" for entry in result["certified"])
    assert result["verdict"]["state"] == "valid"
    text = render_capacity(result, None)
    assert f"at least {limit['at_least_tok_s']:,.0f}" in text
    assert "filter-off < filter-on: one's interval ends where the other still held." in text


def test_nothing_attributable_is_void(tmp_path):
    records = records_of("filter-on", [probe(5000, gen_due_share=0.5)] * 2)
    result = folded(tmp_path / "run", records, manifest(["filter-on"]))

    assert result["verdict"]["state"] == "void"
    assert [reason["code"] for reason in result["verdict"]["reasons"]] == ["nothing_attributable"]
    assert result["limits"]["filter-on"]["stopped_by"] == "generator"
    assert render_capacity(result, None).startswith("VERDICT: VOID - ")


def test_a_run_without_a_single_probe_is_void_and_still_has_a_page(tmp_path):
    head = manifest(["filter-on"], interrupted=True)
    path = write(tmp_path / "run", [], head)
    result = fold_capacity(path, head)

    assert result["verdict"]["state"] == "void"
    assert result["limits"]["filter-on"]["stopped_by"] is None
    assert "not probed" in render_capacity(result, None)
    assert "Nothing was measured for this figure." in render_capacity_report(path, head, result)


def test_what_was_measured_until_an_interruption_is_kept_a_cut_line_left_out(tmp_path):
    head = manifest(["filter-on"], interrupted=True)
    path = write(tmp_path / "run", records_of("filter-on", [probe(5000), probe(8000)]), head)
    with (path / "probes.jsonl").open("a") as lines:
        lines.write('{"policy": "filter-on", "ra')
    result = fold_capacity(path, head)

    limit = result["limits"]["filter-on"]
    assert limit["at_least_tok_s"] == 8000
    assert limit["stopped_by"] == "time"
    assert {reason["code"] for reason in result["verdict"]["reasons"]} == {"interrupted", "no_time"}


def test_a_machine_that_gave_out_makes_a_run_suspect(tmp_path):
    starved = probe(8000, lag_ms=90, run_queue_wait_share=0.5, busiest_core_share=0.5)
    records = records_of("filter-on", [probe(5000), probe(7600), starved, starved])
    result = folded(tmp_path / "run", records, manifest(["filter-on"]))

    assert result["limits"]["filter-on"]["stopped_by"] == "machine"
    assert [reason["code"] for reason in result["verdict"]["reasons"]] == ["machine_gave_out"]


@pytest.mark.parametrize(
    ("files", "code", "state"),
    [
        ({"equality.json": {"state": "differs"}}, "equality_differs", "void"),
        (
            {
                "equality.json": {"state": "equal"},
                "counters_before.json": {},
                "counters.json": {"gen0": {"chunks": 5}, "orchestrator": {"chunks": 4}},
                "client.json": {"streams": {"started": 2, "ok": 2, "failed": {}, "aborted": 0}, "chunks": 3},
                "short/client.json": {"streams": {"started": 1, "ok": 1, "failed": {}, "aborted": 0}, "chunks": 2},
            },
            "counters_differ",
            "suspect",
        ),
        (
            {
                "client.json": {"streams": {"started": 2, "ok": 1, "failed": {"cut": 1}, "aborted": 0}},
                "short/client.json": {"streams": {"started": 1, "ok": 1, "failed": {}, "aborted": 0}},
            },
            "streams_failed",
            "suspect",
        ),
    ],
    ids=["gate", "counters", "streams"],
)
def test_what_a_place_left_is_judged_with_both_loads_together(tmp_path, files, code, state):
    records, _ = search({"filter-on": by_limit(18_000)}, np.random.default_rng(1))
    head = manifest(["filter-on"])
    path = write(tmp_path / "run", records, head)
    for name, content in files.items():
        (path / "splice-1" / name).parent.mkdir(parents=True, exist_ok=True)
        (path / "splice-1" / name).write_text(json.dumps(content))
    result = fold_capacity(path, head)

    assert [(reason["code"], reason["state"]) for reason in result["verdict"]["reasons"]] == [(code, state)]


def test_counters_may_differ_by_requests_that_were_cut_off_at_the_end(tmp_path):
    records, _ = search({"filter-on": by_limit(18_000)}, np.random.default_rng(1))
    head = manifest(["filter-on"])
    path = write(tmp_path / "run", records, head)
    (path / "splice-1" / "short").mkdir(parents=True)
    streams = {"started": 2, "ok": 1, "failed": {}, "aborted": 1}
    for name, content in {
        "counters.json": {"gen0": {"chunks": 5}, "orchestrator": {"chunks": 4}},
        "client.json": {"streams": {**streams, "aborted": 0}, "chunks": 3},
        "short/client.json": {"streams": streams, "chunks": 1},
    }.items():
        (path / "splice-1" / name).write_text(json.dumps(content))
    verdict = fold_capacity(path, head)["verdict"]

    assert (verdict["state"], [reason["code"] for reason in verdict["reasons"]]) == ("valid", ["counters_differ"])
    assert "1 short requests were cut off" in verdict["reasons"][0]["text"]


def test_equal_counters_of_all_parties_are_said_to_be(tmp_path):
    head = manifest(["filter-on"])
    path = write(tmp_path / "run", records_of("filter-on", [probe(5000)]), head)
    (path / "splice-1" / "short").mkdir(parents=True)
    streams = {"started": 1, "ok": 1, "failed": {}, "aborted": 0}
    for name, content in {
        "counters.json": {"gen0": {"chunks": 5}, "orchestrator": {"chunks": 5, "streams": {"started": 2}}},
        "client.json": {"streams": streams, "chunks": 3},
        "short/client.json": {"streams": streams, "chunks": 2},
    }.items():
        (path / "splice-1" / name).write_text(json.dumps(content))
    result = fold_capacity(path, head)

    assert result["places"]["splice-1"]["reconciliation"]["state"] == "equal"
    text = " ".join(render_capacity(result, None).split())
    assert "2 of 2 streams passed every check, short requests included." in text
    assert "orchestrator and clients agree to the unit" in text


def test_more_workers_give_a_scaling_curve_and_what_two_cpus_cannot_certify(tmp_path):
    records = []
    for workers, limit in ((1, 12_000), (2, 13_000)):
        one, _ = search({"filter-on": by_limit(limit)}, np.random.default_rng(workers))
        records += [{**record, "workers": workers} for record in one]
    head = manifest(["filter-on"], workers=[1, 2])
    result = folded(tmp_path / "run", records, head)

    assert set(result["limits"]) == {"filter-on, 1 worker", "filter-on, 2 workers"}
    (curve,) = result["scaling"]
    assert [point["workers"] for point in curve["points"]] == [1, 2]
    assert curve["points"][0]["over_first"] is None
    assert curve["points"][1]["over_first"]["estimate"] == pytest.approx(13 / 12, rel=0.08)
    assert result["comparisons"] == []
    figures = [entry["figure"] for entry in result["certified"]]
    assert "limit, lag and scaling of 2 workers" in figures
    text = render_capacity(result, None)
    assert "tok/s by workers: 1: " in text
    assert max(map(len, text.splitlines())) <= 120


def test_a_manifest_without_a_plan_is_refused(tmp_path):
    head = manifest(POLICIES)
    del head["slo"], head["workers"]
    path = write(tmp_path / "run", [], head)

    with pytest.raises(RunDirectoryError, match="lacks workers, slo"):
        fold_capacity(path, head)


def test_a_probe_that_is_no_probe_is_named_by_its_line(tmp_path):
    head = manifest(POLICIES)
    path = write(tmp_path / "run", [{"policy": "x"}], head)

    with pytest.raises(ValueError, match=r"probes.jsonl, line 1, lacks engine"):
        fold_capacity(path, head)
