"""``disagg-sim compare --counter instructions``: user instructions per chunk and per request, counted by cachegrind.

Cachegrind gives one total when a process ends, so every (policy, load, repeat) is a process of its own and figures
are differences between processes.  What the orchestrator does by the clock would differ with the machine: its canary
ticks once a minute, its servers are not polled, nothing is scraped.  The figures
themselves are in `instruction_figures`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from loadtest.experiment.cachegrind import cachegrind_wrapper, read_instructions
from loadtest.experiment.counted_load import LOADS, CountedLoad, send_load
from loadtest.experiment.gate import run_gate
from loadtest.experiment.load_options import LOAD_OPTIONS
from loadtest.experiment.lockstep import Lockstep
from loadtest.experiment.options import BLOCK_DEFAULTS
from loadtest.experiment.processes import ChildFailedError
from loadtest.experiment.rounds import Arm
from loadtest.experiment.rundir import RunDirectory
from loadtest.experiment.steps import progress
from loadtest.experiment.topology import Pinning, Topology, usable_cpus
from loadtest.experiment.watch import InterruptedRunError, Watch
from loadtest.scenario import Scenario, load_scenario
from sim.core.settings import SettingError

__all__ = ["count_instructions", "counted_scenario", "refuse_block_options"]

NEVER_S = 3600.0
MOST_AT_ONCE = 4
TOK_S = 1000.0
"""Of gen's, per stream: more than any orchestrator under the tool takes."""
UNPINNED = Pinning(frozenset(), frozenset())
_OF_THE_COUNT = ("arrivals", "streams", "ramp_s", "request_rate", "duration_s", "lengths", "output_tokens", "limit")


@dataclass(frozen=True, slots=True)
class _Job:
    arm: Arm
    repeat: int
    load: CountedLoad

    @property
    def words(self) -> str:
        return f"{self.arm.name}, {self.load.name}" + (f", repeat {self.repeat + 1}" if self.repeat else "")


def refuse_block_options(options: argparse.Namespace) -> None:
    """SettingError for an option that an instruction count would have to ignore."""
    if options.unix:
        raise SettingError("--unix: --counter instructions relays gen's bytes over TCP itself; leave it out")
    rates = dict.fromkeys(("rate", "streams"))
    for name, default in {**BLOCK_DEFAULTS, **rates, **LOAD_OPTIONS}.items():
        if getattr(options, name) != default:
            flag = f"--{name.replace('_', '-')}"
            raise SettingError(f"{flag}: --counter instructions has a load of its own and no blocks; leave it out")


def counted_scenario(scenario: Scenario, name: str) -> Scenario:
    """The scenario with gen as fast as it is let.

    SettingError for an override of what the count sets itself, and where there is no stream to count.
    """
    own = load_scenario(name, [])
    for key in _OF_THE_COUNT:
        if getattr(scenario.load, key) != getattr(own.load, key):
            raise SettingError(f"load.{key}: an instruction count has a load of its own (docs/measurement.md)")
    if scenario.gen.itl_s != own.gen.itl_s:
        raise SettingError("gen.tok_s: an instruction count goes in lockstep with the orchestrator and has no rate")
    if scenario.gen.newline != "lf":
        raise SettingError(f"gen.newline: an instruction count needs lf; this is {scenario.gen.newline}")
    if not scenario.load.stream:
        raise SettingError("load.stream: instructions per chunk need streams; this is false")
    return dataclasses.replace(scenario, gen=dataclasses.replace(scenario.gen, tok_s=TOK_S, itl_ms=0.0))


async def count_instructions(options: argparse.Namespace, scenario: Scenario, run: RunDirectory) -> None:
    """Gate, then every process; the records go to ``counts.jsonl`` as they come.

    ChildFailedError if nothing could be counted; later failures and Ctrl-C are recorded in the manifest.
    """
    watch = Watch()
    records: list[dict[str, Any]] = []
    try:
        gate = await watch.run(_gate(options, scenario, run))
        run.write_json("equality.json", gate)
        progress(f"equality gate: {gate['requests']} requests under {len(options.policies)} policies: {gate['state']}")
        if gate["state"] == "equal":
            await watch.run(_count_all(scenario, run, records))
    except InterruptedRunError:
        run.save_manifest(interrupted=True)
        progress("interrupted: keeping what was counted")
    except ChildFailedError as failure:
        run.save_manifest(failure=str(failure))
        if not records:
            raise
        progress(f"error: {failure}")


