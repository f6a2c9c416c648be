"""The bench itself with real processes, small: what it keeps and writes, and what a Ctrl-C leaves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.system.conftest import finish

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]
NAMES = "direct,stream+prefilter,our gen"


def start_bench(cwd: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "bench", "--quick", "--window", "0.5", "--run-dir", "run", "--out", "b.md", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def cells_of(cwd: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (cwd / "run" / "results.jsonl").read_text().splitlines()]


def test_a_quick_run_measures_checks_and_writes(tmp_path: Path) -> None:
    code, _, err = finish(start_bench(tmp_path, "--only", NAMES), 240)

    assert code == 0, err
    cells = cells_of(tmp_path)
    found = [(cell["table"], cell["load"], cell["name"]) for cell in cells]
    assert found[:4] == [
        ("relay", "dense", "direct"),
        ("relay", "dense", "stream+prefilter"),
        ("relay", "wide", "direct"),
        ("relay", "wide", "stream+prefilter"),
    ]
    assert ("gen", "plain", "our gen") in found
    assert [cell.get("problem") or cell["lost"] for cell in cells] == [None] * len(cells), cells
    relay = cells[1]
    for role in ("gen", "ctx", "relay", "client"):
        assert relay["processes"][role]["cpu_us_per_token"] > 0
    assert relay["tok_s"] > 0
    assert relay["events_per_read"] >= 1
    assert list((tmp_path / "run" / "cells").iterdir()) == []  # nothing was amiss, so nothing is kept
    document = (tmp_path / "b.md").read_text()
    assert "| `stream+prefilter` |" in document
    assert "all right" in document
    assert str(tmp_path) not in document


def test_an_interrupted_run_keeps_what_it_has_and_ends_its_processes(tmp_path: Path) -> None:
    process = start_bench(tmp_path, "--only", NAMES)
    assert process.stderr is not None
    line = process.stderr.readline()
    while not line.startswith("[1/"):
        assert line, "the bench ended before its first cell"
        line = process.stderr.readline()
    deadline = time.monotonic() + 60
    children: list[psutil.Process] = []
    while len(children) < 2:  # the second cell's gen and ctx, or more
        assert time.monotonic() < deadline
        children = psutil.Process(process.pid).children(recursive=True)
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    code, _, err = finish(process, 60)

    assert code == 1
    assert "interrupted: keeping what was measured" in err
    assert len(cells_of(tmp_path)) == 1
    assert json.loads((tmp_path / "run" / "manifest.json").read_text())["interrupted"] is True
    assert "**The run was interrupted" in (tmp_path / "b.md").read_text()
    assert [child for child in children if child.is_running()] == []
