"""An instruction count: from processes' totals to figures, what is refused, and what cachegrind leaves behind."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from loadtest.experiment import __main__ as command
from loadtest.experiment import cachegrind
from loadtest.experiment.instruction_figures import count_figures, count_text
from loadtest.experiment.text import WIDTH
from loadtest.scenario import load_scenario
from sim.core.settings import OrchestratorSettings, describe
from sim.orchestrator.policies import BUILTIN

START, OTHER = 2_700_000_000, 50_000_000  # instructions of the start, and of what all processes do alike
LIMITS = Path(__file__).parents[2] / "docs" / "instruction-limits.toml"
EQUAL = {"state": "equal", "streams": 24, "policies": {}, "dead_path": []}
CHURN_TOKENS = 4


def record(arm: str, load: str, per_chunk: int, per_request: int, repeat: int = 0, **changes: Any) -> dict[str, Any]:
    """What is recorded of a process whose chunks and requests cost exactly so much."""
    requests = 105 if load == "requests" else 25
    chunks = 4420 if load == "chunks" else 420 + CHURN_TOKENS * (requests - 25)
    return {
        "arm": arm,
        "repeat": repeat,
        "load": load,
        "instructions": START + OTHER + chunks * per_chunk + requests * per_request,
        "chunks": chunks,
        "requests": requests,
        "reads": chunks + 2 * requests,
        "reads_due": chunks + requests,
        "events": chunks + 3 * requests,
        "failures": [],
        "lived_s": 5.0,
        **changes,
    }


def count(arm: str, per_chunk: int, per_request: int, repeat: int = 0) -> list[dict[str, Any]]:
    return [record(arm, load, per_chunk, per_request, repeat) for load in ("base", "chunks", "requests")]


def run_directory(path: Path, records: list[dict[str, Any]], gate: Any = EQUAL, **manifest: Any) -> Path:
    head = {
        "schema": "disagg-sim/manifest/1",
        "kind": "instructions",
        "command": ["disagg-sim"],
        "started": "2026-01-01T00:00:00+00:00",
        "scenario": {"name": "seed", "orchestrator": {"engine": "stream"}},
        "seed": 1,
        "versions": {},
        "host": {},
        "repeats": 1,
        "arms": [{"name": "filter-off", "policy": "filter-off"}, {"name": "filter-on", "policy": "filter-on"}],
        **manifest,
    }
    (path / "manifest.json").write_text(json.dumps(head))
    (path / "counts.jsonl").write_text("".join(json.dumps(line) + "\n" for line in records))
    if gate is not None:
        (path / "equality.json").write_text(json.dumps(gate))
    return path


def test_start_up_and_whatever_both_processes_do_cancels(tmp_path: Path) -> None:
    records = count("filter-off", 100_000, 2_000_000) + count("filter-on", 60_000, 1_900_000)
    result = count_figures(run_directory(tmp_path, records))

    assert result["schema"] == "disagg-sim/instructions/1"
    assert result["verdict"] == {"state": "valid", "reasons": []}
    off, on = result["arms"]["filter-off"], result["arms"]["filter-on"]
    assert (off["policy"], off["engine"], off["spread"]) == ("filter-off", "stream", None)
    assert (off["user_instructions_per_chunk"], off["user_instructions_per_request"]) == (100_000, 2_000_000)
    assert (on["user_instructions_per_chunk"], on["user_instructions_per_request"]) == (60_000, 1_900_000)
    assert result["differences"] == [
        {
            "a": "filter-off",
            "b": "filter-on",
            "user_instructions_per_chunk": 40_000,
            "relative": pytest.approx(2 / 3),
            "user_instructions_per_request": 100_000,
        }
    ]


def test_repeats_give_the_median_and_their_spread(tmp_path: Path) -> None:
    costs = [60_000, 61_200, 60_600]
    records = [line for repeat, cost in enumerate(costs) for line in count("filter-on", cost, 1_900_000, repeat)]
    arms = [{"name": "filter-on", "policy": "filter-on"}]
    arm = count_figures(run_directory(tmp_path, records, arms=arms))["arms"]["filter-on"]

    assert arm["user_instructions_per_chunk"] == 60_600
    assert arm["spread"]["user_instructions_per_chunk"] == pytest.approx(1_200 / 60_600)
    assert arm["spread"]["user_instructions_per_request"] == 0
    assert [repeat["user_instructions_per_chunk"] for repeat in arm["repeats"]] == costs


def test_an_arm_without_a_complete_count_voids_the_run_and_has_no_figure(tmp_path: Path) -> None:
    records = count("filter-off", 100_000, 2_000_000) + count("filter-on", 60_000, 1_900_000)[:2]
    result = count_figures(run_directory(tmp_path, records, interrupted=True))

    assert [reason["code"] for reason in result["verdict"]["reasons"]] == ["not_counted", "interrupted"]
    assert result["verdict"]["state"] == "void"
    assert result["arms"]["filter-off"]["user_instructions_per_chunk"] == 100_000
    assert result["arms"]["filter-on"]["user_instructions_per_chunk"] is None
    assert result["differences"][0]["user_instructions_per_chunk"] is None
    assert "filter-on" in count_text(result)


@pytest.mark.parametrize(
    ("changes", "gate", "state", "code"),
    [
        ({"reads": 4200}, EQUAL, "suspect", "merged_reads"),
        ({"reads": 0}, EQUAL, "valid", None),  # an engine that counts no reads
        ({"failures": ["status 500"]}, EQUAL, "void", "failed_streams"),
        ({}, None, "void", "equality_not_run"),
        ({}, {**EQUAL, "state": "differs"}, "void", "equality"),
    ],
)
def test_what_a_count_is_not_believed_for(
    changes: dict[str, Any], gate: Any, state: str, code: str | None, tmp_path: Path
) -> None:
    records = count("filter-off", 100_000, 2_000_000) + count("filter-on", 60_000, 1_900_000)
    records[1] |= changes
    verdict = count_figures(run_directory(tmp_path, records, gate))["verdict"]

    assert verdict["state"] == state
    assert [reason["code"] for reason in verdict["reasons"]] == ([] if code is None else [code])


def test_the_text_shows_every_figure_within_its_width(tmp_path: Path) -> None:
    records = count("filter-off", 100_000, 2_000_000) + count("filter-on", 60_000, 1_900_000)
    text = count_text(count_figures(run_directory(tmp_path, records)))

    assert text.startswith("VERDICT: VALID")
    assert "filter-off         stream    100,000       -    2,000,000       -       1" in text
    assert "filter-off - filter-on    +40,000  +66.7 %     +100,000" in text
    assert max(map(len, text.splitlines())) <= WIDTH


def test_report_rebuilds_a_count_from_its_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = count("filter-off", 100_000, 2_000_000) + count("filter-on", 60_000, 1_900_000)
    code = command.main(["report", str(run_directory(tmp_path, records)), "--json"])

    assert code == 0
    assert json.loads(capsys.readouterr().out) == json.loads((tmp_path / "result.json").read_text())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--duration", "10"], "--duration: --counter instructions has a load of its own and no blocks; leave it out"),
        (["--rate", "10"], "--rate: --counter instructions has a load of its own and no blocks; leave it out"),
        (["--at-rate", "10"], "--at-rate: --counter instructions has a load of its own and no blocks; leave it out"),
        (["--unix"], "--unix: --counter instructions relays gen's bytes over TCP itself; leave it out"),
        (["--set", "streams=5"], "load.streams: an instruction count has a load of its own (docs/measurement.md)"),
        (
            ["--set", "tok_s=5"],
            "gen.tok_s: an instruction count goes in lockstep with the orchestrator and has no rate",
        ),
        (["--set", "newline=cr"], "gen.newline: an instruction count needs lf; this is cr"),
        (["--set", "stream=false"], "load.stream: instructions per chunk need streams; this is false"),
        (["--engine", "steam"], "--engine: orchestrator.engine: 'steam' is not one of "),
        (["filter-on", "filter-on"], "a policy is named twice: filter-on, filter-on"),
    ],
)
def test_what_a_count_cannot_use_is_refused(
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(cachegrind.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.chdir(tmp_path)
    code = command.main(["compare", "--counter", "instructions", *arguments])

    assert code == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_without_valgrind_it_says_how_to_get_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(cachegrind.shutil, "which", lambda name: None)
    monkeypatch.chdir(tmp_path)

    assert command.main(["compare", "--counter", "instructions"]) == 2
    assert "valgrind is not installed; get it with `apt-get install valgrind`" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_repeats_belong_to_instructions(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["compare", "--repeats", "2"]) == 2
    assert "--repeats: only instructions are counted repeatedly" in capsys.readouterr().err


def test_the_total_is_read_from_cachegrind_s_file(tmp_path: Path) -> None:
    out = tmp_path / "cachegrind.out"
    out.write_text("desc: Trace\nevents: Ir\nfl=a.c\nfn=f\n12 34\nsummary: 2728202736\n")

    assert cachegrind.read_instructions(out) == 2_728_202_736
    out.write_text("events: Ir\nfl=a.c\n")
    for path in (out, tmp_path / "missing"):
        with pytest.raises(ValueError, match="holds no count: the orchestrator did not end in order"):
            cachegrind.read_instructions(path)


def test_limits_are_for_engines_and_policies_that_exist() -> None:
    limits = tomllib.loads(LIMITS.read_text())
    engines = next(row.allowed for row in describe(OrchestratorSettings) if row.name == "engine").split(", ")

    assert set(limits) <= set(engines)
    assert load_scenario("seed", []).orchestrator.engine in limits
    for policies in limits.values():
        assert set(policies) <= set(BUILTIN)
        for limit in policies.values():
            assert set(limit) == {"user_instructions_per_chunk", "user_instructions_per_request"}
