"""An orchestrator of two processes on one data port: both relay, and the counters of all parties are equal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.system.conftest import run_command

pytestmark = [pytest.mark.system, pytest.mark.timeout(120)]


def test_two_workers_share_the_connections_and_the_counts_add_up(tmp_path: Path) -> None:
    out = tmp_path / "run"
    load = ("--set", "streams=40", "--set", "output_tokens=30", "--set", "itl_ms=20")
    code, stdout, err = run_command(
        "run", "smoke", *load, "--orchestrator-workers", "2", "--json", "--out", str(out), timeout_s=90
    )

    assert code in (0, 3), err
    result = json.loads(stdout)
    by_worker = result["orchestrator"]["streams_by_worker"]
    assert set(by_worker) == {"orchestrator0", "orchestrator1"}
    assert sum(by_worker.values()) == result["client"]["streams"]["ok"] == 40
    assert min(by_worker.values()) > 0  # by hash: that one gets all 40 has a chance of 2 in a million million
    assert result["reconciliation"]["state"] == "equal"
    assert result["orchestrator"]["chunks"] == 40 * 30
    assert {"orchestrator0", "orchestrator1", "gen0", "ctx0", "load"} == set(result["processes"])
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["orchestrator_workers"] == 2
    assert (out / "report.html").stat().st_size > 1_000_000
    report = (out / "report.html").read_text()
    assert f"orchestrator0 {by_worker['orchestrator0']}, orchestrator1 {by_worker['orchestrator1']}." in report
