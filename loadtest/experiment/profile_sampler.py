"""py-spy on the running orchestrator: found, started on the orchestrator's own CPU, and what it says when it fails.

It stops the orchestrator for each sample (about 1 ms with the C frames), and counts the sample if the thread was
running or ready to: time in the kernel counts, waiting for something to read does not.  Not only samples that
hold the interpreter's lock: uvloop reads and writes without it.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from loadtest.experiment.processes import ChildFailedError, ChildProcess
from loadtest.experiment.profile_pinned import prefixed
from sim.core.settings import SettingError

__all__ = [
    "LOG_NAME",
    "STACKS_NAME",
    "SamplerLog",
    "check_ended_well",
    "find_sampler",
    "read_log",
    "start_sampler",
    "stop_sampler",
]

STACKS_NAME, LOG_NAME = "stacks.folded", "py-spy.log"
_STOP_TIMEOUT_S = 10.0

HOW_TO_GET = "py-spy is not installed; get it with: pip install 'disagg-sim[profile]' (or: pip install py-spy)"
HOW_TO_PERMIT = (
    "py-spy may not read the orchestrator's memory; run as root, or allow it: in a container start that with "
    "--cap-add SYS_PTRACE, elsewhere `sysctl kernel.yama.ptrace_scope=0`"
)


def find_sampler() -> str:
    """Path of py-spy, beside this Python or on PATH.  SettingError says how to get it."""
    beside = str(Path(sys.executable).parent)
    found = shutil.which("py-spy", path=beside) or shutil.which("py-spy")
    if found is None:
        raise SettingError(HOW_TO_GET)
    return found


async def start_sampler(
    command: Sequence[str], pid: int, run_dir: Path, cpus: frozenset[int], *, hz: int, duration_s: float, native: bool
) -> ChildProcess:
    """Start sampling ``pid`` at ``hz`` for ``duration_s``; the folded stacks come into ``run_dir`` at its end.

    ``cpus`` are those of ``pid``: see `profile_pinned`.
    """
    options = ["--pid", str(pid), "--rate", str(hz), "--duration", str(round(duration_s)), "--format", "raw"]
    options += ["--nolineno", "--output", str(run_dir / STACKS_NAME), *(["--native"] if native else [])]
    argv = prefixed([*command, "record", *options], cpus)
    return await ChildProcess.start("py-spy", argv, run_dir / "logs" / LOG_NAME, frozenset(), announces=False)


async def stop_sampler(sampler: ChildProcess) -> None:
    """End it early by the signal at which it still writes what it has; kill it if it does not."""
    if sampler.process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            sampler.process.send_signal(signal.SIGINT)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(sampler.process.wait(), _STOP_TIMEOUT_S)
    await sampler.stop()


def check_ended_well(sampler: ChildProcess) -> None:
    """SettingError if it was not allowed to sample, ChildFailedError for another failure."""
    if sampler.process.returncode == 0:
        return
    log = sampler.log_path.read_text(errors="replace")
    if re.search(
        r"permission denied|operation not permitted|EPERM|try running again with elevated", log, re.IGNORECASE
    ):
        raise SettingError(HOW_TO_PERMIT)
    raise ChildFailedError(str(sampler.failure()))


@dataclass(frozen=True, slots=True)
class SamplerLog:
    """What py-spy said of its own work: samples it could not take, and how far it ever was behind its rate, s."""

    errors: int
    behind_s: float


def read_log(text: str) -> SamplerLog:
    """Read py-spy's own words."""
    errors = re.search(r"Errors: (\d+)", text)
    behind = [float(value) for value in re.findall(r"([\d.]+)s behind in sampling", text)]
    return SamplerLog(int(errors[1]) if errors else 0, max(behind, default=0.0))
