"""``disagg-sim capacity`` from its options to its exit code, and the same end for ``disagg-sim report``."""

from __future__ import annotations

import argparse
import asyncio
import json
from pathlib import Path

from loadtest.experiment import capacity
from loadtest.experiment.capacity_report import write_capacity_report
from loadtest.experiment.capacity_result import fold_capacity
from loadtest.experiment.capacity_text import render_capacity
from loadtest.experiment.exit_codes import EXIT_DONE, EXIT_VOID
from loadtest.experiment.options_capacity import planned_capacity
from loadtest.experiment.preparation import head_of, scenario_json
from loadtest.experiment.rundir import RunDirectory, write_whole
from loadtest.experiment.steps import progress
from loadtest.experiment.topology import pinning_of, usable_cpus

__all__ = ["conclude_capacity", "run_capacity"]


def run_capacity(options: argparse.Namespace) -> int:
    """Measure, then conclude; the exit code."""
    scenario, plan = planned_capacity(options)
    workers = max(options.orchestrator_workers)
    pinning = pinning_of(usable_cpus(), wanted=not options.no_pin, workers=workers)
    manifest = {**head_of(pinning), "scenario": scenario_json(scenario), "seed": scenario.load.seed, **plan}
    run = RunDirectory.create(options.out, options.verb, manifest)
    asyncio.run(capacity.measure(options, scenario, run))
    return conclude_capacity(run.path, options.json)


def conclude_capacity(run_dir: Path, as_json: bool) -> int:
    """Fold the run directory into result.json and report.html, print it, and judge."""
    manifest = json.loads((run_dir / "manifest.json").read_text())
    result = fold_capacity(run_dir, manifest)
    write_whole(run_dir / "result.json", json.dumps(result, indent=1) + "\n")
    report = write_capacity_report(run_dir, manifest, result)
    if as_json:
        print(json.dumps(result))
        progress(f"report: {report}")
    else:
        print(render_capacity(result, report))
    return EXIT_VOID if result["verdict"]["state"] == "void" else EXIT_DONE
