"""The load before the first block: started, watched for whether this machine can hold it, stepped down if not.

A machine that cannot hold the asked rate merges reads, and a merged chunk costs less: its figures would be of
another load than they say.  So where the user asked for no particular rate, the load is made smaller until it is
held, and the run says so.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses

from loadtest.experiment.load_process import start_load
from loadtest.experiment.ports import free_ports
from loadtest.experiment.rundir import RunDirectory
from loadtest.experiment.steps import finish_load, progress, wait_for_streams
from loadtest.experiment.topology import Topology
from loadtest.experiment.watch import Watch
from loadtest.scenario import Scenario
from sim.core.latency import step_s

__all__ = ["asked_chunks_per_s", "held", "start_held_load"]

PROBE_S = 2.0
STEP = 0.7
"""Each step leaves this share of the streams."""
STEPS = 4
HELD_RATE = 0.97
"""Of the asked rate; less voids every block (rounds.RATE_TOLERANCE)."""
HELD_EVENTS_PER_WRITE = 1.15
"""Events per read over what gen writes at once; more is overload turned into batching."""


async def start_held_load(
    options: argparse.Namespace, scenario: Scenario, run: RunDirectory, topology: Topology, watch: Watch
) -> None:
    """Start the load and warm up; step down as often as needed.  What the steps were is in the manifest's notes."""
    may_step = scenario.load.arrivals == "staggered" and not (options.rate or options.streams)
    for step in range(STEPS + 1):
        run.write_json("counters_before.json", await topology.collect("/admin/counters"))
        watch.load = await start_load(topology, scenario, free_ports(1)[0])
        rate_share, events_per_read = await watch.run(_warm_up(options, topology, scenario))
        if not may_step or step == STEPS or held(rate_share, events_per_read, scenario.gen.events_per_write):
            return
        streams = max(1, round(scenario.load.streams * STEP))
        note = (
            f"stepped down from {scenario.load.streams:,} to {streams:,} streams: this machine relayed "
            f"{rate_share:.0%} of the asked rate, {events_per_read:.2f} events per read"
        )
        progress(note)
        watch.load_may_end = True
        await watch.run(finish_load(topology, watch.load))
        watch.load_may_end = False
        scenario = dataclasses.replace(scenario, load=dataclasses.replace(scenario.load, streams=streams))
        run.manifest["scenario"]["load"]["streams"] = streams
        run.save_manifest(notes=[*run.manifest.get("notes", []), note], asked_chunks_per_s=asked_chunks_per_s(scenario))


def held(rate_share: float, events_per_read: float, events_per_write: int) -> bool:
    """Whether a load is held: ``rate_share`` of the asked chunks came, and reads did not merge what gen wrote apart."""
    return rate_share >= HELD_RATE and events_per_read <= HELD_EVENTS_PER_WRITE * events_per_write


async def _warm_up(options: argparse.Namespace, topology: Topology, scenario: Scenario) -> tuple[float, float]:
    """Wait for the streams and the warm-up; (share of the asked rate, events per read) over its last seconds."""
    load = scenario.load
    if load.arrivals == "staggered":
        progress(f"load: {load.streams:,} streams starting over {load.ramp_s:g} s")
        await wait_for_streams(topology, load.streams, load.ramp_s)
    progress(f"warm-up: {options.warmup:g} s")
    probe_s = min(PROBE_S, options.warmup / 2)
    await asyncio.sleep(options.warmup - probe_s)
    loop = asyncio.get_running_loop()
    before, start_s = await topology.ops("orchestrator", "GET", "/admin/counters"), loop.time()
    await asyncio.sleep(probe_s)
    after, end_s = await topology.ops("orchestrator", "GET", "/admin/counters"), loop.time()
    asked = asked_chunks_per_s(scenario)
    chunks, reads = (after[name] - before[name] for name in ("chunks", "reads"))
    rate_share = 1.0 if asked is None else chunks / (end_s - start_s) / asked
    return rate_share, (after["events"] - before["events"]) / max(1, reads)


def asked_chunks_per_s(scenario: Scenario) -> float | None:
    """Content events per second that the load asks for, or None when streams come and go."""
    if scenario.load.arrivals != "staggered":
        return None
    busy_share = min(1.0, scenario.load.streams / scenario.gen.slots)
    return scenario.load.streams / step_s(scenario.gen, busy_share) / scenario.gen.tokens_per_chunk
