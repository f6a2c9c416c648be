"""The command ``disagg-sim``: from words to a verb, from its end to an exit code.

0 done, 1 an error of ours, 2 usage or configuration, 3 the run is void (doctor: every run would be).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from loadtest.experiment import compare, doctor, micro, profile, run_load
from loadtest.experiment.cachegrind import check_valgrind
from loadtest.experiment.host import host_facts, versions
from loadtest.experiment.instruction_figures import count_figures, count_text
from loadtest.experiment.instructions import count_instructions, counted_scenario, refuse_block_options
from loadtest.experiment.micro_text import render_micro
from loadtest.experiment.options import parser
from loadtest.experiment.overrides import check_run_ends, check_streams_outlive, lasting, scenario_from, settled_after_s
from loadtest.experiment.processes import ChildFailedError
from loadtest.experiment.profile_sampler import find_sampler
from loadtest.experiment.profile_text import render_profile
from loadtest.experiment.report import write_report
from loadtest.experiment.result import analyze
from loadtest.experiment.rounds import arms_with_control
from loadtest.experiment.rundir import RunDirectory, RunDirectoryError, write_whole
from loadtest.experiment.scenario_pages import scenario_list, scenario_page
from loadtest.experiment.steps import progress
from loadtest.experiment.text import render_text
from loadtest.experiment.topology import Pinning, Topology, pinning_of, usable_cpus
from loadtest.experiment.warmup import asked_chunks_per_s
from loadtest.scenario import Scenario, load_scenario
from sim.core.settings import SettingError

__all__ = ["main"]

MARGIN_S = 10.0  # of load after the last block

EXIT_DONE, EXIT_ERROR, EXIT_USAGE, EXIT_VOID = 0, 1, 2, 3


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; the exit code."""
    options = parser().parse_args(argv)
    try:
        return _VERBS[options.verb](options)
    except (SettingError, RunDirectoryError) as error:
        print(f"disagg-sim: {error}", file=sys.stderr)
        return EXIT_USAGE
    except ChildFailedError as error:
        print(f"disagg-sim: {error}", file=sys.stderr)
        return EXIT_USAGE if error.usage_error else EXIT_ERROR
    except BrokenPipeError:  # the reader of our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_DONE
    except KeyboardInterrupt:
        print(
            "disagg-sim: interrupted; `disagg-sim report RUN_DIR` makes the report from what was kept", file=sys.stderr
        )
        return EXIT_ERROR


def _compare(options: argparse.Namespace) -> int:
    if options.counter == "instructions":
        return _count(options)
    if options.repeats is not None:
        raise SettingError("--repeats: only instructions are counted repeatedly; give --restarts for time")
    scenario = scenario_from(options)
    try:
        arms = arms_with_control(options.policies)
    except ValueError as error:
        raise SettingError(str(error)) from None
    rounds = int(options.duration / (options.block * len(arms)))
    if rounds < 1:
        raise SettingError(
            f"--duration: {options.duration:g} s hold no round of {len(arms)} blocks of {options.block:g} s"
        )
    if options.settle >= options.block:
        raise SettingError(f"--settle: {options.settle:g} s leave nothing of a block of {options.block:g} s")
    options.warmup = max(options.warmup, settled_after_s(scenario))
    lasts_s = options.warmup + options.duration + compare.LEAD_S
    check_streams_outlive(scenario, lasts_s)
    scenario = lasting(scenario, lasts_s + MARGIN_S)
    plan = {
        "arms": [dataclasses.asdict(arm) for arm in arms],
        "rounds_planned": rounds,
        "block_s": options.block,
        "settle_s": options.settle,
        "at_tok_s": options.at_rate,
        "asked_chunks_per_s": asked_chunks_per_s(scenario),
    }
    run, topology = _prepare(options, scenario, plan)
    first = run
    asyncio.run(compare.measure(options, scenario, run, topology))
    for number in range(options.restarts):
        if run.manifest["interrupted"] or run.manifest["failure"]:
            break
        options.out = str(first.path / f"start-{number + 2}")
        run, topology = _prepare(options, scenario, plan)
        progress(f"process start {number + 2} of {options.restarts + 1}")
        try:
            asyncio.run(compare.measure(options, scenario, run, topology))
        except ChildFailedError as error:
            progress(f"error: process start {number + 2}: {error}")  # the first start's figures stand
            break
    return _conclude(first.path, options.json)


def _count(options: argparse.Namespace) -> int:
    refuse_block_options(options)
    check_valgrind()
    scenario = counted_scenario(scenario_from(options), options.scenario)
    try:
        arms = arms_with_control(options.policies)[:-1]  # a count needs no A/A arm
    except ValueError as error:
        raise SettingError(str(error)) from None
    plan = {"arms": [dataclasses.asdict(arm) for arm in arms], "repeats": options.repeats or 1}
    run, _ = _prepare(options, scenario, plan, kind="instructions")
    asyncio.run(count_instructions(options, scenario, run))
    return _conclude_count(run.path, options.json)


def _run(options: argparse.Namespace) -> int:
    scenario = scenario_from(options)
    check_run_ends(scenario)
    run, topology = _prepare(options, scenario, {"asked_chunks_per_s": asked_chunks_per_s(scenario)})
    asyncio.run(run_load.drive(options, scenario, run, topology))
    return _conclude(run.path, options.json)


