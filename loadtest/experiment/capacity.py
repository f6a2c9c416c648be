"""``disagg-sim capacity``: the highest rate that keeps a joint objective, per policy, engine and number of workers.

One topology per engine and number of workers, with streams that stand throughout: the rate is changed at gen, the
policy at the orchestrator.  Each probe is kept as it is made.  Which rate comes next is `capacity_search`.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import time
from collections.abc import Mapping
from typing import Any

import aiohttp
import numpy as np

from loadtest.experiment.capacity_fit import Trial, fit_limit
from loadtest.experiment.capacity_probe import Prober
from loadtest.experiment.capacity_result import PROBES_NAME
from loadtest.experiment.capacity_search import FURTHER_ROUNDS, REPEAT_OFFSETS, LimitSearch, repeat_order, repeat_rate
from loadtest.experiment.capacity_slo import FAIL, PASS, UNATTRIBUTABLE, Outcome, Slo, judge_probe
from loadtest.experiment.gate import run_gate
from loadtest.experiment.load_process import start_load
from loadtest.experiment.ports import free_ports
from loadtest.experiment.processes import ChildProcess
from loadtest.experiment.rundir import RunDirectory
from loadtest.experiment.steps import (
    finish_load,
    keep_servers_records,
    progress,
    recorded,
    start_topology,
    wait_for_streams,
)
from loadtest.experiment.topology import Topology, pinning_of, usable_cpus
from loadtest.experiment.watch import Watch
from loadtest.scenario import Scenario

__all__ = ["SHORT_REQUESTS_S", "measure"]

SHORT_REQUESTS_S = 10.0
"""Short requests per second beside the standing streams: their first tokens are what TTFT is read from."""
_SHORT_TOKENS = 4
_SHORT_STOP_S = 8  # for what is live; a process that takes 10 s to end is killed
_WARM_UP_S = 1.5
_DRAIN_SHARE = 0.25
_SPARED = 6
"""Probes of a search that the machine spoilt and that are made again before they count."""


async def measure(options: argparse.Namespace, scenario: Scenario, run: RunDirectory) -> None:
    """Find every limit asked for, and keep each probe in ``run`` as it is made.

    ChildFailedError if nothing could be measured; Ctrl-C and what fails later are recorded in the manifest.
    """
    places = [(engine, workers) for engine in run.manifest["engines"] for workers in run.manifest["workers"]]
    for engine, workers in places:
        if run.manifest["interrupted"] or run.manifest["failure"]:
            return
        await _Place(options, scenario, run, engine, workers).measure(options.max_minutes * 60 / len(places))


class _Place:
    """One engine with one number of workers, and every policy on it."""

    def __init__(
        self, options: argparse.Namespace, scenario: Scenario, run: RunDirectory, engine: str, workers: int
    ) -> None:
        self._options = argparse.Namespace(**{**vars(options), "orchestrator_workers": workers})
        self._policies: list[str] = options.policies
        self._slo = Slo(**run.manifest["slo"])
        self._run = run
        self._engine, self._workers = engine, workers
        first = dataclasses.replace(
            scenario.gen, itl_ms=0.0, tok_s=_DRAIN_SHARE * options.from_tok_s / scenario.load.streams
        )
        orchestrator = dataclasses.replace(scenario.orchestrator, engine=engine, policy=options.policies[0])
        self._scenario = dataclasses.replace(scenario, gen=first, orchestrator=orchestrator)
        folder = run.path / f"{engine}-{workers}"
        (folder / "short" / "logs").mkdir(parents=True)
        self._topology = Topology(folder, pinning_of(usable_cpus(), wanted=not options.no_pin, workers=workers))
        self._watch = Watch()
        self._short: ChildProcess | None = None
        self._trials: dict[str, list[Trial]] = {policy: [] for policy in options.policies}
        self._cost_us: dict[str, float] = {}
        self._end_s = 0.0
        self._taken_s: list[float] = []

    async def measure(self, probing_s: float) -> None:
        topology, watch, scenario = self._topology, self._watch, self._scenario
        try:
            with recorded(self._run, watch):
                progress(f"engine {self._engine}, {_plural(self._workers)}:")
                await start_topology(self._options, topology, watch, scenario, self._policies)
                gate = await watch.run(run_gate(topology, self._policies, usage_by=scenario.orchestrator.usage_by))
                RunDirectory(topology.run_dir, {}).write_json("equality.json", gate)
                progress(f"equality gate: {gate['state']}")
                if gate["state"] != "equal":
                    return
                async with aiohttp.ClientSession() as session:
                    prober = await self._start_loads(session)
                    self._end_s = time.monotonic() + probing_s
                    await watch.run(self._probe_all(prober))
        finally:
            try:
                await self._keep()
            finally:
                await topology.stop()

    async def _start_loads(self, session: aiohttp.ClientSession) -> Prober:
        topology, watch, scenario = self._topology, self._watch, self._scenario
        ports = free_ports(2)
        before = await watch.run(topology.collect("/admin/counters"))
        RunDirectory(topology.run_dir, {}).write_json("counters_before.json", before)
        watch.load = await start_load(topology, scenario, ports[0])
        load = scenario.load
        progress(f"load: {load.streams:,} standing streams, {SHORT_REQUESTS_S:g} short requests a second")
        await watch.run(wait_for_streams(topology, load.streams, load.ramp_s))
        short = dataclasses.replace(
            load,
            arrivals="constant",
            request_rate=SHORT_REQUESTS_S,
            output_tokens=_SHORT_TOKENS,
            duration_s=self._options.max_minutes * 60 + 600,
            sample_every=0,
        )
        beside = dataclasses.replace(topology, run_dir=topology.run_dir / "short")
        short_scenario = dataclasses.replace(scenario, load=short)
        self._short = await start_load(beside, short_scenario, ports[1], stop_timeout_s=_SHORT_STOP_S)
        watch.children = [*watch.children, self._short]
        loads = {
            "standing": (watch.load, f"http://127.0.0.1:{ports[0]}"),
            "short": (self._short, f"http://127.0.0.1:{ports[1]}"),
        }
        prober = Prober(
            topology,
            session,
            loads,
            probe_s=self._options.probe_s,
            tokens_per_chunk=scenario.gen.tokens_per_chunk,
            lockstep=scenario.gen.emission == "lockstep",
        )
        await watch.run(prober.ready())
        await asyncio.sleep(_WARM_UP_S)
        return prober

    async def _probe_all(self, prober: Prober) -> None:
        """Search policy by policy, then the rounds of repeats with all of them in turn."""
        options = self._options
        searches = {policy: LimitSearch(options.from_tok_s, options.to_tok_s) for policy in self._policies}
        # The policies that come later, and the repeats, need their share of the time.
        for place, (policy, search) in enumerate(searches.items()):
            left_s = self._end_s - time.monotonic()
            until_s = time.monotonic() + left_s / (len(searches) - place + 0.5)
            spared = _SPARED
            while (rate := search.next_rate()) is not None and self._fits(1, until_s):
                outcome = await self._probe(prober, policy, rate, search.phase)
                if "machine" in outcome.by and spared:
                    spared -= 1  # what others did to the machine just now says nothing of the rate: again
                    continue
                search.record(outcome.state)
        rng = np.random.default_rng(self._run.manifest["seed"])
        near = [policy for policy, search in searches.items() if search.bracketed]
        for round_ in range(options.repeats + FURTHER_ROUNDS if near else 0):
            limits = {policy: fit_limit(self._trials[policy], 0) for policy in near}
            settled = all(limit.estimate is not None for limit in limits.values())
            if (round_ >= options.repeats and settled) or not self._fits(len(near) * len(REPEAT_OFFSETS), self._end_s):
                break
            for offset, policy in repeat_order(near, round_, rng):
                rate = repeat_rate(limits[policy].centre or options.from_tok_s, offset)
                await self._probe(prober, policy, rate, "repeat", (round_, offset))

    async def _probe(
        self, prober: Prober, policy: str, rate: float, phase: str, pair: tuple[int, int] | None = None
    ) -> Outcome:
        begun_s = time.monotonic()
        figures = await prober.probe(policy, float(round(rate)))
        outcome = judge_probe(figures, self._slo)
        head = {"policy": policy, "engine": self._engine, "workers": self._workers, "phase": phase, "pair": pair}
        self._append({**head, "t_ns": time.monotonic_ns(), **figures})
        progress(f"  {policy}: {rate:,.0f} tok/s: {_words(outcome, figures)}")
        if outcome.state != UNATTRIBUTABLE:
            self._trials[policy].append(Trial(float(round(rate)), outcome.state == PASS, pair))
        if figures["events_per_read"] < 1.1:
            self._cost_us[policy] = figures["cpu_us_per_chunk"]
        if outcome.state != PASS:
            cheapest = min(self._policies, key=lambda name: self._cost_us.get(name, float("inf")))
            await prober.drain(cheapest, min(rate * _DRAIN_SHARE, self._options.from_tok_s))
        self._taken_s.append(time.monotonic() - begun_s)
        return outcome

    def _fits(self, probes: int, until_s: float) -> bool:
        """Whether so many probes end before ``until_s``, by what they have taken so far."""
        each_s = sum(self._taken_s) / len(self._taken_s) if self._taken_s else 0.0
        return time.monotonic() + probes * each_s <= until_s

    def _append(self, record: Mapping[str, Any]) -> None:
        """Add a line to the probes; what is there outlives whatever comes."""
        with (self._run.path / PROBES_NAME).open("a") as lines:
            lines.write(json.dumps(record) + "\n")

    async def _keep(self) -> None:
        """End the sending, then the streams, and fetch what the servers counted."""
        topology = self._topology
        if self._short is not None:
            await self._short.stop()
        if self._watch.load is not None:
            progress("ending the streams and checking each")
            await finish_load(topology, self._watch.load)
        await keep_servers_records(topology, RunDirectory(topology.run_dir, {}))


def _words(outcome: Outcome, figures: Mapping[str, Any]) -> str:
    lag_ms = figures["lag_p99_s"] * 1e3
    if outcome.state == PASS:
        return f"holds, lag p99 {lag_ms:.1f} ms"
    by = ", ".join(outcome.by)
    return f"{'fails' if outcome.state == FAIL else 'not attributable'} ({by}), lag p99 {lag_ms:.0f} ms"


def _plural(workers: int) -> str:
    return f"{workers} worker{'s' if workers > 1 else ''}"
