"""Steps that every verb which starts servers shares: start, wait for streams, end the load, keep records."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
from collections.abc import Iterator
from typing import Any

from loadtest.experiment.processes import ChildFailedError, ChildProcess
from loadtest.experiment.rundir import RunDirectory
from loadtest.experiment.topology import Topology
from loadtest.experiment.watch import InterruptedRunError, Watch
from loadtest.scenario import Scenario

__all__ = ["finish_load", "keep_servers_records", "progress", "recorded", "start_topology", "wait_for_streams"]

DRAIN_TIMEOUT_S = 30.0
DRAIN_EVERY_S = 1.0
STREAMS_GRACE_S = 30.0
QUIET_TIMEOUT_S = 5.0
POLL_S = 0.2


def progress(text: str) -> None:
    """One line for whoever waits; stdout is the result's."""
    print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def recorded(run: RunDirectory, watch: Watch) -> Iterator[None]:
    """Ctrl-C, or the end of a child once the load has begun, ends the block and is recorded in the manifest.

    ChildFailedError passes as long as no load has begun: then there is nothing to keep.
    """
    try:
        yield
    except InterruptedRunError:
        run.save_manifest(interrupted=True)
        progress("interrupted: keeping what was measured")
    except ChildFailedError as failure:
        run.save_manifest(failure=str(failure))
        if watch.load is None or failure.usage_error:
            raise
        progress(f"error: {failure}")


async def wait_for_streams(topology: Topology, wanted: int, within_s: float) -> None:
    """Wait until the orchestrator holds ``wanted`` live streams.  ChildFailedError if it never does."""
    live = 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(within_s + STREAMS_GRACE_S):
            while True:
                counters = await topology.of_orchestrators("GET", "/admin/counters")
                live = sum(counted["streams"]["live"] for counted in counters)
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
    workers = getattr(options, "orchestrator_workers", 1)
    await watch.run(topology.start(scenario, policies, unix_upstreams=options.unix, workers=workers))
    watch.children += topology.children
    operations = ", ".join(topology.address(name) for name in topology.orchestrators)
    progress(f"servers up: orchestrator {topology.url}, operations {operations}")
