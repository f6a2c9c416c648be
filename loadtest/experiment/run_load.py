"""``disagg-sim run`` and ``up``: one load run of a scenario, or the topology on its own."""

from __future__ import annotations

import argparse
import asyncio

from loadtest.experiment.load_process import start_load
from loadtest.experiment.ports import free_ports
from loadtest.experiment.processes import ChildFailedError, ChildProcess
from loadtest.experiment.rundir import RunDirectory
from loadtest.experiment.steps import finish_load, keep_servers_records, progress, start_topology
from loadtest.experiment.topology import Topology
from loadtest.experiment.watch import InterruptedRunError, Watch
from loadtest.scenario import Scenario

__all__ = ["drive", "stay_up"]


async def drive(options: argparse.Namespace, scenario: Scenario, run: RunDirectory, topology: Topology) -> None:
    """Start the topology, send the scenario's load, keep every record.

    ChildFailedError if the load could not start; what fails later is recorded in the manifest.
    """
    watch = Watch()
    load: ChildProcess | None = None
    try:
        await start_topology(options, topology, watch, scenario, [scenario.orchestrator.policy])
        load = await start_load(topology, scenario, free_ports(1)[0])
        progress(f"load: {scenario.name}")
        await watch.run(_until_done(scenario, load))
    except InterruptedRunError:
        run.save_manifest(interrupted=True)
        progress("interrupted: keeping what was measured")
    except ChildFailedError as failure:
        run.save_manifest(failure=str(failure))
        if load is None:
            raise
        progress(f"error: {failure}")
    finally:
        try:
            if load is not None:
                await finish_load(topology, load)
            await keep_servers_records(topology, run)
        finally:
            await topology.stop()


async def stay_up(options: argparse.Namespace, scenario: Scenario, topology: Topology) -> None:
    """Start the topology, print its addresses, end on Ctrl-C.  ChildFailedError if a server dies."""
    watch = Watch()
    try:
        await start_topology(options, topology, watch, scenario, [])
        for name in topology.servers:
            listen, ops = topology.address(name, "listen"), topology.address(name)
            print(f"{name:13} {listen:40} metrics {ops}/metrics", flush=True)
        await watch.run(_forever())
    except InterruptedRunError:
        progress("stopping")
    finally:
        await topology.stop()


async def _until_done(scenario: Scenario, load: ChildProcess) -> None:
    """Wait until Locust has sent its schedule and seen every stream end; live ones are drained at ``duration_s``."""
    if scenario.load.arrivals == "staggered" and scenario.load.duration_s:
        await asyncio.sleep(scenario.load.ramp_s + scenario.load.duration_s)
        return
    code = await load.process.wait()
    if code:
        raise load.failure()


async def _forever() -> None:
    await asyncio.Event().wait()
