"""Gates on real runs: a plug-in far too dear ends with 4, a lenient gate with 0, an earlier run is compared with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.system.conftest import run_command
from tests.system.test_runs import SMALL, read

pytestmark = [pytest.mark.system, pytest.mark.timeout(240)]

DEAR = """
import time
from sim.orchestrator.policies import make

def dear(ctx_usage):
    inner, clock = make("filter-on", ctx_usage), time.perf_counter_ns
    def policy(event):
        until = clock() + 400_000
        while clock() < until:
            pass
        return inner(event)
    return policy
"""
TRIPS = "cpu_us_per_chunk(dear_policies:dear) > 1.05 * cpu_us_per_chunk(filter-on)"
LENIENT = "cpu_us_per_chunk(dear_policies:dear) > 1000 * cpu_us_per_chunk(filter-on)"


def test_a_dear_plugin_trips_its_gate_and_a_lenient_one_holds(tmp_path: Path) -> None:
    (tmp_path / "dear_policies.py").write_text(DEAR)
    arms = ("compare", "filter-on", "dear_policies:dear", *SMALL, "--duration", "9")
    first, second = tmp_path / "first", tmp_path / "second"
    code, out, err = run_command(*arms, "--out", str(first), "--fail-if", TRIPS, timeout_s=90, cwd=tmp_path)
    result = read(first, "result.json")
    void = result["verdict"]["state"] == "void"

    assert result["gates"][0]["tripped"] is True, (out, err)
    assert result["gates"][0]["comparisons"][0]["left"] > 400
    assert code == (3 if void else 4)
    assert f"gate tripped {TRIPS}" in " ".join(out.split())
    assert "tripped</b>" in (first / "report.html").read_text()

    earlier = ("--baseline", str(first), *(["--baseline-any"] if void else []))
    gates = ("--fail-if", LENIENT, "--fail-if", "baseline.cpu_us_per_chunk(filter-on) < 0")
    code, out, err = run_command(*arms, "--out", str(second), *earlier, *gates, timeout_s=90, cwd=tmp_path)
    result = read(second, "result.json")

    assert [gate["tripped"] for gate in result["gates"]] == [False, False], (out, err)
    assert code == (3 if result["verdict"]["state"] == "void" else 0)
    assert [entry["figure"] for entry in result["baseline"]["ratios"]] == [
        "cpu_us_per_chunk(filter-on)",
        "cpu_us_per_chunk(dear_policies:dear)",
        "cpu_us_per_chunk(filter-on:again)",
    ]
    assert result["baseline"]["differs"] == []
    (second / "result.json").unlink()
    again, out, err = run_command("report", str(second), "--json")
    assert again == code, err
    assert json.loads(out) == result


def test_a_load_run_is_gated_by_what_its_client_saw(tmp_path: Path) -> None:
    out = tmp_path / "run"
    arguments = ("run", "smoke", "--duration", "2", "--json", "--out", str(out))
    code, stdout, err = run_command(*arguments, "--fail-if", "tok_s > 0 and ttft_p95_s > 0", timeout_s=90)
    result = json.loads(stdout)

    assert result["gates"][0]["tripped"] is True, err
    assert result["gates"][0]["comparisons"][1]["left"] == result["client"]["ttft_s"]["p95"]
    assert code == (3 if result["verdict"]["state"] == "void" else 4)
    assert "fail_if" in read(out, "manifest.json")
