"""System calls of running processes in a short window, by perf's tracepoint or, where there is none, by strace.

The tracepoint costs next to nothing.  strace stops the process at every call: its process then takes several times the
CPU, so it may fall behind at a rate that it holds otherwise.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
import signal
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["SyscallCount", "count_syscalls", "parse_perf", "parse_strace"]

_EVENT = "raw_syscalls:sys_enter"
_MARGIN_S = 10.0
_LINES_SHOWN = 200  # characters of a tool's complaint


@dataclass(frozen=True, slots=True)
class SyscallCount:
    """``calls`` in the window, or None and why not."""

    calls: int | None
    by: str
    problem: str | None = None


def parse_perf(text: str) -> int | None:
    """The count in the output of ``perf stat -x,``; None if perf counted nothing."""
    for line in text.splitlines():
        fields = line.split(",")
        if _EVENT in fields and fields[0].isdecimal():
            return int(fields[0])
    return None


def parse_strace(text: str) -> int | None:
    """The total in the summary of ``strace -c``; None if there is none."""
    found = re.search(r"^\s*100\.00\s+\S+\s+(?:\S+\s+)?(\d+)\s+(?:\d+\s+)?total\s*$", text, re.MULTILINE)
    return None if found is None else int(found[1])


async def count_syscalls(pids: Sequence[int], window_s: float) -> SyscallCount:
    """System calls of the processes, all their threads, within ``window_s``."""
    chosen = ",".join(str(pid) for pid in dict.fromkeys(pids))
    perf, strace = shutil.which("perf"), shutil.which("strace")
    problem = "neither perf (apt-get install linux-perf) nor strace (apt-get install strace) is installed"
    if perf is not None:
        text = await _run([perf, "stat", "-x,", "-e", _EVENT, "-p", chosen, "sleep", f"{window_s:g}"], window_s)
        calls = parse_perf(text)
        if calls is not None:
            return SyscallCount(calls, "perf")
        problem = f"perf counts no system calls here: {text.strip()[:_LINES_SHOWN]}"
    if strace is not None:
        argv = [strace, "-c", "-f", *(word for pid in dict.fromkeys(pids) for word in ("-p", str(pid)))]
        text = await _run(argv, window_s, interrupt=True)
        calls = parse_strace(text)
        if calls is not None:
            return SyscallCount(calls, "strace")
        problem = f"strace counts no system calls here: {text.strip()[:_LINES_SHOWN]}"
    return SyscallCount(None, "none", problem)


async def _run(argv: Sequence[str], window_s: float, *, interrupt: bool = False) -> str:
    """Both outputs of a tool; ``interrupt`` ends it after the window, one that hangs is killed."""
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        if interrupt:
            await asyncio.sleep(window_s)
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGINT)
        output, _ = await asyncio.wait_for(process.communicate(), window_s + _MARGIN_S)
    except TimeoutError:
        return f"{argv[0]} did not end"
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    return output.decode(errors="replace")