def _profile(options: argparse.Namespace) -> int:
    command = find_sampler()
    scenario, plan = profile.planned(options, command)
    run, topology = _prepare(options, scenario, plan)
    asyncio.run(profile.measure(options, scenario, run, topology, command))
    return _conclude_profile(run.path, options.json)


def _doctor(options: argparse.Namespace) -> int:
    result = doctor.examine(quick=options.quick)
    print(json.dumps(result) if options.json else doctor.render_doctor(result))
    return EXIT_VOID if result["state"] == "bad" else EXIT_DONE


def _up(options: argparse.Namespace) -> int:
    seeds = [] if options.seed is None else [f"{table}.seed={options.seed}" for table in ("ctx", "gen")]
    scenario = load_scenario(options.scenario, [*options.overrides, *seeds])
    _, topology = _prepare(options, scenario, {})
    asyncio.run(run_load.stay_up(options, scenario, topology))
    return EXIT_DONE


def _micro(options: argparse.Namespace) -> int:
    micro.check(options.policies)
    pinning = pinning_of(usable_cpus(), wanted=not options.no_pin)
    plan = {name: getattr(options, name) for name in ("policies", "sizes", "usage", "processes", "seed")}
    run = RunDirectory.create(options.out, options.verb, {**_head(pinning), **plan})
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(micro.measure(options, run, pinning.orchestrator))
    return _conclude_micro(run.path, options.json)


def _conclude_micro(run_dir: Path, as_json: bool) -> int:
    result = micro.fold(*micro.read(run_dir))
    if not result["cells"]:
        if result["interrupted"]:
            raise KeyboardInterrupt
        raise SettingError(
            f"--sizes: a chunk with usage {', '.join(result['usage'])} is larger than every size asked for"
        )
    write_whole(run_dir / "result.json", json.dumps(result, indent=1) + "\n")
    print(json.dumps(result) if as_json else render_micro(result))
    progress(f"kept in {run_dir}")
    return EXIT_DONE


def _report(options: argparse.Namespace) -> int:
    run_dir = Path(options.run_dir)
    if not (run_dir / "manifest.json").is_file():
        raise RunDirectoryError(f"RUN_DIR: {run_dir} holds no manifest.json, so it is not a run directory")
    try:
        kind = json.loads((run_dir / "manifest.json").read_text()).get("kind")
        return _CONCLUSIONS.get(kind, _conclude)(run_dir, options.json)
    except (ValueError, OSError) as error:
        raise RunDirectoryError(f"RUN_DIR: {run_dir} cannot be read: {error}") from None


def _scenarios(options: argparse.Namespace) -> int:
    print("\n".join(scenario_list() if options.name is None else scenario_page(options.name)))
    return EXIT_DONE


def _prepare(
    options: argparse.Namespace, scenario: Scenario, plan: dict[str, Any], kind: str | None = None
) -> tuple[RunDirectory, Topology]:
    cpus = usable_cpus()
    pinning = pinning_of(cpus, wanted=not options.no_pin)
    manifest = {
        **_head(pinning),
        "scenario": {
            "name": scenario.name,
            "description": scenario.description,
            **{table: dataclasses.asdict(settings) for table, settings in scenario.tables().items()},
        },
        "seed": scenario.load.seed,
        **plan,
    }
    run = RunDirectory.create(options.out, kind or options.verb, manifest)
    return run, Topology(run.path, pinning)


def _head(pinning: Pinning) -> dict[str, Any]:
    """What every run's manifest says."""
    return {
        "command": ["disagg-sim", *sys.argv[1:]],
        "versions": versions(),
        "host": {**host_facts(), "pinning": _pinning_json(pinning)},
        "interrupted": False,
        "failure": None,
    }


def _pinning_json(pinning: Pinning) -> dict[str, list[int]]:
    return {"orchestrator": sorted(pinning.orchestrator), "others": sorted(pinning.others)}


def _conclude(run_dir: Path, as_json: bool) -> int:
    """Fold the run directory into result.json and report.html, print it, and judge."""
    result = analyze(run_dir)
    write_whole(run_dir / "result.json", json.dumps(result, indent=1) + "\n")
    report = write_report(run_dir, result)
    if as_json:
        print(json.dumps(result))
        progress(f"report: {report}")
    else:
        print(render_text(result, report))
    return EXIT_VOID if result["verdict"]["state"] == "void" else EXIT_DONE


def _conclude_count(run_dir: Path, as_json: bool) -> int:
    """Fold an instruction count into result.json, print it, and judge."""
    result = count_figures(run_dir)
    write_whole(run_dir / "result.json", json.dumps(result, indent=1) + "\n")
    print(json.dumps(result) if as_json else count_text(result))
    return EXIT_VOID if result["verdict"]["state"] == "void" else EXIT_DONE


def _conclude_profile(run_dir: Path, as_json: bool) -> int:
    """Fold the run directory into profile.json and flamegraph.svg, print it, and judge."""
    result = profile.write_profile(run_dir)
    print(json.dumps(result) if as_json else render_profile(result, run_dir))
    return EXIT_VOID if result["verdict"]["state"] == "void" else EXIT_DONE


_CONCLUSIONS = {"micro": _conclude_micro, "instructions": _conclude_count, "profile": _conclude_profile}
"""How a run directory of each kind is concluded; those that are not here, by `_conclude`."""

_VERBS = {
    "compare": _compare,
    "run": _run,
    "micro": _micro,
    "profile": _profile,
    "doctor": _doctor,
    "up": _up,
    "report": _report,
    "scenarios": _scenarios,
}

if __name__ == "__main__":
    sys.exit(main())
