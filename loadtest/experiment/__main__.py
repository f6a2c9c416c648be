"""The command ``disagg-sim``: from words to a verb, from its end to an exit code.

0 done, 1 an error of ours, 2 usage or configuration, 3 the run is void (doctor: every run would be),
4 a --fail-if tripped.
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

from loadtest.experiment import compare, doctor, history, micro, profile, run_load
from loadtest.experiment.cachegrind import check_valgrind
from loadtest.experiment.capacity_verb import run_capacity
from loadtest.experiment.conclusions import (
    CONCLUSIONS,
    conclude,
    conclude_count,
    conclude_micro,
    conclude_profile,
)
from loadtest.experiment.exit_codes import EXIT_DONE, EXIT_ERROR, EXIT_USAGE, EXIT_VOID
from loadtest.experiment.instructions import count_instructions, counted_scenario, refuse_block_options
from loadtest.experiment.options import parser
from loadtest.experiment.overrides import (
    check_run_ends,
    check_shared_cap,
    check_streams_outlive,
    lasting,
    scenario_from,
    settled_after_s,
)
from loadtest.experiment.preparation import head_of, prepare
from loadtest.experiment.processes import ChildFailedError
from loadtest.experiment.profile_sampler import find_sampler
from loadtest.experiment.rounds import arms_with_control
from loadtest.experiment.rundir import RunDirectory, RunDirectoryError
from loadtest.experiment.scenario_pages import scenario_list, scenario_page
from loadtest.experiment.steps import progress
from loadtest.experiment.topology import pinning_of, usable_cpus
from loadtest.experiment.warmup import asked_chunks_per_s
from loadtest.scenario import load_scenario
from sim.core.settings import SettingError

__all__ = ["main"]

MARGIN_S = 10.0  # of load after the last block


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
    run, topology = prepare(options, scenario, plan)
    first = run
    asyncio.run(compare.measure(options, scenario, run, topology))
    for number in range(options.restarts):
        if run.manifest["interrupted"] or run.manifest["failure"]:
            break
        options.out = str(first.path / f"start-{number + 2}")
        options.fail_if, options.baseline, options.baseline_any = (
            [],
            None,
            False,
        )  # the first start's figures are judged
        run, topology = prepare(options, scenario, plan)
        progress(f"process start {number + 2} of {options.restarts + 1}")
        try:
            asyncio.run(compare.measure(options, scenario, run, topology))
        except ChildFailedError as error:
            progress(f"error: process start {number + 2}: {error}")  # the first start's figures stand
            break
    return conclude(first.path, options.json)


def _count(options: argparse.Namespace) -> int:
    refuse_block_options(options)
    check_valgrind()
    scenario = counted_scenario(scenario_from(options), options.scenario)
    try:
        arms = arms_with_control(options.policies)[:-1]  # a count needs no A/A arm
    except ValueError as error:
        raise SettingError(str(error)) from None
    plan = {"arms": [dataclasses.asdict(arm) for arm in arms], "repeats": options.repeats or 1}
    run, _ = prepare(options, scenario, plan, kind="instructions")
    asyncio.run(count_instructions(options, scenario, run))
    return conclude_count(run.path, options.json)


def _run(options: argparse.Namespace) -> int:
    scenario = scenario_from(options)
    check_run_ends(scenario)
    check_shared_cap(scenario.load, options.workers)
    run, topology = prepare(options, scenario, {"asked_chunks_per_s": asked_chunks_per_s(scenario)})
    asyncio.run(run_load.drive(options, scenario, run, topology))
    return conclude(run.path, options.json)


def _profile(options: argparse.Namespace) -> int:
    command = find_sampler()
    scenario, plan = profile.planned(options, command)
    run, topology = prepare(options, scenario, plan)
    asyncio.run(profile.measure(options, scenario, run, topology, command))
    return conclude_profile(run.path, options.json)


def _doctor(options: argparse.Namespace) -> int:
    result = doctor.examine(quick=options.quick)
    print(json.dumps(result) if options.json else doctor.render_doctor(result))
    return EXIT_VOID if result["state"] == "bad" else EXIT_DONE


def _up(options: argparse.Namespace) -> int:
    seeds = [] if options.seed is None else [f"{table}.seed={options.seed}" for table in ("ctx", "gen")]
    scenario = load_scenario(options.scenario, [*options.overrides, *seeds])
    _, topology = prepare(options, scenario, {})
    asyncio.run(run_load.stay_up(options, scenario, topology))
    return EXIT_DONE


def _micro(options: argparse.Namespace) -> int:
    micro.check(options.policies)
    pinning = pinning_of(usable_cpus(), wanted=not options.no_pin)
    plan = {name: getattr(options, name) for name in ("policies", "sizes", "usage", "processes", "seed")}
    run = RunDirectory.create(options.out, options.verb, {**head_of(pinning), **plan})
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(micro.measure(options, run, pinning.orchestrator))
    return conclude_micro(run.path, options.json)


def _report(options: argparse.Namespace) -> int:
    run_dir = Path(options.run_dir)
    if not (run_dir / "manifest.json").is_file():
        raise RunDirectoryError(f"RUN_DIR: {run_dir} holds no manifest.json, so it is not a run directory")
    try:
        kind = json.loads((run_dir / "manifest.json").read_text()).get("kind")
        return CONCLUSIONS.get(kind, conclude)(run_dir, options.json)
    except (ValueError, OSError) as error:
        raise RunDirectoryError(f"RUN_DIR: {run_dir} cannot be read: {error}") from None


def _scenarios(options: argparse.Namespace) -> int:
    print("\n".join(scenario_list() if options.name is None else scenario_page(options.name)))
    return EXIT_DONE


_VERBS = {
    "compare": _compare,
    "run": _run,
    "micro": _micro,
    "profile": _profile,
    "doctor": _doctor,
    "capacity": run_capacity,
    "up": _up,
    "report": _report,
    "history": history.append,
    "scenarios": _scenarios,
}

if __name__ == "__main__":
    sys.exit(main())