async def _gate(options: argparse.Namespace, scenario: Scenario, run: RunDirectory) -> dict[str, Any]:
    """No figure for a policy whose output differs; at full speed, without the tool."""
    folder = run.path / "gate"
    folder.mkdir()
    topology = Topology(folder, UNPINNED)
    try:
        await topology.start(scenario, options.policies)
        return await run_gate(topology, options.policies, usage_by=scenario.orchestrator.usage_by)
    finally:
        await topology.stop()


async def _count_all(scenario: Scenario, run: RunDirectory, records: list[dict[str, Any]]) -> None:
    """Every job, as many at once as there are CPUs: a neighbour changes times and no count."""
    arms = [Arm(entry["name"], entry["policy"]) for entry in run.manifest["arms"]]
    jobs = [_Job(arm, repeat, load) for repeat in range(run.manifest["repeats"]) for load in LOADS for arm in arms]
    at_once = max(1, min(len(usable_cpus()), MOST_AT_ONCE, len(jobs)))
    progress(f"counting: {len(jobs)} processes under cachegrind, {at_once} at once, about 25 s each on a quiet core")
    waiting = iter(jobs)

    async def work() -> None:
        for job in waiting:
            record = await _count(job, scenario, run)
            records.append(record)
            run.write_lines("counts.jsonl", records)
            progress(
                f"  {len(records)} of {len(jobs)}: {job.words}: {record['instructions'] / 1e6:,.1f} M instructions"
            )

    with _first_failure():
        async with asyncio.TaskGroup() as group:
            for _ in range(at_once):
                group.create_task(work())


@contextlib.contextmanager
def _first_failure() -> Iterator[None]:
    """A group's failure as the failure itself: the first of them says what went wrong."""
    try:
        yield
    except* ChildFailedError as failures:
        raise failures.exceptions[0] from None


async def _count(job: _Job, scenario: Scenario, run: RunDirectory) -> dict[str, Any]:
    """One process from start to end; its record."""
    file_name = re.sub(r"[^\w.-]", "_", job.arm.name)  # a plug-in's holds a colon
    folder = run.path / "counts" / f"{file_name}-{job.load.name}-{job.repeat + 1}"
    folder.mkdir(parents=True)
    out = (folder / "cachegrind.out").absolute()
    lockstep, open_fronts = Lockstep(), contextlib.AsyncExitStack()

    async def front(gen_url: str) -> str:
        return await open_fronts.enter_async_context(lockstep.front(gen_url))

    topology = Topology(folder, UNPINNED, dataclasses.replace(cachegrind_wrapper(out), gen_url=front))
    orchestrator = dataclasses.replace(scenario.orchestrator, policy=job.arm.policy)
    try:
        await topology.start(dataclasses.replace(scenario, orchestrator=orchestrator), [job.arm.policy])
        ready_ns = time.monotonic_ns()
        await topology.ops("orchestrator", "POST", "/admin/blocks", _no_polls(job.arm))
        failures = await send_load(topology.url, job.load, scenario.load, lockstep)
        counters = await _settled_counters(topology)
        lived_s = (time.monotonic_ns() - ready_ns) / 1e9
    except asyncio.CancelledError:
        for child in topology.children:
            child.kill()  # nobody waits for a count that will not be used
        raise
    finally:
        await topology.stop()
        await open_fronts.aclose()
    try:
        instructions = read_instructions(out)
    except ValueError as error:
        raise ChildFailedError(f"{job.words}: {error}") from None
    relay, gen = counters["orchestrator"], counters["gen0"]
    return {
        "arm": job.arm.name,
        "repeat": job.repeat,
        "load": job.load.name,
        "instructions": instructions,
        "chunks": gen["chunks"],
        "requests": relay["requests"],
        "reads": relay["reads"],
        "events": relay["events"],
        "reads_due": round(gen["chunks"] / scenario.gen.events_per_write) + relay["requests"],
        "failures": failures,
        "lived_s": lived_s,
    }


def _no_polls(arm: Arm) -> dict[str, Any]:
    """A block schedule that never begins: while there is one, the orchestrator does not poll its servers."""
    block = {"round": 0, "slot": 0, "arm": arm.name, "policy": arm.policy, "length_ns": round(NEVER_S * 1e9)}
    return {"start_ns": time.monotonic_ns() + round(NEVER_S * 1e9), "settle_ns": 0, "blocks": [block]}


async def _settled_counters(topology: Topology) -> dict[str, Any]:
    """The counters of gen and orchestrator; asked for once, since asking costs instructions too."""
    counters = await topology.collect("/admin/counters")
    missing = {"orchestrator", "gen0"} - counters.keys()
    if missing:
        raise next(
            (child.failure() for child in topology.children if child.name in missing),
            ChildFailedError(f"{', '.join(sorted(missing))} did not answer"),
        )
    return counters
