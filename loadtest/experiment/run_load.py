"""``disagg-sim run`` and ``up``: one load run of a scenario, or the topology on its own."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json

from loadtest.experiment.load_process import start_load
from loadtest.experiment.overrides import drained_after_s
from loadtest.experiment.ports import free_ports
from loadtest.experiment.processes import ChildProcess
from loadtest.experiment.rundir import RunDirectory
from loadtest.experiment.steps import finish_load, keep_servers_records, progress, recorded, start_topology
from loadtest.experiment.topology import Topology
from loadtest.experiment.watch import InterruptedRunError, Watch
from loadtest.scenario import Scenario

__all__ = ["drive", "stay_up"]


async def drive(options: argparse.Namespace, scenario: Scenario, run: RunDirectory, topology: Topology) -> None:
    """Start the topology, send the scenario's load, keep every record.

    ChildFailedError if the load could not start; what fails later is recorded in the manifest.
    """
    watch = Watch()
    try:
        with recorded(run, watch):
            await start_topology(options, topology, watch, scenario, [scenario.orchestrator.policy])
            load = await start_load(topology, scenario, free_ports(1)[0], workers=options.workers)
            progress(
                f"load: {scenario.name}" + (f", {scenario.load.duration_s:g} s" if scenario.load.duration_s else "")
            )
            watch.load, watch.load_may_end = load, True
            await watch.run(_until_done(scenario, load))
    finally:
        try:
            if watch.load is not None:
                if run.manifest["interrupted"]:
                    # Stop the sending first: requests that come while gen is drained would be cut at their first token.
                    await watch.load.stop()
                await finish_load(topology, watch.load)
            await keep_servers_records(topology, run)
        finally:
            await topology.stop()


async def stay_up(options: argparse.Namespace, scenario: Scenario, topology: Topology) -> None:
    """Start the topology, print its addresses, end on Ctrl-C or after ``--duration``.

    ChildFailedError if a server dies.
    """
    watch = Watch()
    try:
        await start_topology(options, topology, watch, scenario, [])
        addresses = {
            name: {"listen": topology.address(name, "listen"), "ops": topology.address(name)}
            for name in topology.servers
        }
        if options.json:
            print(json.dumps(addresses), flush=True)
        else:
            for name, ports in addresses.items():
                print(f"{name:13} {ports['listen']:40} metrics {ports['ops']}/metrics", flush=True)
        await watch.run(_stay(options.duration))
    except InterruptedRunError:
        progress("stopping")
    finally:
        await topology.stop()


async def _until_done(scenario: Scenario, load: ChildProcess) -> None:
    """Wait until Locust has sent its schedule and seen every stream end, or until it is time to drain the live ones."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(drained_after_s(scenario.load)):
            if await load.process.wait():
                raise load.failure()


async def _stay(duration_s: float | None) -> None:
    if duration_s is None:
        await asyncio.Event().wait()
    else:
        await asyncio.sleep(duration_s)
