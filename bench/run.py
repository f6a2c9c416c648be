"""Doing a bench run: every job in its order, each result kept as soon as it is known."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from bench.candidate import Candidate
from bench.capacity import climb, start_of
from bench.cell import Chain, standing_streams
from bench.churn import request_cost
from bench.figures import Cells, figure_at
from bench.programme import DIRECT, Job, Plan, Shape, Subjects, jobs_of
from bench.rig import Rig
from bench.wording import one_line
from loadtest.experiment.processes import ChildFailedError
from loadtest.experiment.rundir import RunDirectory
from loadtest.experiment.steps import progress
from loadtest.experiment.topology import Pinning
from loadtest.experiment.watch import InterruptedRunError, Watch

__all__ = ["RESULTS", "BenchRun", "read_results"]

RESULTS = "results.jsonl"
_RELAY_CPU = figure_at("processes", "relay", "cpu_us_per_token")


class BenchRun:
    """One run into one directory; `measure` it."""

    def __init__(self, run: RunDirectory, plan: Plan, subjects: Subjects, pinning: Pinning) -> None:
        self._run = run
        self._plan = plan
        self._subjects = subjects
        self._pinning = pinning
        self._cells: list[dict[str, Any]] = []
        self._rigs = 0

    async def measure(self) -> None:
        """All jobs.  Ctrl-C ends the run and is recorded; a cell that cannot be measured says why."""
        watch = Watch()
        (self._run.path / RESULTS).touch()
        jobs = list(jobs_of(self._plan, self._subjects))
        left_s, pace = sum(job.about_s for job in jobs), 1.0
        try:
            for number, job in enumerate(jobs, 1):
                begun = time.monotonic()
                cell = await watch.run(self._do(job))
                took_s = time.monotonic() - begun
                pace += 0.2 * (took_s / job.about_s - pace)
                left_s -= job.about_s
                self._keep({"table": job.table, "load": job.load, "name": job.name, "pass": job.number, **cell})
                left_min = max(0.0, left_s * pace) / 60
                progress(f"[{number}/{len(jobs)}, about {left_min:.0f} min left] {one_line(self._cells[-1])}")
        except InterruptedRunError:
            self._run.save_manifest(interrupted=True)
            progress("interrupted: keeping what was measured")

    def _keep(self, cell: dict[str, Any]) -> None:
        self._cells.append(cell)
        with (self._run.path / RESULTS).open("a") as file:
            file.write(json.dumps(cell) + "\n")

    async def _do(self, job: Job) -> dict[str, Any]:
        if job.table == "capacity":
            return await self._climb(job)
        if job.table == "request":
            churn = self._plan.small_request if job.load == "small" else self._plan.large_request
            relay = self._subjects.relay(job.name)
            return await self._guarded(job, lambda rig: request_cost(rig, relay, churn))
        syscalls = job.number == 0 and job.name != DIRECT
        return await self._standing(job, self._chain(job), self._plan.shape(job.load), syscalls=syscalls)

    async def _standing(
        self, job: Job, chain: Chain, shape: Shape, *, syscalls: bool, window_s: float | None = None
    ) -> dict[str, Any]:
        timing = self._plan.timing(shape, window_s=window_s, syscalls=syscalls)
        cell = await self._guarded(job, lambda rig: standing_streams(rig, chain, shape.streams, shape.tok_s, timing))
        return {"streams": shape.streams, "tok_s_per_stream": shape.tok_s, **cell}

    async def _climb(self, job: Job) -> dict[str, Any]:
        plan, cells = self._plan, Cells(self._cells)
        cost = cells.spread("relay", "dense", job.name, _RELAY_CPU)
        direct = cells.spread("relay", "dense", DIRECT, figure_at("transit_s", "p99"))
        chain = self._chain(Job("relay", job.load, job.name, 0, 0.0))

        async def step(rate: int) -> dict[str, Any]:
            shape = Shape(plan.climb_streams, rate / plan.climb_streams, plan.dense.ramp_s)
            cell = await self._standing(job, chain, shape, syscalls=False, window_s=plan.climb_window_s)
            self._keep({"table": "step", "load": str(rate), "name": job.name, "pass": 0, **cell})
            return cell

        first = start_of(plan.ladder, None if cost is None else cost.median)
        return await climb(plan.ladder, first, step, 0.0 if direct is None else direct.median)

    def _chain(self, job: Job) -> Chain:
        if job.table == "gen":
            return Chain("gen", None, _named(self._subjects.gens, job.name), None)
        if job.table == "client":
            return Chain("client", None, None, _named(self._subjects.clients, job.name))
        stamped = job.load != "plain"
        if job.name == DIRECT:
            # Gen and client share a core as they do beside a relay, whose own core is idle.
            return Chain("", None, None, None, stamped=stamped)
        judged = job.name in self._subjects.ours
        return Chain("relay", self._subjects.relay(job.name), None, None, judged=judged, stamped=stamped)

    async def _guarded(self, job: Job, measure: Any) -> dict[str, Any]:
        """A cell's result; when its processes fail, its problem.  What was written stays where something was amiss."""
        self._rigs += 1
        folder = self._run.path / "cells" / f"{self._rigs:03}-{job.table}-{job.load}-{_file_name(job.name)}"
        rig = Rig(folder, self._pinning)
        keep = True
        try:
            cell: dict[str, Any] = await measure(rig)
            keep = bool(cell["lost"])
        except (ChildFailedError, OSError) as error:
            return {"problem": str(error)}
        finally:
            await _to_its_end(rig.stop(keep=keep))
        return cell


def read_results(run_dir: Path) -> list[dict[str, Any]]:
    """The cells that a run has left.  ValueError if the file holds something else, OSError if there is none."""
    return [json.loads(line) for line in (run_dir / RESULTS).read_text().splitlines()]


async def _to_its_end(work: Coroutine[Any, Any, None]) -> None:
    """Finish ``work`` even if the run is interrupted meanwhile: no process is to be left."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise


def _named(candidates: tuple[Candidate, ...], name: str) -> Candidate | None:
    return next((candidate for candidate in candidates if candidate.name == name), None)


def _file_name(name: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in name)
