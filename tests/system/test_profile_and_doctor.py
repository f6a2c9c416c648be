"""`disagg-sim profile` and `doctor` on real processes: a small load, bounded, values and not times."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from loadtest.experiment.profile_classes import CLASSES
from loadtest.experiment.text import WIDTH
from tests.system.conftest import finish, run_command, start

pytestmark = [pytest.mark.system, pytest.mark.timeout(180)]

SMALL = ["--streams", "60", "--rate", "1200", "--set", "ramp_s=1", "--warmup", "1"]


@pytest.fixture
def sampler() -> str:
    found = shutil.which("py-spy", path=str(Path(sys.executable).parent)) or shutil.which("py-spy")
    if found is None:
        message = "no py-spy; get it with `pip install 'disagg-sim[profile]'`"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    return found


def children_of(out: Path) -> list[str]:
    """Command lines of processes that were given this run directory."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if any(str(out).encode() in word for word in words):
            found.append(b" ".join(words).decode())
    return found


def test_a_profile_shares_out_a_chunks_cost(tmp_path: Path, sampler: str) -> None:
    out = tmp_path / "run"
    code, text, err = run_command(
        "profile", "parse", *SMALL, "--duration", "4", "--json", "--out", str(out), cwd=tmp_path, timeout_s=120
    )

    assert code in (0, 3), err  # a busy machine may make it void; what was written must be right all the same
    result = json.loads(text)
    assert result["schema"] == "disagg-sim/profile/1"
    assert result["policy"] == "parse"
    assert [row["class"] for row in result["classes"]] == list(CLASSES)
    assert result["sampler"]["samples"] > 0
    assert sum(row["samples"] for row in result["classes"]) == result["sampler"]["samples"]
    costs = [row["cpu_us_per_chunk"] for row in result["classes"]]
    assert sum(costs) == pytest.approx(result["cpu_us_per_chunk"])
    assert json.loads((out / "profile.json").read_text()) == result
    assert ET.parse(out / "flamegraph.svg").getroot().tag.endswith("svg")
    kinds = {row["class"]: row["samples"] for row in result["classes"]}
    assert min(kinds["recv"], kinds["policy"], kinds["send"]) > 0
    assert children_of(out) == []

    again = run_command("report", str(out), cwd=tmp_path)
    assert again[0] == code
    assert max(map(len, again[1].splitlines())) <= max(WIDTH, len(str(out)) + 32)
    assert "parse.loads" in again[1]


def test_ctrl_c_keeps_what_was_sampled(tmp_path: Path, sampler: str) -> None:
    out = tmp_path / "run"
    process = start("profile", *SMALL, "--duration", "60", "--json", "--out", str(out), cwd=tmp_path)
    deadline = time.monotonic() + 60
    while not any("py-spy" in command and "--pid" in command for command in children_of(out)):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.2)
    time.sleep(4)
    process.send_signal(signal.SIGINT)
    code, text, err = finish(process, 60)

    assert code in (0, 3), err
    assert "Traceback" not in err
    result = json.loads(text)
    assert "interrupted" in [reason["code"] for reason in result["verdict"]["reasons"]]
    assert result["sampler"]["samples"] > 0
    assert children_of(out) == []


def findings(text: str) -> dict[str, Any]:
    result = json.loads(text)
    assert result["schema"] == "disagg-sim/doctor/1"
    return {finding["name"]: finding for finding in result["findings"]}


def test_a_quick_doctor_measures_this_machine(tmp_path: Path) -> None:
    code, text, err = run_command("doctor", "--quick", "--json", cwd=tmp_path)
    found = findings(text)

    assert code == (3 if json.loads(text)["state"] == "bad" else 0), err
    assert "gen and load alone" not in found
    assert found["python"]["figures"]["version"] == sys.version.split()[0]
    assert found["open files"]["figures"]["streams"] > 0
    assert (
        found["late from 1 ms sleep"]["figures"]["late_p99_s"] >= found["late from 1 ms sleep"]["figures"]["late_p50_s"]
    )
    assert 0 <= found["steal"]["figures"]["share"] <= 1
    assert found["fixed work"]["figures"]["mean_ns"] > 0
    assert list(tmp_path.iterdir()) == []


def test_the_doctor_finds_the_ceiling_of_fakes_and_load(tmp_path: Path) -> None:
    code, text, err = run_command("doctor", "--json", cwd=tmp_path, timeout_s=120)
    ceiling = findings(text)["gen and load alone"]

    assert code in (0, 3), err
    assert ceiling["figures"]["tok_s"] > 0, ceiling
    assert ceiling["figures"]["by"] in (None, "gen", "load")
    assert list(tmp_path.iterdir()) == []


def test_the_doctors_page_fits_a_terminal(tmp_path: Path) -> None:
    _, text, _ = run_command("doctor", "--quick", cwd=tmp_path)

    assert max(map(len, text.splitlines())) <= WIDTH
    assert any(line.startswith(("OK:", "LIMITS:", "BAD:")) for line in text.splitlines())
