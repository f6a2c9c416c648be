"""The ceiling of fakes and load: Locust straight at one gen server, ever more streams, until one of them is late.

Both run on the CPUs that a compare leaves them, so a run's figures are about the orchestrator up to that rate
and about its surroundings beyond.  Second by second; what is late is judged by the verdict's own limits.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from loadtest.experiment import thresholds as limits
from loadtest.experiment.doctor_findings import SEED_TOK_S, Finding
from loadtest.experiment.load_process import start_load
from loadtest.experiment.ports import free_ports
from loadtest.experiment.processes import ChildFailedError
from loadtest.experiment.steps import finish_load
from loadtest.experiment.topology import Topology, pinning_of, usable_cpus
from loadtest.experiment.watch import InterruptedRunError, Watch
from loadtest.scenario import load_scenario
from sim.core.histogram import LogHistogram

__all__ = ["Ceiling", "Second", "ceiling_finding", "ceiling_of", "measure_ceiling", "seconds_of"]

STREAMS = 1_500
TOK_S = 45.0
"""Of one stream, so that the ramp ends at 67,500 tok/s, above what two processes of Python can on one CPU."""
RAMP_S = 16.0
POLL_S = 1.0
LATE_SECONDS = 2
"""In a row; a single late second is a hiccup of the machine."""
_NAME = "gen and load alone"
_TIMEOUT = aiohttp.ClientTimeout(total=5)


@dataclass(frozen=True, slots=True)
class Second:
    """One second of the ramp; lags are None where the process did not answer in time."""

    tok_s: float
    gen_late_p99_s: float | None
    client_lag_s: float | None


@dataclass(frozen=True, slots=True)
class Ceiling:
    """``tok_s`` was held; ``by`` (gen, load) is who was late above it, None if nobody was up to the ramp's end."""

    tok_s: float
    by: str | None


def ceiling_of(seconds: Sequence[Second]) -> Ceiling:
    """The highest rate of a second before the first `LATE_SECONDS` late ones in a row."""
    held = 0.0
    for number, second in enumerate(seconds):
        run = seconds[number : number + LATE_SECONDS]
        late = [by for by in map(_late, run) if by]
        if len(late) == len(run):  # at the ramp's end the last second decides alone
            return Ceiling(held, late[0])
        if not _late(second):
            held = max(held, second.tok_s)
    return Ceiling(held, None)


def _late(second: Second) -> str | None:
    if second.gen_late_p99_s is None or second.gen_late_p99_s > limits.LATENESS_SUSPECT_S:
        return "gen"
    if second.client_lag_s is None or second.client_lag_s > limits.LATE_SECOND_S:
        return "load"
    return None


def seconds_of(readings: Sequence[tuple[float, Mapping[str, Any], float | None]]) -> list[Second]:
    """Seconds between readings of (time in s, gen's counters, the load's greatest lag since the one before)."""
    found = []
    for (t0, before, _), (t1, after, lag_s) in itertools.pairwise(readings):
        late, late_before = (LogHistogram.from_json(counted["pacing"]["lateness"]) for counted in (after, before))
        found.append(
            Second((after["tokens"] - before["tokens"]) / (t1 - t0), late.since(late_before).quantile_s(0.99), lag_s)
        )
    return found


def ceiling_finding(ceiling: Ceiling) -> Finding:
    """What the ceiling means for a run."""
    figures = {"tok_s": ceiling.tok_s, "by": ceiling.by}
    rate = f"{ceiling.tok_s:,.0f}"
    if ceiling.by is None:
        meaning = "neither was late: a run up to there is about the orchestrator"
        return Finding("ceiling", _NAME, f">= {rate} tok/s", "ok", meaning, figures)
    state = "ok" if ceiling.tok_s >= SEED_TOK_S else "limits"
    meaning = f"then {ceiling.by} is late: a run above that is about its fakes and load"
    if state == "limits":
        meaning += f"; the seed scenario's {SEED_TOK_S:,.0f} are"
    return Finding("ceiling", _NAME, f"{rate} tok/s", state, meaning, figures)


async def measure_ceiling() -> Finding:
    """Run the ramp, about 20 s; a machine on which it can't be run at all has no ceiling, and the finding says why."""
    overrides = [f"gen.tok_s={TOK_S}", f"load.streams={STREAMS}", f"load.ramp_s={RAMP_S}"]
    scenario = load_scenario("seed", overrides)
    with tempfile.TemporaryDirectory(prefix="disagg-sim-doctor-") as folder:
        topology, watch = Topology(Path(folder), pinning_of(usable_cpus(), wanted=True)), Watch()
        try:
            await watch.run(topology.start_gen(scenario))
            watch.children += topology.children
            ops_port = free_ports(1)[0]
            watch.load = await start_load(topology, scenario, ops_port, gen_alone=True)
            readings = await watch.run(_readings(topology, f"http://127.0.0.1:{ops_port}"))
            watch.load_may_end = True
            await watch.run(finish_load(topology, watch.load))
        except ChildFailedError as error:
            return Finding("ceiling", _NAME, "failed", "bad", str(error), {"tok_s": None, "by": None})
        except InterruptedRunError:
            return Finding("ceiling", _NAME, "interrupted", "limits", "not known", {"tok_s": None, "by": None})
        finally:
            if watch.load is not None:
                await watch.load.stop()
            await topology.stop()
    return ceiling_finding(ceiling_of(seconds_of(readings)))


async def _readings(topology: Topology, load_url: str) -> list[tuple[float, dict[str, Any], float | None]]:
    """A reading a second, from the first token to the ramp's end or until the load is clearly too much."""
    loop = asyncio.get_running_loop()
    readings: list[tuple[float, dict[str, Any], float | None]] = []
    end_s = loop.time() + RAMP_S + 15.0  # Locust takes a while to start
    seen = 0
    async with aiohttp.ClientSession(timeout=_TIMEOUT) as session:
        while loop.time() < end_s:
            started_s = loop.time()
            counters = await topology.ops("gen0", "GET", "/admin/counters")
            if counters["tokens"]:
                seen, lag_s = await _load_lag_s(session, load_url, seen)
                readings.append((started_s, counters, lag_s))
                late = [_late(second) for second in seconds_of(readings)]
                if len(late) > LATE_SECONDS and all(late[-LATE_SECONDS:]):
                    break
                if counters["streams"]["live"] >= STREAMS:
                    break
            await asyncio.sleep(max(0.0, POLL_S - (loop.time() - started_s)))
    return readings


async def _load_lag_s(session: aiohttp.ClientSession, url: str, seen: int) -> tuple[int, float | None]:
    """(samples there are, the greatest lag in those since ``seen``); no answer in time is no lag that is known."""
    with contextlib.suppress(aiohttp.ClientError, TimeoutError):
        async with session.get(f"{url}/admin/samples") as response:
            samples = (await response.json())["samples"]
            return len(samples), max((sample["lag_max_s"] for sample in samples[seen:]), default=0.0)
    return seen, None
