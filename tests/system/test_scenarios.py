"""Every scenario by its name, shortened and made small: it runs to its end, its streams are right, its counts agree."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from loadtest.scenario import scenario_names
from tests.system.conftest import run_command

pytestmark = [pytest.mark.system, pytest.mark.timeout(120)]

SHORT_S = 3
SMALL = {
    "smoke": {},
    "seed": {"streams": 50, "ramp_s": 0.5},
    "steady": {"output_tokens": 40},
    "ramp-to-limit": {"end_request_rate": 30, "output_tokens": 40},
    "burst-start": {"burst_size": 200, "output_tokens": 10},
    "lockstep": {"streams": 50, "ramp_s": 0.5},
    "long-context": {"output_tokens": 5, "output_tokens_max": 20},
    "azure-code": {"tok_s": 100, "stop_timeout_s": 8},
    "azure-conv": {"tok_s": 100, "stop_timeout_s": 8},
    "mooncake": {"tok_s": 100, "stop_timeout_s": 8},
    "cancel-storm": {"output_tokens": 80},
    "soak": {"output_tokens": 10, "output_tokens_max": 60},
}
# A busy machine may make any run suspect or void, and each of these says that it was busy.
MACHINE = ("_cpu_starvation", "_throttled", "_saturated", "_cpu", "_lateness", "_loop_lag", "_rate")


def test_no_scenario_is_left_out() -> None:
    assert sorted(SMALL) == scenario_names()


def run(name: str, out: Path) -> tuple[int, dict[str, Any]]:
    sets = [word for key, value in SMALL[name].items() for word in ("--set", f"{key}={value}")]
    arguments = ["run", name, "--duration", str(SHORT_S), "--json", "--out", str(out), *sets]
    code, stdout, err = run_command(*arguments, timeout_s=60)
    assert code in (0, 3), err
    return code, json.loads(stdout)


@pytest.mark.parametrize("name", scenario_names())
def test_a_scenario_runs_by_name_and_its_counts_agree(name: str, tmp_path: Path) -> None:
    code, result = run(name, tmp_path / "run")
    streams, reconciliation = result["client"]["streams"], result["reconciliation"]
    reasons = [reason for reason in result["verdict"]["reasons"] if reason["state"] != "note"]

    assert streams["failed"] == {}
    assert streams["aborted"] == 0
    assert streams["ok"] + streams["cancelled"] == streams["started"] == streams["planned"] > 0
    assert (streams["cancelled"] > 0) == (name == "cancel-storm")
    assert reconciliation["state"] == ("within" if name == "cancel-storm" else "equal"), reconciliation["rows"]
    assert all(row["holds"] for row in reconciliation["rows"])
    told = [row for row in reconciliation["rows"] if row["what"] == "cached tokens told"]
    assert [row["equal"] for row in told] == [] if name == "cancel-storm" else [True]
    assert [r["code"] for r in reasons if r["code"] != "steal" and not r["code"].endswith(MACHINE)] == []
    assert code == 3 if result["verdict"]["state"] == "void" else code == 0
