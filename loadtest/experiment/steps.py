"""Steps that every verb which starts servers shares: settings from options, waiting for streams, keeping results."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
from typing import Any

from loadtest.experiment.processes import ChildFailedError, ChildProcess
from loadtest.experiment.rundir import RunDirectory
from loadtest.experiment.topology import Topology
from loadtest.experiment.watch import Watch
from loadtest.scenario import Scenario, load_scenario

__all__ = ["finish_load", "keep_servers_records", "progress", "scenario_from", "start_topology", "wait_for_streams"]

DRAIN_TIMEOUT_S = 30.0
DRAIN_EVERY_S = 1.0
STREAMS_GRACE_S = 30.0
QUIET_TIMEOUT_S = 5.0
POLL_S = 0.2


def progress(text: str) -> None:
    """One line for whoever waits; stdout is the result's."""
    print(text, file=sys.stderr, flush=True)


def scenario_from(options: argparse.Namespace) -> Scenario:
    """The scenario with every option that overrides one of its keys applied.  SettingError says what cannot be."""
    overrides = list(options.overrides)
    scenario = load_scenario(options.scenario, overrides)
    extra: list[str] = []
    if getattr(options, "streams", None):
        extra.append(f"load.streams={options.streams}")
    if getattr(options, "request_rate", None):
        extra.append(f"load.request_rate={options.request_rate}")
    if options.verb == "run" and options.duration:
        extra.append(f"load.duration_s={options.duration}")
    if options.seed is not None:
        extra += [f"{table}.seed={options.seed}" for table in ("ctx", "gen", "load")]
    if getattr(options, "rate", None):
        streams = options.streams or scenario.load.streams
        extra.append(f"gen.tok_s={options.rate / streams}")
    return load_scenario(options.scenario, overrides + extra) if extra else scenario


async def wait_for_streams(topology: Topology, wanted: int, within_s: float) -> None:
    """Wait until the orchestrator holds ``wanted`` live streams.  ChildFailedError if it never does."""
    live = 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(within_s + STREAMS_GRACE_S):
            while True:
                counters = await topology.ops("orchestrator", "GET", "/admin/counters")
                live = counters["streams"]["live"]
                if live >= wanted:
                    return
                await asyncio.sleep(POLL_S)
    raise ChildFailedError(f"only {live} of {wanted} streams are live {STREAMS_GRACE_S:g} s after the last was due")


async def finish_load(topology: Topology, load: ChildProcess) -> None:
    """End the load in order: gen ends every live stream, the client checks each, Locust writes and exits."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(DRAIN_TIMEOUT_S):
            while load.process.returncode is None:
                # Again and again: a request may still be on its way to gen when the live streams are drained.
                with contextlib.suppress(ChildFailedError):
                    await topology.ops("gen0", "POST", "/admin/drain")
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(load.process.wait(), DRAIN_EVERY_S)
    await load.stop()


async def keep_servers_records(topology: Topology, run: RunDirectory) -> None:
    """Write ``samples.json`` and ``counters.json`` of every server that still answers, once none has a live stream."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(QUIET_TIMEOUT_S):
            while any(map(_live, (await topology.collect("/admin/counters")).values())):  # noqa: ASYNC110
                await asyncio.sleep(POLL_S)  # other processes' counters: there is no event to wait for
    run.write_json("samples.json", await topology.collect("/admin/samples"))
    run.write_json("counters.json", await topology.collect("/admin/counters"))


def _live(counters: dict[str, Any]) -> int:
    streams = counters.get("streams", {})
    return int(streams.get("live", 0))


async def start_topology(
    options: argparse.Namespace, topology: Topology, watch: Watch, scenario: Scenario, policies: list[str]
) -> None:
    """Start the servers under the watch's eye and say where they are."""
    await watch.run(topology.start(scenario, policies, unix_upstreams=options.unix))
    watch.children += topology.children
    progress(f"servers up: orchestrator {topology.url}, operations {topology.address('orchestrator')}")
