"""``disagg-sim profile``: where a chunk's microseconds go, by a sampling profiler on the running orchestrator.

Two blocks on the orchestrator's own ledger: one left alone, then one that is sampled, so that what the sampling
disturbs can be seen.  What was sampled is kept whatever happens on the way.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import subprocess
import time
from pathlib import Path
from typing import Any

from loadtest.experiment.overrides import check_streams_outlive, lasting, scenario_from, settled_after_s
from loadtest.experiment.processes import ChildFailedError, ChildProcess
from loadtest.experiment.profile_flame import draw_flame
from loadtest.experiment.profile_result import ARMS, fold_profile, read_stacks
from loadtest.experiment.profile_sampler import check_ended_well, start_sampler, stop_sampler
from loadtest.experiment.profile_stacks import awake
from loadtest.experiment.rundir import RunDirectory, write_whole
from loadtest.experiment.steps import finish_load, keep_servers_records, progress, recorded, start_topology
from loadtest.experiment.topology import Topology
from loadtest.experiment.warmup import asked_chunks_per_s, start_held_load
from loadtest.experiment.watch import Watch
from loadtest.scenario import Scenario
from sim.core.settings import SettingError

__all__ = ["lasts_s", "measure", "planned", "sampler_version", "write_profile"]

LEAD_S = 1.0
SETTLE_S = 2.0
"""Of each block; the sampler needs as long to read the symbols of every library."""
UNSAMPLED_S = 5.0
SAMPLER_GRACE_S = 20.0
MARGIN_S = 10.0  # of load after the last block


def lasts_s(duration_s: float) -> float:
    """How long a profile of ``duration_s`` needs the load, s."""
    return LEAD_S + 2 * SETTLE_S + UNSAMPLED_S + duration_s + SAMPLER_GRACE_S


def planned(options: argparse.Namespace, command: str) -> tuple[Scenario, dict[str, Any]]:
    """The scenario of a profile and what its manifest holds beside it.  SettingError for options that cannot be."""
    scenario = scenario_from(options)
    if options.no_pin:
        raise SettingError("--no-pin: the sampler must share one CPU with the orchestrator, or its samples are skewed")
    options.warmup = max(options.warmup, settled_after_s(scenario))
    needed_s = options.warmup + lasts_s(options.duration)
    check_streams_outlive(scenario, needed_s)
    scenario = lasting(scenario, needed_s + MARGIN_S)
    sampler = {
        "version": sampler_version(command),
        "hz": options.hz,
        "duration_s": SETTLE_S + options.duration,
        "native": options.native,
    }
    return scenario, {
        "policy": options.policy,
        "sampler": sampler,
        "asked_chunks_per_s": asked_chunks_per_s(scenario),
    }


def sampler_version(command: str) -> str:
    """What py-spy says its version is; "unknown" if it does not."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        said = subprocess.check_output([command, "--version"], text=True, timeout=10)  # noqa: S603 (found on PATH)
        return said.split()[-1] if said.split() else "unknown"
    return "unknown"


async def measure(
    options: argparse.Namespace, scenario: Scenario, run: RunDirectory, topology: Topology, command: str
) -> None:
    """Sample the orchestrator into ``run``; ``command`` is py-spy's path.

    SettingError if py-spy is not allowed to, ChildFailedError if nothing could be measured.
    """
    watch = Watch()
    sampler: ChildProcess | None = None
    try:
        with recorded(run, watch):
            await start_topology(options, topology, watch, scenario, [options.policy])
            await watch.run(topology.ops("orchestrator", "POST", "/admin/policy", {"policy": options.policy}))
            await start_held_load(options, scenario, run, topology, watch)
            switch_ns = await _schedule_blocks(options, topology, watch)
            await watch.run(_until(switch_ns))
            progress(f"sampling: {options.duration:g} s at {options.hz} samples a second")
            sampler = await start_sampler(
                [command],
                topology.pid("orchestrator"),
                run.path.absolute(),
                topology.pinning.orchestrator,
                hz=options.hz,
                duration_s=SETTLE_S + options.duration,
                native=options.native,
            )
            async with asyncio.timeout(SETTLE_S + options.duration + SAMPLER_GRACE_S):
                await watch.run(sampler.process.wait())
            check_ended_well(sampler)
            await watch.run(_until(switch_ns + round((SETTLE_S + options.duration + LEAD_S) * 1e9)))
    except TimeoutError:
        run.save_manifest(failure=f"py-spy had not ended {SAMPLER_GRACE_S:g} s after it should have")
    finally:
        try:
            if sampler is not None:
                await stop_sampler(sampler)
            await _keep(run, topology, watch.load)
        finally:
            await topology.stop()


async def _schedule_blocks(options: argparse.Namespace, topology: Topology, watch: Watch) -> int:
    """Hand the orchestrator its two blocks; when the second one begins, CLOCK_MONOTONIC ns."""
    start_ns = time.monotonic_ns() + round(LEAD_S * 1e9)
    lengths_ns = [round((SETTLE_S + seconds) * 1e9) for seconds in (UNSAMPLED_S, options.duration)]
    blocks = [
        {"round": 0, "slot": slot, "arm": arm, "policy": options.policy, "length_ns": lengths_ns[slot]}
        for slot, arm in enumerate(ARMS)
    ]
    body = {"start_ns": start_ns, "settle_ns": round(SETTLE_S * 1e9), "blocks": blocks}
    await watch.run(topology.ops("orchestrator", "POST", "/admin/blocks", body))
    progress(f"unsampled: {UNSAMPLED_S:g} s, to compare with")
    return start_ns + lengths_ns[0]


async def _until(t_ns: int) -> None:
    await asyncio.sleep(max(0.0, (t_ns - time.monotonic_ns()) / 1e9))


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


def write_profile(run_dir: Path) -> dict[str, Any]:
    """Fold the run directory into ``profile.json`` and ``flamegraph.svg``; the result."""
    result = fold_profile(run_dir)
    RunDirectory(run_dir, {}).write_json("profile.json", result)
    cost, sampler = result["cpu_us_per_chunk"], result["sampler"]
    title = f"Orchestrator under {result['policy']}, engine {result['engine']}"
    parts = [
        f"{sampler['samples']:,} samples",
        "" if cost is None else f"{cost:.1f} us of CPU per chunk",
        "" if result["chunks_per_s"] is None else f"{result['chunks_per_s']:,.0f} chunks/s",
        "width is share of samples, a frame stands on its caller",
    ]
    write_whole(
        run_dir / "flamegraph.svg", draw_flame(awake(read_stacks(run_dir)), title, ", ".join(filter(None, parts)))
    )
    return result
