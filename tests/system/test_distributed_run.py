"""`disagg-sim run --workers N` with real processes: counts that reconcile, and a worker killed in the middle."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import time
import urllib.request
from pathlib import Path
from typing import Any

import psutil
import pytest

from loadtest.experiment import load_process
from loadtest.experiment.processes import ChildFailedError
from loadtest.experiment.topology import Pinning, Topology
from loadtest.scenario import load_scenario
from tests.system.conftest import finish, start

pytestmark = [pytest.mark.system, pytest.mark.timeout(180)]

BOUND_S = 60
LOAD = ("run", "smoke", "--set", "streams=30", "--set", "output_tokens=100", "--set", "tok_s=10", "--workers", "3")


def started(out: Path) -> Any:
    """The run, once its 30 streams are live; and the orchestrator's operations port."""
    process = start(*LOAD, "--json", "--out", str(out))
    assert process.stderr is not None
    ops = ""
    while not ops:
        line = process.stderr.readline()
        assert line, "the run ended before its servers were up"
        found = re.search(r"operations (http\S+)", line)
        ops = found[1] if found else ""
    deadline = time.monotonic() + BOUND_S
    while live(ops) < 30:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return process, ops


def live(ops: str) -> int:
    with urllib.request.urlopen(f"{ops}/admin/counters", timeout=10) as answer:
        return int(json.loads(answer.read())["streams"]["live"])


async def test_a_master_that_cannot_start_is_told_and_no_worker_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "logs").mkdir()
    topology = Topology(tmp_path, Pinning(frozenset(), frozenset()))
    monkeypatch.setattr(Topology, "url", "http://127.0.0.1:1")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        monkeypatch.setattr(load_process, "free_ports", lambda count: [taken.getsockname()[1]] * count)
        with pytest.raises(ChildFailedError, match="locust ended with code") as failure:
            await load_process.start_load(topology, load_scenario("smoke"), 0, workers=2)

    assert "busy" in str(failure.value) or "in use" in str(failure.value)
    left = [child for child in psutil.Process().children() if "locustfile" in " ".join(child.cmdline())]
    assert left == []


def test_the_counts_of_all_parties_agree(tmp_path: Path) -> None:
    process, _ = started(tmp_path / "run")
    code, stdout, err = finish(process, 120)

    assert code in (0, 3), err
    result = json.loads(stdout)
    assert result["client"]["streams"]["ok"] == 30
    assert result["reconciliation"]["state"] == "equal"
    assert {"load0", "load1", "load2"} <= set(result["processes"])
    assert "worker_lost" not in {reason["code"] for reason in result["verdict"]["reasons"]}


def test_a_worker_killed_in_the_middle_makes_the_run_suspect_and_its_streams_lost(tmp_path: Path) -> None:
    process, _ = started(tmp_path / "run")
    (victim,) = [
        child
        for child in psutil.Process(process.pid).children(recursive=True)
        if "--share 1 " in " ".join(child.cmdline())
    ]
    os.kill(victim.pid, signal.SIGKILL)
    code, stdout, err = finish(process, 120)

    assert code in (0, 3), err
    result = json.loads(stdout)
    client = json.loads((tmp_path / "run" / "client.json").read_text())
    assert [(w["pid"], w["index"], w["lost"]) for w in client["workers"] if w["gone"]] == [(victim.pid, 1, 10)]
    streams = client["streams"]
    assert (streams["planned"], streams["ok"], streams["failed"], streams["lost"]) == (30, 20, {}, 10)
    reasons = {reason["code"]: reason for reason in result["verdict"]["reasons"]}
    assert reasons["worker_lost"]["state"] == "suspect"
    assert reasons["worker_lost"]["figure"] == 10
    assert "load1" in reasons["worker_lost"]["text"]
    assert reasons["counters_differ"]["state"] == "suspect"
    counters = json.loads((tmp_path / "run" / "counters.json").read_text())
    assert counters["orchestrator"]["streams"]["ended"]["client_gone"] == 10
