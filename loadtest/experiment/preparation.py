"""What every verb does before it starts anything: a run directory, and in it the manifest of what is to be run."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from typing import Any

from loadtest.experiment.baseline import BASELINE_FILE
from loadtest.experiment.fail_if_plan import planned_gates
from loadtest.experiment.host import host_facts, versions
from loadtest.experiment.rundir import RunDirectory
from loadtest.experiment.topology import Pinning, Topology, pinning_of, usable_cpus
from loadtest.load_files import notes_of
from loadtest.scenario import Scenario
from loadtest.socket_limits import descriptors_of_a_relay, raise_descriptor_limit, relay_shortfall
from sim.core.settings import SettingError

__all__ = ["head_of", "prepare", "scenario_json", "worker_notes"]


def prepare(
    options: argparse.Namespace, scenario: Scenario, plan: dict[str, Any], kind: str | None = None
) -> tuple[RunDirectory, Topology]:
    """The run's directory, its manifest written, and the topology to start; ``kind`` is the verb unless given.

    SettingError, and no directory, if the orchestrator could not hold all the streams, and for gates or a baseline that
    can't be used.
    """
    workers = getattr(options, "orchestrator_workers", 1)
    _check_descriptors(scenario, workers)
    cpus = usable_cpus()
    pinning = pinning_of(cpus, wanted=not options.no_pin, workers=workers)
    manifest = {
        **head_of(pinning),
        "orchestrator_workers": workers,
        "scenario": scenario_json(scenario),
        "seed": scenario.load.seed,
        "notes": [*notes_of(scenario.load), *worker_notes(pinning, workers)],
        **plan,
    }
    expressions, earlier = planned_gates(options, kind or options.verb, manifest)
    run = RunDirectory.create(options.out, kind or options.verb, {**manifest, "fail_if": expressions})
    if earlier is not None:
        run.write_json(BASELINE_FILE, earlier)
    return run, Topology(run.path, pinning)


def scenario_json(scenario: Scenario) -> dict[str, Any]:
    """A scenario as a manifest holds it, every setting of it."""
    return {
        "name": scenario.name,
        "description": scenario.description,
        **{table: dataclasses.asdict(settings) for table, settings in scenario.tables().items()},
    }


def worker_notes(pinning: Pinning, workers: int) -> list[str]:
    """What the machine cannot certify of an orchestrator of several processes, if there is anything."""
    cpus = len(pinning.orchestrator)
    if not cpus or cpus >= workers:
        return []
    note = (
        f"{workers} workers of the orchestrator share {cpus} CPU{'s' if cpus > 1 else ''} and wait for one another: "
        f"their lag, and what they would carry with a CPU each, cannot be certified here; that takes {workers + 1} CPUs"
    )
    return [note]


def head_of(pinning: Pinning) -> dict[str, Any]:
    """What every run's manifest says."""
    return {
        "command": ["disagg-sim", *sys.argv[1:]],
        "versions": versions(),
        "host": {**host_facts(), "pinning": _pinning_json(pinning)},
        "interrupted": False,
        "failure": None,
    }


def _check_descriptors(scenario: Scenario, workers: int) -> None:
    streams = scenario.load.streams_at_once
    descriptors = raise_descriptor_limit(descriptors_of_a_relay(streams, workers))
    reason = relay_shortfall(streams, workers, descriptors)
    if reason is not None:
        raise SettingError(f"--streams: {reason}")


def _pinning_json(pinning: Pinning) -> dict[str, list[int]]:
    return {"orchestrator": sorted(pinning.orchestrator), "others": sorted(pinning.others)}
