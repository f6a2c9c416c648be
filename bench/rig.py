"""The processes of one measurement: started on their CPUs, awaited until they answer, ended in order.

What is measured has the last CPU to itself, everything else shares the rest.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from bench.candidate import Addresses, Candidate, Load
from loadtest.experiment.processes import ChildFailedError, ChildProcess
from loadtest.experiment.topology import Pinning

__all__ = ["Rig"]

READY_TIMEOUT_S = 40.0
POLL_S = 0.02
CALL_TIMEOUT = aiohttp.ClientTimeout(total=20)


@dataclass(slots=True)
class Rig:
    """A directory and the processes started for one measurement; `stop` it whatever happened."""

    directory: Path
    pinning: Pinning
    children: dict[str, ChildProcess] = field(default_factory=dict)
    _session: aiohttp.ClientSession | None = None

    async def start(
        self, role: str, candidate: Candidate, addresses: Addresses, load: Load | None = None, *, alone: bool = False
    ) -> None:
        """Start a candidate as ``role`` and, unless it is a client, wait until it is ready.  ChildFailedError.

        ``alone`` gives it the CPU that nothing else runs on.
        """
        folder = self.directory / role
        folder.mkdir(parents=True, exist_ok=True)
        argv = list(candidate.argv(addresses, folder, load))
        cpus = self.pinning.orchestrator if alone else self.pinning.others
        try:
            child = await ChildProcess.start(candidate.name, argv, folder / "log.txt", cpus, announces=False)
        except OSError as error:
            raise ChildFailedError(f"{candidate.name} cannot be started: {error}") from None
        self.children[role] = child
        if candidate.kind != "client":
            await self._wait(child, lambda: self._answers(addresses.port, candidate.ready_path), "answers")

    async def wait_for_word(self, role: str, word: str) -> None:
        """Wait until ``word`` is in the child's log.  ChildFailedError if it never is."""
        child = self.children[role]

        async def said() -> bool:
            return word in child.log_path.read_text(errors="replace")

        await self._wait(child, said, f"says {word}")

    def pid(self, role: str) -> int:
        """The process id of ``role``."""
        return self.children[role].process.pid

    def check_alive(self) -> None:
        """ChildFailedError if a process has ended."""
        for child in self.children.values():
            if child.process.returncode is not None:
                raise child.failure()

    async def call(self, url: str, method: str = "GET") -> Any:
        """A JSON answer of an operations port.  ChildFailedError if there is none."""
        try:
            async with self._calls().request(method, url) as response:
                response.raise_for_status()
                return await response.json()
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise ChildFailedError(f"{method} {url} failed: {str(error) or type(error).__name__}") from None

    async def stop(self, *, keep: bool) -> None:
        """End every process, the last started first, and drop the directory unless it is to be kept."""
        for child in reversed(self.children.values()):
            await child.stop()
        if self._session is not None:
            await self._session.close()
        if not keep:
            await asyncio.to_thread(shutil.rmtree, self.directory, ignore_errors=True)

    async def _wait(self, child: ChildProcess, done: Callable[[], Any], what: str) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(READY_TIMEOUT_S):
                while True:
                    if child.process.returncode is not None:
                        raise child.failure()
                    if await done():
                        return
                    await asyncio.sleep(POLL_S)
        raise ChildFailedError(f"{child.name} was given {READY_TIMEOUT_S:g} s and never {what}; {child.log_tail()}")

    async def _answers(self, port: int, path: str) -> bool:
        if not path:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                return True
            return False
        with contextlib.suppress(aiohttp.ClientError, TimeoutError):
            async with self._calls().get(f"http://127.0.0.1:{port}{path}") as response:
                return response.status == 200
        return False

    def _calls(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=CALL_TIMEOUT)
        return self._session
