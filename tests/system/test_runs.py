"""Whole runs with real processes, small: what is kept, what reconciles, and what the verdict says when things break."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.system.conftest import finish, run_command, start
from tests.system.result_shape import assert_compare_shape

pytestmark = [pytest.mark.system, pytest.mark.timeout(180)]

SMALL = ["--streams", "40", "--rate", "400", "--set", "ramp_s=0.5", "--warmup", "0.5", "--block", "0.3"]


def read(run_dir: Path, name: str) -> Any:
    return json.loads((run_dir / name).read_text())


def compare(tmp_path: Path, *arguments: str) -> tuple[int, dict[str, Any], str]:
    out = tmp_path / "run"
    code, stdout, err = run_command("compare", *SMALL, "--json", "--out", str(out), *arguments, timeout_s=120)
    assert code in (0, 3), err
    result = json.loads(stdout)
    assert result == read(out, "result.json")
    assert (out / "report.html").stat().st_size > 1_000_000  # the charting library is inside
    return code, result, err


def wait_until_measuring(process: Any) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        line = process.stderr.readline()
        if line.startswith("measuring"):
            time.sleep(2.5)  # a few blocks; the run goes on far longer
            return
        assert line, "compare ended before it measured"
    raise AssertionError("compare never began to measure")


def child_pid(process: Any, words: str) -> int:
    for child in psutil.Process(process.pid).children(recursive=True):
        if words in " ".join(child.cmdline()):
            return child.pid
    raise AssertionError(f"no child runs {words}")


def test_compare_measures_reconciles_and_reports(tmp_path: Path) -> None:
    code, result, _ = compare(tmp_path, "--duration", "6")

    assert_compare_shape(result)
    assert code == (3 if result["verdict"]["state"] == "void" else 0)
    assert result["equality"]["state"] == "equal"
    assert result["equality"]["policies"]["filter-off"]["changed"] > 0
    assert result["client"]["streams"]["started"] == result["client"]["streams"]["ok"] == 40
    assert result["client"]["streams"]["failed"] == {}
    assert result["rounds"]["planned"] == 6
    reconciliation = result["reconciliation"]
    assert reconciliation["state"] == "equal", reconciliation["rows"]
    counts = {row["what"]: row for row in reconciliation["rows"]}
    assert counts["replies"]["gen"] == counts["replies"]["orchestrator"] == counts["replies"]["client"] == 40
    assert counts["chunks"]["gen"] == counts["chunks"]["orchestrator"] == counts["chunks"]["client"] > 1000
    assert counts["replies ended early"]["gen"] == counts["replies ended early"]["client"] == 40


def test_a_dead_path_is_told_in_words(tmp_path: Path) -> None:
    _, result, _ = compare(tmp_path, "--duration", "2", "--set", "usage_by=gen", "filter-on", "verbatim")
    text = " ".join(reason["text"] for reason in result["verdict"]["reasons"])

    assert set(result["equality"]["dead_path"]) == {"filter-on", "verbatim"}
    assert "changed 0 events" in text
    assert "dead path" in text


def test_an_escaped_key_is_found_by_the_gate_and_no_speed_is_claimed(tmp_path: Path) -> None:
    code, result, _ = compare(tmp_path, "--duration", "2", "--set", "usage_key=escaped")

    assert code == 3
    assert result["verdict"]["state"] == "void"
    assert result["equality"]["state"] == "differs"
    assert result["equality"]["policies"]["filter-off"]["state"] == "equal"
    assert result["equality"]["policies"]["filter-on"]["state"] == "differs"
    assert all(difference["cpu_us_per_chunk"] is None for difference in result["differences"])


def test_a_plugin_is_measured_under_its_own_name(tmp_path: Path) -> None:
    (tmp_path / "my_policies.py").write_text(
        "from sim.orchestrator.policies import make\n"
        "def copied(ctx_usage):\n"
        "    inner = make('prefilter', ctx_usage)\n"
        "    return lambda event: bytes(bytearray(inner(event)))\n"
    )
    out = tmp_path / "run"
    arguments = ("compare", "filter-on", "my_policies:copied", *SMALL, "--duration", "2", "--json", "--out", str(out))
    code, stdout, err = run_command(*arguments, timeout_s=120, cwd=tmp_path)

    assert code in (0, 3), err
    result = json.loads(stdout)
    assert result["equality"]["state"] == "equal"
    assert result["arms"]["my_policies:copied"]["policy"] == "my_policies:copied"
    assert result["arms"]["my_policies:copied"]["cpu_us_per_chunk"]["mean"] > 0


def test_ctrl_c_keeps_what_was_measured(tmp_path: Path) -> None:
    out = tmp_path / "run"
    process = start("compare", *SMALL, "--duration", "60", "--json", "--out", str(out))
    wait_until_measuring(process)
    process.send_signal(signal.SIGINT)
    code, stdout, err = finish(process, 60)

    result = json.loads(stdout)
    assert code in (0, 3), err
    assert read(out, "manifest.json")["interrupted"] is True
    assert "interrupted" in {reason["code"] for reason in result["verdict"]["reasons"]}
    assert result["rounds"]["planned"] == 66
    assert len((out / "blocks.jsonl").read_text().splitlines()) >= 3
    assert result["client"]["streams"]["ok"] == 40
    assert (out / "report.html").exists()


@pytest.mark.parametrize("victim", ["sim.gen_server", "sim.ctx_server", "sim.orchestrator", "locustfile.py"])
def test_a_process_that_dies_is_named_and_what_was_measured_stays(victim: str, tmp_path: Path) -> None:
    out = tmp_path / "run"
    process = start("compare", *SMALL, "--duration", "60", "--json", "--out", str(out))
    wait_until_measuring(process)
    os.kill(child_pid(process, victim), signal.SIGKILL)
    code, stdout, err = finish(process, 90)

    name = {"sim.gen_server": "gen0", "sim.ctx_server": "ctx0", "sim.orchestrator": "orchestrator"}.get(
        victim, "locust"
    )
    assert code == 3, err
    assert f"error: {name} was killed by SIGKILL" in err
    result = json.loads(stdout)
    assert result["verdict"]["state"] == "void"
    assert any(name in reason["text"] for reason in result["verdict"]["reasons"])
    if victim != "sim.orchestrator":  # the ledger of blocks lives there
        assert len((out / "blocks.jsonl").read_text().splitlines()) >= 3
    assert not [
        child for child in psutil.process_iter(["cmdline"]) if str(out) in " ".join(child.info["cmdline"] or [])
    ]


def test_children_end_with_an_experiment_that_is_killed(tmp_path: Path) -> None:
    process = start("compare", *SMALL, "--duration", "60", "--out", str(tmp_path / "run"))
    wait_until_measuring(process)
    children = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    finish(process, 10)
    _, alive = psutil.wait_procs(children, timeout=20)

    assert len(children) >= 4
    assert alive == []


def test_further_process_starts_show_their_spread(tmp_path: Path) -> None:
    _, result, _ = compare(tmp_path, "--duration", "4", "--restarts", "1")

    assert result["restarts"]["starts"] == 2
    spread = result["restarts"]["differences"][0]
    assert (spread["a"], spread["b"]) == ("filter-off", "filter-on")
    assert len(spread["estimates"]) == 2
    assert read(tmp_path / "run" / "start-2", "client.json")["streams"]["ok"] == 40


def test_a_load_that_the_box_cannot_hold_is_stepped_down_and_the_run_says_so(tmp_path: Path) -> None:
    out = tmp_path / "run"
    too_much = ("--set", "streams=60", "--set", "tok_s=2000", "--set", "output_tokens=10000000", "--set", "ramp_s=0.5")
    arguments = (
        "compare",
        *too_much,
        "--warmup",
        "1",
        "--block",
        "0.3",
        "--duration",
        "2",
        "--json",
        "--out",
        str(out),
    )
    code, stdout, err = run_command(*arguments, timeout_s=150)

    assert code in (0, 3), err
    manifest = read(out, "manifest.json")
    streams = manifest["scenario"]["load"]["streams"]
    assert streams in (42, 29, 20, 14)
    assert manifest["asked_chunks_per_s"] == pytest.approx(streams * 2000)
    assert manifest["notes"][0].startswith("stepped down from 60 to 42 streams: this machine relayed ")
    assert "stepped down from 60 to 42 streams" in err
    texts = [reason["text"] for reason in json.loads(stdout)["verdict"]["reasons"]]
    assert any("stepped down from 60 to 42 streams" in text for text in texts)


def test_two_runs_at_once_do_not_meet(tmp_path: Path) -> None:
    arguments = ["run", "smoke", "--duration", "2", "--json", "--out"]
    processes = [start(*arguments, str(tmp_path / name)) for name in ("one", "two")]
    for process in processes:
        code, stdout, err = finish(process, 90)

        assert code in (0, 3), err
        streams = json.loads(stdout)["client"]["streams"]
        assert streams["started"] == streams["ok"] > 0


def test_a_replayed_trace_accounts_for_every_stream(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    rows = [
        f"2023-11-16 18:15:{second:02d}.{ms:03d}0000,{100 + second},{3 + second}"
        for second in range(4)
        for ms in (0, 300)
    ]
    trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\r\n" + "\r\n".join(rows) + "\r\n")
    out = tmp_path / "run"
    arguments = ("run", "azure-conv", "--set", f"trace={trace}", "--set", "itl_ms=10", "--duration", "10", "--json")
    code, stdout, err = run_command(*arguments, "--out", str(out), timeout_s=90)

    assert code in (0, 3), err
    result = json.loads(stdout)
    assert result["schema"] == "disagg-sim/run/1"
    assert result["client"]["streams"]["started"] == result["client"]["streams"]["ok"] == 8
    lines = [json.loads(line) for line in (out / "streams.jsonl").read_text().splitlines()]
    assert sorted((line["prompt_tokens"], line["tokens"]) for line in lines) == sorted(
        (100 + second, 3 + second) for second in range(4) for _ in range(2)
    )


def test_a_report_can_be_made_again(tmp_path: Path) -> None:
    _, result, _ = compare(tmp_path, "--duration", "2")
    for name in ("result.json", "report.html"):
        (tmp_path / "run" / name).unlink()
    code, stdout, err = run_command("report", str(tmp_path / "run"), "--json")

    assert code in (0, 3), err
    assert json.loads(stdout) == result
