"""``disagg-sim compare``: arms alternate on live streams in short blocks, after the equality gate.

The orchestrator gets the whole block schedule beforehand and switches itself; between the first block and the
last this process only sleeps.  What was measured is kept whatever happens on the way.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import time
from typing import Any

import numpy as np

from loadtest.experiment.gate import run_gate
from loadtest.experiment.load_process import start_load
from loadtest.experiment.ports import free_ports
from loadtest.experiment.processes import ChildFailedError, ChildProcess
from loadtest.experiment.rounds import arms_with_control, block_schedule
from loadtest.experiment.rundir import RunDirectory
from loadtest.experiment.steps import (
    finish_load,
    keep_servers_records,
    progress,
    start_topology,
    wait_for_streams,
)
from loadtest.experiment.topology import Topology
from loadtest.experiment.watch import InterruptedRunError, Watch
from loadtest.scenario import Scenario
from sim.core.latency import step_s

__all__ = ["asked_chunks_per_s", "measure"]

LEAD_S = 0.2  # between handing over the schedule and its first block


async def measure(options: argparse.Namespace, scenario: Scenario, run: RunDirectory, topology: Topology) -> None:
    """Run the whole experiment into ``run``.

    ChildFailedError if nothing could be measured; a failure or Ctrl-C after the first block is recorded in the
    manifest and what was measured stays.
    """
    watch = Watch()
    load: ChildProcess | None = None
    try:
        await start_topology(options, topology, watch, scenario, options.policies)
        gate = await watch.run(run_gate(topology, options.policies, usage_by=scenario.orchestrator.usage_by))
        run.write_json("equality.json", gate)
        progress(
            f"equality gate: {gate['requests']} requests under {len(options.policies)} policies each: {gate['state']}"
        )
        if gate["state"] != "equal":
            return
        run.write_json("counters_before.json", await topology.collect("/admin/counters"))
        load = await start_load(topology, scenario, free_ports(1)[0])
        watch.children.append(load)
        await watch.run(_warm_up(options, topology, scenario))
        await _run_blocks(options, run, topology, watch)
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
            await _keep(run, topology, load)
        finally:
            await topology.stop()


async def _warm_up(options: argparse.Namespace, topology: Topology, scenario: Scenario) -> None:
    load = scenario.load
    if load.arrivals == "staggered":
        progress(f"load: {load.streams} streams starting over {load.ramp_s:g} s")
        await wait_for_streams(topology, load.streams, load.ramp_s)
    progress(f"warm-up: {options.warmup:g} s")
    await asyncio.sleep(options.warmup)


async def _run_blocks(options: argparse.Namespace, run: RunDirectory, topology: Topology, watch: Watch) -> None:
    arms = arms_with_control(options.policies)
    rng = np.random.default_rng(run.manifest["seed"])
    blocks = block_schedule(arms, run.manifest["rounds_planned"], round(options.block * 1e9), rng)
    start_ns = time.monotonic_ns() + round(LEAD_S * 1e9)
    body = {
        "start_ns": start_ns,
        "settle_ns": round(options.settle * 1e9),
        "blocks": [block.to_json() for block in blocks],
    }
    await watch.run(topology.ops("orchestrator", "POST", "/admin/blocks", body))
    progress(f"measuring: {run.manifest['rounds_planned']} rounds of {len(arms)} blocks, {options.block:g} s each")
    await watch.run(asyncio.sleep(LEAD_S + options.block * len(blocks) + LEAD_S))


async def _keep(run: RunDirectory, topology: Topology, load: ChildProcess | None) -> None:
    """Fetch the blocks, let the load end in order, fetch what the servers counted."""
    with contextlib.suppress(ChildFailedError):
        if "orchestrator" in topology.servers:
            ledger: dict[str, Any] = await topology.ops("orchestrator", "GET", "/admin/blocks")
            if ledger["state"] == "running":
                ledger = await topology.ops("orchestrator", "DELETE", "/admin/blocks")
            run.write_lines("blocks.jsonl", ledger["blocks"])
    if load is not None:
        progress("ending the streams and checking each")
        await finish_load(topology, load)
    await keep_servers_records(topology, run)


def asked_chunks_per_s(scenario: Scenario) -> float | None:
    """Content events per second that the load asks for, or None when streams come and go."""
    if scenario.load.arrivals != "staggered":
        return None
    busy_share = min(1.0, scenario.load.streams / scenario.gen.slots)
    return scenario.load.streams / step_s(scenario.gen, busy_share) / scenario.gen.tokens_per_chunk
