"""The topology of a run as local processes: ctx and gen servers, the orchestrator, and who gets which CPU.

Servers are started as modules and known by URL alone; nothing of theirs is imported.  The orchestrator is
what is measured, so on two CPUs or more it has one to itself and everything else shares the rest.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from loadtest.experiment.ports import free_ports
from loadtest.experiment.processes import READY_TIMEOUT_S, STOP_TIMEOUT_S, ChildFailedError, ChildProcess
from loadtest.scenario import Scenario

__all__ = ["Pinning", "Topology", "Wrapper", "pinning_of", "usable_cpus"]

_OPS_TIMEOUT = aiohttp.ClientTimeout(total=30)
READINESS_TIMEOUT_S = 15.0


@dataclass(frozen=True, slots=True)
class Pinning:
    """CPUs of the orchestrator and of all others; both empty when nothing is pinned."""

    orchestrator: frozenset[int]
    others: frozenset[int]

    def of_worker(self, index: int, workers: int) -> frozenset[int]:
        """CPUs of one worker of the orchestrator: one of its own if there is one for each, else all of them."""
        if len(self.orchestrator) < workers:
            return self.orchestrator
        return frozenset(sorted(self.orchestrator)[index : index + 1])


def pinning_of(cpus: Sequence[int], *, wanted: bool, workers: int = 1) -> Pinning:
    """The last CPUs for the orchestrator, one a worker, the rest, but one at least, for the others.

    One CPU cannot be shared out.
    """
    if not wanted or len(cpus) < 2:
        return Pinning(frozenset(), frozenset())
    ordered = sorted(cpus)
    first = max(1, len(ordered) - workers)
    return Pinning(frozenset(ordered[first:]), frozenset(ordered[:first]))


@dataclass(frozen=True, slots=True)
class Wrapper:
    """A command put in front of the orchestrator's own, such as a tool that counts, and what comes with it.

    ``flags`` are further flags of the orchestrator; ``first_look_s`` is slept before it is asked whether it is ready;
    ``gen_url`` gives the URL that the orchestrator is told for gen's.
    """

    argv: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    ready_timeout_s: float = READY_TIMEOUT_S
    stop_timeout_s: float = STOP_TIMEOUT_S
    first_look_s: float = 0.0
    gen_url: Callable[[str], Awaitable[str]] | None = None


@dataclass(slots=True)
class Topology:
    """Running servers: `start` it, use it, `stop` it.  Whether a child dies meanwhile is `watch`'s business."""

    run_dir: Path
    pinning: Pinning
    wrapper: Wrapper = Wrapper()
    children: list[ChildProcess] = field(default_factory=list)
    _session: aiohttp.ClientSession | None = None
    _socket_dir: tempfile.TemporaryDirectory[str] | None = None

    async def start_gen(self, scenario: Scenario) -> None:
        """Start one gen server and nothing else.  ChildFailedError if it does not get ready."""
        self._session = aiohttp.ClientSession(timeout=_OPS_TIMEOUT)
        logs = self.run_dir / "logs"
        logs.mkdir(exist_ok=True)
        listen, ops = (f"127.0.0.1:{port}" for port in free_ports(2))
        argv = [*_module("sim.gen_server"), "--listen", listen, "--ops", ops, *_flags(scenario.gen)]
        self.children.append(await ChildProcess.start("gen0", argv, logs / "gen0.log", self.pinning.others))

    async def start(
        self, scenario: Scenario, policies: Sequence[str], *, unix_upstreams: bool = False, workers: int = 1
    ) -> None:
        """Start ctx, gen and orchestrator and wait until the orchestrator has both; no policies: all built-in ones.

        Several ``workers`` are processes orchestrator0, orchestrator1 ... that share one data port.
        ChildFailedError, with the child's last words, if one does not get ready.
        """
        self._session = aiohttp.ClientSession(timeout=_OPS_TIMEOUT)
        logs = self.run_dir / "logs"
        logs.mkdir(exist_ok=True)
        ports = free_ports(5 + workers)
        for index, (role, settings) in enumerate((("ctx", scenario.ctx), ("gen", scenario.gen))):
            listen = f"unix:{self._sockets()}/{role}0.sock" if unix_upstreams else f"127.0.0.1:{ports[index]}"
            argv = [*_module(f"sim.{role}_server"), "--listen", listen, "--ops", f"127.0.0.1:{ports[4 + index]}"]
            argv += _flags(settings)
            self.children.append(await ChildProcess.start(f"{role}0", argv, logs / f"{role}0.log", self.pinning.others))
        flags = list(self.wrapper.flags)
        for child in self.children:
            url = child.addresses["listen"]
            if child.name == "gen0" and self.wrapper.gen_url is not None:
                url = await self.wrapper.gen_url(url)
            flags += [f"--{child.name[:3]}", url]
        flags += [*(["--policies", ",".join(policies)] if policies else []), *_flags(scenario.orchestrator)]
        for index in range(workers):
            await self._start_orchestrator(index, workers, (ports[2], [ports[3], *ports[6:]][index]), flags)
        await asyncio.sleep(self.wrapper.first_look_s)
        await self._wait_ready()

    async def _start_orchestrator(self, index: int, workers: int, ports: tuple[int, int], flags: list[str]) -> None:
        """Start one worker; ``ports`` are the data port and its own operations port."""
        name = "orchestrator" if workers == 1 else f"orchestrator{index}"
        # What is free now may be taken by the time a slow start binds it: let the kernel choose then.
        listen_port, ops_port = (0, 0) if self.wrapper.argv else ports
        argv = [*self.wrapper.argv, *_module("sim.orchestrator")]
        argv += ["--listen", f"127.0.0.1:{listen_port}", "--ops", f"127.0.0.1:{ops_port}", *flags]
        if workers > 1:
            argv.append("--reuse-port")
        cpus, log = self.pinning.of_worker(index, workers), self.run_dir / "logs" / f"{name}.log"
        limit_s = self.wrapper.ready_timeout_s
        self.children.append(await ChildProcess.start(name, argv, log, cpus, ready_timeout_s=limit_s))

    @property
    def orchestrators(self) -> list[str]:
        """Names of the orchestrator's workers: one process is called orchestrator, several have a number each."""
        return [child.name for child in self.children if child.name.startswith("orchestrator")]

    @property
    def url(self) -> str:
        """The orchestrator's data URL."""
        return str(self._child(self.orchestrators[0]).addresses["listen"])

    def address(self, name: str, port: str = "ops") -> str:
        """URL of a child's ``ops`` or ``listen`` port."""
        return str(self._child(name).addresses[port])

    def pid(self, name: str) -> int:
        """Process id of a child."""
        return self._child(name).process.pid

    def _child(self, name: str) -> ChildProcess:
        return next(child for child in self.children if child.name == name)

    @property
    def servers(self) -> list[str]:
        """Names of the children that are servers."""
        return [child.name for child in self.children if child.addresses]

    async def ops(self, name: str, method: str, path: str, body: object = None) -> Any:
        """Call a server's operations port; the decoded answer.  ChildFailedError if it refuses or is gone."""
        assert self._session is not None
        url = self.address(name) + path
        try:
            async with self._session.request(method, url, json=body) as response:
                answer = await response.json()
                if response.status >= 400:
                    message = answer.get("error", {}).get("message", answer)
                    raise ChildFailedError(
                        f"{name} refused {method} {path}: {message}", usage_error=path == "/admin/policy"
                    )
                return answer
        except (aiohttp.ClientError, TimeoutError) as error:
            raise ChildFailedError(
                f"{name} did not answer {method} {path}: {str(error) or type(error).__name__}"
            ) from error

    async def of_orchestrators(self, method: str, path: str, body: object = None) -> list[Any]:
        """Call the operations port of every worker of the orchestrator, all at once; their answers in order."""
        return await asyncio.gather(*(self.ops(name, method, path, body) for name in self.orchestrators))

    async def collect(self, path: str) -> dict[str, Any]:
        """GET ``path`` from every server that still answers, by name."""
        answers = {}
        for name in self.servers:
            with contextlib.suppress(ChildFailedError):
                answers[name] = await self.ops(name, "GET", path)
        return answers

    async def _wait_ready(self) -> None:
        assert self._session is not None
        last: object = None
        names = self.orchestrators
        # Which worker answers on a data port that they share is not ours to choose.
        urls = [self.url] if len(names) == 1 else [self.address(name) for name in names]
        try:
            async with asyncio.timeout(READINESS_TIMEOUT_S):
                while urls:
                    with contextlib.suppress(aiohttp.ClientError):
                        async with self._session.get(urls[0] + "/health") as response:
                            if response.status == 200:
                                urls.pop(0)
                                continue
                            last = await response.text()
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise ChildFailedError(f"the orchestrator did not find its servers ready: {last}") from None

    async def stop(self) -> None:
        """End every child, last started first."""
        for child in reversed(self.children):
            await child.stop(self.wrapper.stop_timeout_s if child.name in self.orchestrators else STOP_TIMEOUT_S)
        if self._session is not None:
            await self._session.close()
        if self._socket_dir is not None:
            self._socket_dir.cleanup()

    def _sockets(self) -> str:
        """A short path for Unix sockets: theirs may not exceed 107 bytes, a run directory's may."""
        if self._socket_dir is None:
            self._socket_dir = tempfile.TemporaryDirectory(prefix="disagg-sim-")
        return self._socket_dir.name


def _module(name: str) -> list[str]:
    return [sys.executable, "-m", name]


def _flags(settings: Any) -> list[str]:
    """Command-line flags of what differs from the defaults."""
    flags = []
    for entry in dataclasses.fields(settings):
        value = getattr(settings, entry.name)
        if value != entry.default:
            text = str(value).lower() if isinstance(value, bool) else str(value)
            flags += [f"--{entry.name.replace('_', '-')}", text]
    return flags


def usable_cpus() -> list[int]:
    """CPUs this process may run on."""
    return sorted(os.sched_getaffinity(0))
