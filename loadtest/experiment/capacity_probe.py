"""One probe of one rate: what the orchestrator's ledger says of it, and how gen and load fared meanwhile.

The rate changes on live streams; nothing is asked of the orchestrator while it is measured, as its own block
schedule keeps the time.  What the probe means is `capacity_slo`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp

from loadtest.experiment.blocks import Block, IncompleteBlockError
from loadtest.experiment.capacity_figures import Reading, probe_figures
from loadtest.experiment.processes import ChildFailedError, ChildProcess
from loadtest.experiment.topology import Topology
from sim.core.histogram import LogHistogram

__all__ = ["SETTLE_S", "Prober"]

SETTLE_S = 0.7
"""From the change of the rate to the measuring: a gap that is under way is over by then, and so is a burst of it."""
_LEAD_NS = 250_000_000
_LEAD_FACTOR = 4
_DRAINED_LAG_S = 0.020
_DRAIN_TIMEOUT_S = 8.0
_POLL_S = 0.25
_WAIT_S = 15.0
_TIMEOUT = aiohttp.ClientTimeout(total=_WAIT_S)


class Prober:
    """Probes a running topology, whose standing streams and short requests are two loads with a port each."""

    def __init__(
        self,
        topology: Topology,
        session: aiohttp.ClientSession,
        loads: Mapping[str, tuple[ChildProcess, str]],
        *,
        probe_s: float,
        tokens_per_chunk: int,
        lockstep: bool,
    ) -> None:
        self._topology = topology
        self._session = session
        self._urls = {name: url for name, (_, url) in loads.items()}
        self._pids = {"gen0": topology.pid("gen0"), "load": loads["standing"][0].process.pid}
        self._probe_s = probe_s
        self._tokens_per_chunk = tokens_per_chunk
        self._lockstep = lockstep
        workers = len(topology.orchestrators)
        self._share_cpu = 0 < len(topology.pinning.orchestrator) < workers
        self.streams = 0

    async def ready(self) -> None:
        """Wait until both loads answer, and learn how many standing streams there are."""
        deadline_s = time.monotonic() + _WAIT_S
        while True:
            try:
                reading = await self._read()
            except ChildFailedError:
                if time.monotonic() > deadline_s:
                    raise
                await asyncio.sleep(_POLL_S)
            else:
                self.streams = reading.live_streams
                return

    async def probe(self, policy: str, rate_tok_s: float) -> dict[str, Any]:
        """Measure ``policy`` at ``rate_tok_s``.  ChildFailedError if one of the processes does not answer."""
        length_ns = round((SETTLE_S + self._probe_s) * 1e9)
        start_ns = await self._schedule(policy, length_ns)
        await self._set_rate(rate_tok_s)
        await _until(start_ns + round(SETTLE_S * 1e9))
        before = await self._read()
        await _until(start_ns + length_ns)
        after = await self._read()
        self.streams = after.live_streams
        return probe_figures(
            rate_tok_s,
            max(1, before.live_streams),
            await self._blocks(),
            before,
            after,
            tokens_per_chunk=self._tokens_per_chunk,
            lockstep=self._lockstep,
            workers_share_cpu=self._share_cpu,
        )

    async def _schedule(self, policy: str, length_ns: int) -> int:
        """Give every worker its block; when it begins, CLOCK_MONOTONIC ns.

        A worker that is still busy with what came before answers late, so the block begins that much later.
        """
        topology = self._topology
        asked_ns = time.monotonic_ns()
        await topology.of_orchestrators("POST", "/admin/policy", {"policy": policy})
        lead_ns = max(_LEAD_NS, _LEAD_FACTOR * (time.monotonic_ns() - asked_ns))
        block = {"round": 0, "slot": 0, "arm": policy, "policy": policy, "length_ns": length_ns}
        for last in (False, False, True):
            start_ns = time.monotonic_ns() + lead_ns
            body = {"start_ns": start_ns, "settle_ns": round(SETTLE_S * 1e9), "blocks": [block]}
            try:
                await topology.of_orchestrators("POST", "/admin/blocks", body)
            except ChildFailedError:
                if last:
                    raise
                lead_ns *= _LEAD_FACTOR
                await topology.of_orchestrators("DELETE", "/admin/blocks")
            else:
                return start_ns
        raise AssertionError

    async def drain(self, policy: str, rate_tok_s: float) -> None:
        """Let queues empty at ``rate_tok_s`` under ``policy`` until every loop is on time again; no longer than 8 s."""
        await self._set_rate(rate_tok_s)
        await self._topology.of_orchestrators("POST", "/admin/policy", {"policy": policy})
        since_ns = time.monotonic_ns()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_DRAIN_TIMEOUT_S):
                while not await self._on_time(since_ns):  # noqa: ASYNC110 (other processes' loops: no event tells)
                    await asyncio.sleep(_POLL_S)

    async def _on_time(self, since_ns: int) -> bool:
        """Whether a whole second after ``since_ns`` was on time in the orchestrator and in the load."""
        health = await self._topology.of_orchestrators("GET", "/admin/samples")
        for record in [*health, await self._get("standing", "/admin/samples")]:
            last = record["samples"][-1] if record["samples"] else None
            if last is None or last["t_ns"] - last["wall_s"] * 1e9 < since_ns or last["lag_max_s"] > _DRAINED_LAG_S:
                return False
        return True

    async def _set_rate(self, rate_tok_s: float) -> None:
        pace = {"tok_s": rate_tok_s / max(1, self.streams)}
        await self._topology.ops("gen0", "POST", "/admin/rate", pace)

    async def _blocks(self) -> dict[str, Block]:
        """The block that each worker has just closed; a busy one may be some time over it."""
        names = self._topology.orchestrators
        deadline_s = time.monotonic() + 2 * _WAIT_S
        while True:
            ledgers = await self._topology.of_orchestrators("GET", "/admin/blocks")
            if all(ledger["state"] == "done" for ledger in ledgers):
                break
            if time.monotonic() > deadline_s:
                raise ChildFailedError(f"the orchestrator is {2 * _WAIT_S:g} s behind its block schedule")
            await asyncio.sleep(_POLL_S / 5)
        try:
            return {name: Block.from_record(ledger["blocks"][0]) for name, ledger in zip(names, ledgers, strict=True)}
        except IncompleteBlockError as error:
            raise ChildFailedError(f"a worker of the orchestrator relayed nothing in a whole probe: {error}") from None

    async def _read(self) -> Reading:
        (gen_t_s, gen), standing, short, health = await asyncio.gather(
            self._gen(),
            self._get("standing", "/admin/counters"),
            self._get("short", "/admin/counters"),
            self._get("standing", "/admin/samples"),
        )
        cpu_s = {name: _cpu_s(pid) for name, pid in self._pids.items()}
        return Reading(time.monotonic(), gen_t_s, gen, standing, LogHistogram.from_json(health["lag"]), short, cpu_s)

    async def _gen(self) -> tuple[float, dict[str, Any]]:
        """Gen's counters, and when it counted: midway between question and answer."""
        asked_s = time.monotonic()
        counters: dict[str, Any] = await self._topology.ops("gen0", "GET", "/admin/counters")
        return (asked_s + time.monotonic()) / 2, counters

    async def _get(self, load: str, path: str) -> dict[str, Any]:
        try:
            async with self._session.get(self._urls[load] + path, timeout=_TIMEOUT) as response:
                answer: dict[str, Any] = await response.json()
                return answer
        except (aiohttp.ClientError, TimeoutError) as error:
            raise ChildFailedError(
                f"the load did not answer GET {path}: {str(error) or type(error).__name__}"
            ) from error


def _cpu_s(pid: int) -> float:
    """CPU time that a process has used, all its threads; the kernel counts it in hundredths of a second."""
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError as error:
        raise ChildFailedError(f"process {pid} is gone: {error.strerror}") from None
    return (int(after_name[11]) + int(after_name[12])) / os.sysconf("SC_CLK_TCK")


async def _until(t_ns: int) -> None:
    await asyncio.sleep(max(0.0, (t_ns - time.monotonic_ns()) / 1e9))
