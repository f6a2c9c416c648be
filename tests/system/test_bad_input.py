"""What cannot be used is refused with status 2, by name, with what is allowed, and before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.system.conftest import run_command

pytestmark = pytest.mark.system

CASES = {
    "unknown verb": (["certify"], ["'certify'", "compare"]),
    "unknown scenario": (["compare", "--scenario", "nope"], ["nope", "seed", "smoke"]),
    "unknown policy": (["compare", "filter-off", "nope"], ["'nope'", "parse", "prefilter", "verbatim"]),
    "policy twice": (["compare", "filter-on", "filter-on"], ["twice", "filter-on"]),
    "one policy under two names": (["compare", "filter-off", "parse"], ["filter-off and parse are one policy"]),
    "plug-in that is not there": (["compare", "filter-off", "no.such:thing"], ["no.such"]),
    "verbatim without gen's help": (["compare", "filter-off", "verbatim"], ["usage_by=gen"]),
    "unknown policy to profile": (["profile", "nope"], ["'nope'", "parse", "prefilter", "verbatim"]),
    "profile without the CPU": (["profile", "--no-pin"], ["--no-pin", "share one CPU"]),
    "unknown key": (["compare", "--set", "usagee=null"], ["usagee"]),
    "value not allowed": (["compare", "--set", "usage=maybe"], ["usage", "'maybe'", "absent, null, final, continuous"]),
    "value out of range": (["compare", "--set", "cache_hit_ratio=2"], ["cache_hit_ratio", "0 to 1"]),
    "no equals sign": (["compare", "--set", "usage"], ["usage", "key=value"]),
    "duration not a number": (["compare", "--duration", "long"], ["'long'", "number above 0"]),
    "duration too short": (["compare", "--duration", "0.5"], ["--duration", "0.5"]),
    "trace that is not there": (
        ["run", "azure-conv", "--set", "trace=/no/such.csv", "--duration", "5"],
        ["/no/such.csv"],
    ),
    "gate that is no condition": (["compare", "--fail-if", "1 >"], ["column 4", "a number, a figure"]),
    "gate on a figure that is not there": (["compare", "--fail-if", "cost > 1"], ["cost", "cpu_us_per_chunk"]),
    "gate on an arm that is not there": (["run", "smoke", "--fail-if", "core_share(x) > 1"], ["core_share", "ttft"]),
    "baseline that is not there": (["run", "smoke", "--baseline", "/no/such"], ["--baseline", "/no/such"]),
    "nothing to relax": (["run", "smoke", "--baseline-any"], ["--baseline-any", "--baseline"]),
    "history of nothing": (["history", "/no/such", "--csv", "h.csv"], ["/no/such"]),
    "not a run directory": (["report", "/"], ["manifest.json"]),
}


@pytest.mark.parametrize(("arguments", "words"), CASES.values(), ids=CASES)
def test_refused_with_status_2_and_the_reason(arguments: list[str], words: list[str], tmp_path: Path) -> None:
    code, out, err = run_command(*arguments, cwd=tmp_path)

    assert code == 2, (out, err)
    assert out == ""
    assert "Traceback" not in err
    for word in words:
        assert word.lower() in err.lower(), err


def test_a_run_directory_in_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("kept")
    code, _, err = run_command("run", "smoke", "--out", str(tmp_path), cwd=tmp_path)

    assert code == 2
    assert "not empty" in err
    assert (tmp_path / "precious").read_text() == "kept"
