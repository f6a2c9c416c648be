"""``disagg-sim compare``: arms alternate on live streams in short blocks, after the equality gate.

The orchestrator gets the whole block schedule beforehand and switches itself; between the first block and the
last this process only sleeps and tells the time.  What was measured is kept whatever happens on the way.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import time
from typing import Any

import numpy as np

from loadtest.experiment.gate import run_gate
from loadtest.experiment.processes import ChildFailedError, ChildProcess
from loadtest.experiment.rounds import arms_with_control, block_schedule
from loadtest.experiment.rundir import RunDirectory
from loadtest.experiment.steps import finish_load, keep_servers_records, progress, recorded, start_topology
from loadtest.experiment.topology import Topology
from loadtest.experiment.warmup import start_held_load
from loadtest.experiment.watch import Watch
from loadtest.scenario import Scenario

__all__ = ["measure"]

LEAD_S = 1.0  # between handing over the schedule and its first block; a busy orchestrator answers late
PROGRESS_EVERY_S = 10.0


async def measure(options: argparse.Namespace, scenario: Scenario, run: RunDirectory, topology: Topology) -> None:
    """Run the whole experiment into ``run``.

    ChildFailedError if nothing could be measured; a failure or Ctrl-C after the load has begun is recorded in the
    manifest and what was measured stays.
    """
    watch = Watch()
    try:
        with recorded(run, watch):
            await start_topology(options, topology, watch, scenario, options.policies)
            gate = await watch.run(run_gate(topology, options.policies, usage_by=scenario.orchestrator.usage_by))
            run.write_json("equality.json", gate)
            count = len(options.policies)
            progress(f"equality gate: {gate['requests']} requests under {count} policies each: {gate['state']}")
            if gate["state"] == "equal":
                # The first policy is the one that is usually the dearest: what it cannot hold, none should be asked to.
                first = {"policy": options.policies[0]}
                await watch.run(topology.ops("orchestrator", "POST", "/admin/policy", first))
                await start_held_load(options, scenario, run, topology, watch)
                await _run_blocks(options, run, topology, watch)
    finally:
        try:
            await _keep(run, topology, watch.load)
        finally:
            await topology.stop()


async def _run_blocks(options: argparse.Namespace, run: RunDirectory, topology: Topology, watch: Watch) -> None:
    arms = arms_with_control(options.policies)
    rng = np.random.default_rng(run.manifest["seed"])
    rounds = run.manifest["rounds_planned"]
    blocks = block_schedule(arms, rounds, round(options.block * 1e9), rng)
    start_ns = time.monotonic_ns() + round(LEAD_S * 1e9)
    body = {
        "start_ns": start_ns,
        "settle_ns": round(options.settle * 1e9),
        "blocks": [block.to_json() for block in blocks],
    }
    await watch.run(topology.ops("orchestrator", "POST", "/admin/blocks", body))
    progress(f"measuring: {rounds} rounds of {len(arms)} blocks of {options.block:g} s")
    await watch.run(_wait(start_ns, options.block * len(arms), rounds))


async def _wait(start_ns: int, round_s: float, rounds: int) -> None:
    """Sleep until the last block is over, saying now and then how far it is; asks nobody, so disturbs nothing."""
    end_ns = start_ns + round((round_s * rounds + LEAD_S) * 1e9)
    while (left_s := (end_ns - time.monotonic_ns()) / 1e9) > 0:
        await asyncio.sleep(min(left_s, PROGRESS_EVERY_S))
        done = min(rounds, int((time.monotonic_ns() - start_ns) / 1e9 / round_s))
        if done < rounds:
            progress(f"  round {done} of {rounds}, about {(rounds - done) * round_s:.0f} s left")


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
