"""`disagg-sim micro` as real processes: its files, a plug-in, bad input, Ctrl-C."""

from __future__ import annotations

import contextlib
import json
import signal
import time
from pathlib import Path

import pytest

from tests.system.conftest import finish, run_command, start

pytestmark = pytest.mark.system


def test_each_figure_comes_from_fresh_processes_and_is_kept(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def policy(ctx_usage):\n    return lambda event: event\n")
    out = tmp_path / "run"
    options = ("--sizes", "258,1024", "--usage", "null,final", "--processes", "2", "--json", "--out", str(out))
    code, stdout, err = run_command("micro", "prefilter-tail", "mine:policy", *options, cwd=tmp_path)

    assert code == 0, err
    result = json.loads(stdout)
    assert result == json.loads((out / "result.json").read_text())
    assert result["schema"] == "disagg-sim/micro/1"
    assert [(cell["policy"], cell["usage"], cell["size"]) for cell in result["cells"]] == [
        ("prefilter-tail", "null", 258),
        ("prefilter-tail", "null", 1024),
        ("mine:policy", "null", 258),
        ("mine:policy", "null", 1024),
        ("prefilter-tail", "final", 258),
        ("mine:policy", "final", 258),
    ]
    assert {cell["processes"] for cell in result["cells"]} == {2}
    assert result["processes"]["measured"] == 8
    assert all(0 < c["us_per_chunk"]["low"] <= c["us_per_chunk"]["median"] for c in result["cells"])
    assert json.loads((out / "manifest.json").read_text())["policies"] == ["prefilter-tail", "mine:policy"]

    code, text, err = run_command("report", str(out))
    assert code == 0, err
    assert "mine:policy" in text


def test_ctrl_c_keeps_what_was_measured(tmp_path: Path) -> None:
    out = tmp_path / "run"
    process = start(
        "micro", "parse", "--sizes", "258", "--processes", "1000", "--json", "--out", str(out), cwd=tmp_path
    )
    assert process.stderr is not None
    while not process.stderr.readline().startswith("process 2 "):
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    code, stdout, err = finish(process, 30)

    assert code == 0, err
    assert json.loads(stdout)["interrupted"] is True
    assert len(json.loads(stdout)["cells"]) == 4
    assert json.loads((out / "manifest.json").read_text())["interrupted"] is True
    assert _still_running_in(tmp_path) == []


def _still_running_in(folder: Path) -> list[str]:
    """Processes of whatever parent whose working directory this is, a moment later."""
    time.sleep(0.2)
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdecimal() and (entry / "cwd").readlink() == folder:
                found.append((entry / "cmdline").read_text())
    return found


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nope"], ["'nope'", "prefilter-tail", "package.module:callable"]),
        (["parse", "parse"], ["parse is named twice"]),
        (["--sizes", "3"], ["'3'", "150 to 1048576"]),
        (["--usage", "some"], ["'some'", "absent, null, final, continuous"]),
        (["parse", "--sizes", "150", "--usage", "continuous", "--processes", "1"], ["larger than every size"]),
    ],
)
def test_bad_input_is_refused_with_what_is_allowed(arguments: list[str], words: list[str], tmp_path: Path) -> None:
    code, out, err = run_command("micro", *arguments, cwd=tmp_path)

    assert (code, out) == (2, "")
    assert "Traceback" not in err
    for word in words:
        assert word in err
