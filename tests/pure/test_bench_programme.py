"""What a bench run measures and in which order, what its command line takes, how our programs are started."""

from __future__ import annotations

import json

import pytest

from bench import ours
from bench.__main__ import main
from bench.candidate import Addresses, Candidate, Load
from bench.capacity import LADDER_TOK_S
from bench.document import BEGIN
from bench.programme import Plan, Subjects, jobs_of
from sim.core.settings import GenSettings
from tests.bench_results import manifest, results


def candidate(name, kind="relay"):
    return Candidate(name, kind, lambda: "1", lambda: None, lambda *_: [])


SUBJECTS = Subjects(
    relays=(candidate("stream+parse"), candidate("splice+prefilter-tail"), candidate("nginx")),
    gens=(candidate("mock", "gen"),),
    clients=(),
    missing={},
    lead="splice+prefilter-tail",
    direct=True,
    our_gen=True,
    our_client=True,
    ours=frozenset({"stream+parse", "splice+prefilter-tail"}),
)


def test_passes_are_interleaved_and_climbs_come_last(monkeypatch):
    monkeypatch.setattr(ours, "can_stamp", lambda: True)
    jobs = [(job.table, job.load, job.name, job.number) for job in jobs_of(Plan.full(2, 5.0), SUBJECTS)]

    lead = "splice+prefilter-tail"
    dense = ["direct", "stream+parse", lead, "nginx"]
    assert [name for table, load, name, number in jobs if (table, load, number) == ("relay", "dense", 0)] == dense
    assert [name for table, load, name, number in jobs if (table, load, number) == ("relay", "dense", 1)] == dense
    assert [number for *_, number in jobs[:-3]] == sorted(number for *_, number in jobs[:-3])
    # 3,000 streams take long to open: in every other pass only what the targets need.
    assert [name for table, load, name, number in jobs if (table, load, number) == ("relay", "wide", 0)] == dense
    assert [name for table, load, name, number in jobs if (table, load, number) == ("relay", "wide", 1)] == [
        "direct",
        lead,
    ]
    assert jobs.count(("relay", "plain", lead, 1)) == 1
    assert [name for table, _, name, number in jobs if (table, number) == ("gen", 0)] == ["our gen", "mock"]
    assert jobs[-3:] == [("capacity", "climb", name, 0) for name in ("stream+parse", lead, "nginx")]


def test_a_quick_run_is_a_fraction_of_a_full_one_and_the_ladder_rises():
    full = sum(job.about_s for job in jobs_of(Plan.full(3, 5.0), SUBJECTS))
    quick = sum(job.about_s for job in jobs_of(Plan.quick(1, 1.0), SUBJECTS))

    assert quick < full / 3
    assert tuple(sorted(LADDER_TOK_S)) == LADDER_TOK_S


def test_the_orchestrator_is_started_with_its_engine_and_policy(tmp_path):
    addresses = Addresses(21000, "http://127.0.0.1:1", "http://127.0.0.1:2", second_port=21001)

    argv = ours.orchestrator("stream", "verbatim").argv(addresses, tmp_path, None)

    words = " ".join(argv)
    assert "--listen 127.0.0.1:21000 --ops 127.0.0.1:21001 --ctx http://127.0.0.1:2 --gen http://127.0.0.1:1" in words
    assert words.endswith("--engine stream --policies verbatim --policy verbatim --usage-by gen")


@pytest.mark.parametrize(
    ("judged", "endpoint", "expected"),
    [
        (True, "/v1/chat/completions", ("http://127.0.0.1:3", "chat", True, True)),
        (False, "/v1/completions", ("http://127.0.0.1:3", "completions", False, False)),
        (False, "/proxy/v1/chat/completions", ("http://127.0.0.1:3/proxy", "chat", False, False)),
    ],
)
def test_only_our_relay_is_held_to_usage_and_bytes(tmp_path, judged, endpoint, expected):
    gen = GenSettings(tok_s=15.0)
    plan_of = ours.standing_plan(gen=gen, judged=judged, endpoint=endpoint, drained=True, cache_hit_ratio=0.25)
    plan = plan_of(Addresses(0, target_url="http://127.0.0.1:3", second_port=4), tmp_path, Load(20, 15.0, 1.0, 9.0))

    assert (plan.host, plan.settings.endpoint, plan.usage_by_ctx, plan.settings.include_usage) == expected
    assert plan.gen == gen
    assert plan.settings.sample_every == (100 if judged else 0)
    assert plan.may_end_early
    assert (plan.settings.streams, plan.settings.ramp_s) == (20, 1.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--passes", "0"], "argument --passes: '0' is not a whole number, 1 or more"),
        (["--window", "nan"], "argument --window: 'nan' is not a number above 0"),
        (["--figure", "speed=1"], "argument --figure: 'speed=1' names no figure"),
        (["--figure", "mde=fast"], "argument --figure: 'fast' is not a number above 0"),
    ],
)
def test_a_bad_option_ends_with_status_2(arguments, message, capsys):
    with pytest.raises(SystemExit) as end:
        main(arguments)

    assert end.value.code == 2
    assert message in capsys.readouterr().err


def test_an_unknown_name_is_told_with_those_that_there_are(capsys):
    assert main(["--only", "stream+parse,ngnix"]) == 2

    words = capsys.readouterr().err
    assert "--only: unknown name 'ngnix'; known: direct, stream+parse" in words
    assert "our Locust load" in words


def recorded(run_dir, **changes):
    run_dir.mkdir()
    (run_dir / "manifest.json").write_text(json.dumps(manifest(**changes)))
    (run_dir / "results.jsonl").write_text("".join(json.dumps(cell) + "\n" for cell in results()))
    return run_dir


def test_the_document_is_written_again_from_a_runs_files(tmp_path):
    run_dir, out = recorded(tmp_path / "run"), tmp_path / "benchmarks.md"
    out.write_text("# Benchmarks\n\nInstructions per chunk.\n")

    assert main(["--from", str(run_dir), "--out", str(out), "--figure", "mde=3.1"]) == 0
    once = out.read_text()
    assert main(["--from", str(run_dir), "--out", str(out)]) == 0

    assert out.read_text() == once
    assert once.startswith(f"# Benchmarks\n\nInstructions per chunk.\n\n{BEGIN}\n")
    assert "| `make compare`: mde, % of cost per chunk | <= 4 | <= 2 | 3.10 | yes |" in once


def test_an_interrupted_run_gives_its_document_and_an_error(tmp_path):
    run_dir, out = recorded(tmp_path / "run", interrupted=True), tmp_path / "benchmarks.md"

    assert main(["--from", str(run_dir), "--out", str(out)]) == 1
    assert "The run was interrupted" in out.read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--from", "nowhere"], "nowhere: holds no results of a bench run"),
        (["--from", "other"], "other: is a run of kind 'compare', not bench"),
        (["--from", "run", "--out", "missing/b.md"], "--out: cannot write missing/b.md: no such file or directory"),
    ],
)
def test_files_that_cannot_be_used_end_with_status_2(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    recorded(tmp_path / "run")
    recorded(tmp_path / "other", kind="compare")

    assert main(arguments) == 2
    assert message in capsys.readouterr().err
