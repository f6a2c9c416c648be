"""One child process of a run: started, awaited until it says it is ready, watched, and ended by its pid.

Every child writes its log into the run directory and gets a session of its own, so that Ctrl-C reaches the
experiment alone, which then ends its children in order and keeps what was measured.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

__all__ = ["READY_TIMEOUT_S", "STOP_TIMEOUT_S", "ChildFailedError", "ChildProcess"]

READY_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 10.0
_LOG_LINES_SHOWN = 6
_PR_SET_PDEATHSIG = 1  # <sys/prctl.h>; Linux
_PR_SET_PTRACER, _PR_SET_PTRACER_ANY = 0x59616D61, ctypes.c_ulong(-1)  # "Yama"
_LIBC = ctypes.CDLL(None)


class ChildFailedError(RuntimeError):
    """A process could not be started or died; ``usage_error`` says that its configuration was refused."""

    def __init__(self, message: str, *, usage_error: bool = False) -> None:
        super().__init__(message)
        self.usage_error = usage_error


@dataclass(slots=True)
class ChildProcess:
    """A running child; ``addresses`` is the line it printed when ready ({} for one that prints none)."""

    name: str
    process: asyncio.subprocess.Process
    log_path: Path
    addresses: dict[str, Any]

    @classmethod
    async def start(
        cls,
        name: str,
        argv: Sequence[str],
        log_path: Path,
        cpus: frozenset[int],
        *,
        announces: bool = True,
        ready_timeout_s: float = READY_TIMEOUT_S,
    ) -> Self:
        """Start ``argv`` on ``cpus`` (empty: anywhere).  ChildFailedError if it does not get ready in time."""
        with log_path.open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE if announces else log,
                stderr=log,
                start_new_session=True,
                preexec_fn=_end_with_parent,
            )
        if cpus:
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(process.pid, cpus)
        child = cls(name, process, log_path, {})
        if announces:
            child.addresses = await child._read_ready_line(ready_timeout_s)
        return child

    async def _read_ready_line(self, timeout_s: float) -> dict[str, Any]:
        assert self.process.stdout is not None
        try:
            async with asyncio.timeout(timeout_s):
                line = await self.process.stdout.readline()
                if not line:
                    await self.process.wait()
                    raise self.failure()
        except TimeoutError:
            await self.stop()
            raise ChildFailedError(f"{self.name} was not ready after {timeout_s:g} s; {self.log_tail()}") from None
        except asyncio.CancelledError:
            await self.stop()
            raise
        addresses: dict[str, Any] = json.loads(line)
        return addresses

    def failure(self) -> ChildFailedError:
        """The error that describes this child's end."""
        code = self.process.returncode
        if code == 0:
            return ChildFailedError(f"{self.name} ended before the run did")
        how = (
            f"was killed by {signal.Signals(-code).name}"
            if code is not None and code < 0
            else f"ended with code {code}"
        )
        return ChildFailedError(f"{self.name} {how}; {self.log_tail()}", usage_error=code == 2)

    def log_tail(self) -> str:
        """The last lines of its log, and where the log is."""
        try:
            lines = self.log_path.read_text(errors="replace").splitlines()[-_LOG_LINES_SHOWN:]
        except OSError:
            lines = []
        return f"its last words ({self.log_path}):\n  " + "\n  ".join(lines or ["(none)"])

    def kill(self) -> None:
        """End it at once."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()

    async def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Ask it to end, wait, and kill it if it does not."""
        for signal_number in (signal.SIGTERM, signal.SIGKILL):
            if self.process.returncode is not None:
                return
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(signal_number)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.process.wait(), timeout_s)


def _end_with_parent() -> None:
    """In the child, before it runs: get SIGTERM if the experiment dies, even by SIGKILL, so that nothing is left.

    And let a sampler that is not its parent look at it (`profile`); kernels without Yama refuse that, and need not.
    """
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    _LIBC.prctl(_PR_SET_PTRACER, _PR_SET_PTRACER_ANY)
