"""Every scenario by its name, shortened and made small: it runs to its end, its streams are right, its counts agree."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from loadtest.scenario import scenario_names
from tests.system.conftest import run_command

pytestmark = [pytest.mark.system, pytest.mark.timeout(180)]

SHORT_S = 3
AT_ONCE = 3
BLOCK_TOKENS = 512
RECORDING = Path(__file__).parents[3] / "shared" / "traces" / "mooncake_fast25_conversation_head240.jsonl"
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
    for attempt in range(3):
        arguments = ["run", name, "--duration", str(SHORT_S), "--json", "--out", str(out / str(attempt)), *sets]
        code, stdout, err = run_command(*arguments, timeout_s=90)
        if "address in use" not in err:
            break  # else a run beside it took the port between its choice and its use
    assert code in (0, 3), err
    return code, json.loads(stdout)


@pytest.fixture(scope="module")
def runs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[tuple[int, dict[str, Any]]]]]:
    """A run of each scenario that is to be tested, some at a time: most of a short run is waiting."""
    here = [item for item in request.session.items if item.fspath == request.fspath]
    names = [item.callspec.params["name"] for item in here if hasattr(item, "callspec")]
    folder = tmp_path_factory.mktemp("scenarios")
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {name: pool.submit(run, name, folder / name) for name in names}


@pytest.mark.parametrize("name", scenario_names())
def test_a_scenario_runs_by_name_and_its_counts_agree(
    name: str, runs: dict[str, Future[tuple[int, dict[str, Any]]]]
) -> None:
    code, result = runs[name].result()
    streams, reconciliation = result["client"]["streams"], result["reconciliation"]
    rows = {row["what"]: row for row in reconciliation["rows"]}
    reasons = [reason for reason in result["verdict"]["reasons"] if reason["state"] != "note"]

    assert streams["failed"] == {}
    assert streams["aborted"] == 0
    assert streams["ok"] + streams["cancelled"] == streams["started"] == streams["planned"] > 0
    assert all(row["holds"] for row in rows.values()), rows
    if name == "cancel-storm":
        assert reconciliation["state"] in ("equal", "within")
        assert rows["replies cancelled"]["gen"] == rows["replies cancelled"]["client"] == streams["cancelled"] > 20
        assert "cached tokens told" not in rows  # nobody heard those of cancelled streams
    else:
        assert reconciliation["state"] == "equal", rows
        assert streams["cancelled"] == 0
        assert rows["cached tokens told"]["equal"]
    assert [r["code"] for r in reasons if r["code"] != "steal" and not r["code"].endswith(MACHINE)] == []
    assert code == (3 if result["verdict"]["state"] == "void" else 0)


def blocks_seen_before(rows: list[dict[str, Any]]) -> int:
    """Full leading blocks of each prompt that an earlier one had, by the recording's own hashes."""
    seen: set[int] = set()
    found = 0
    for row in rows:
        usable = (row["input_length"] - 1) // BLOCK_TOKENS
        found += next((at for at, one in enumerate(row["hash_ids"][:usable]) if one not in seen), usable)
        seen.update(row["hash_ids"])
    return found


@pytest.mark.skipif(not RECORDING.is_file(), reason="the recordings are not part of the project")
def test_a_replay_finds_in_ctx_what_the_recordings_hashes_say(tmp_path: Path) -> None:
    sets = ["--set", "tok_s=200", "--set", "stop_timeout_s=8"]
    replay = ["--trace", str(RECORDING), "--speed", "4", "--duration", "4"]
    code, stdout, err = run_command("run", "mooncake", *replay, *sets, "--json", "--out", str(tmp_path), timeout_s=90)
    assert code in (0, 3), err
    result = json.loads(stdout)
    counters = json.loads((tmp_path / "counters.json").read_text())["ctx0"]
    rows = [json.loads(line) for line in RECORDING.read_text().splitlines()][: result["client"]["streams"]["started"]]

    assert len(rows) > 20
    assert result["client"]["streams"]["failed"] == {}
    # Two prompts that overtake each other on their way do not change the sum.
    assert counters["prompt_tokens"]["cached"] == BLOCK_TOKENS * blocks_seen_before(rows) > 0
    assert sum(counters["prompt_tokens"].values()) == sum(row["input_length"] for row in rows)
    told = next(row for row in result["reconciliation"]["rows"] if row["what"] == "cached tokens told")
    assert told["ctx"] == told["client"] == counters["prompt_tokens"]["cached"]
