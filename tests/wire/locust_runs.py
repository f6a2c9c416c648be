"""Locust as a process of its own, against servers that the test scripts: started, awaited within a bound, always ended.

gevent and asyncio never share a process, so nothing of the load's gevent side is imported here.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loadtest.load_settings import LoadSettings
from loadtest.plan import LoadPlan
from sim.core.settings import GenSettings

ROOT = Path(__file__).parents[2]
LOCUSTFILE = ROOT / "loadtest" / "locustfile.py"
BOUND_S = 40.0


@dataclass
class Run:
    """A Locust process and, once it has ended, all it left."""

    process: asyncio.subprocess.Process
    out: Path
    stderr: str = ""

    async def ready(self) -> dict[str, Any]:
        """The line that a run of a plan prints when it is set up."""
        assert self.process.stdout is not None
        async with asyncio.timeout(BOUND_S):
            line: dict[str, Any] = json.loads(await self.process.stdout.readline())
        return line

    async def end(self) -> int:
        """Wait for its exit code."""
        async with asyncio.timeout(BOUND_S):
            _, raw = await self.process.communicate()
        self.stderr = raw.decode()
        assert self.process.returncode is not None
        assert "Traceback" not in self.stderr, self.stderr
        return self.process.returncode

    @property
    def client(self) -> dict[str, Any]:
        result: dict[str, Any] = json.loads((self.out / "client.json").read_text())
        return result

    @property
    def streams(self) -> list[dict[str, Any]]:
        """Lines of streams.jsonl by number."""
        lines = (self.out / "streams.jsonl").read_text().splitlines()
        return sorted(map(json.loads, lines), key=lambda line: line["seq"])


@contextlib.asynccontextmanager
async def locust(
    out: Path, *arguments: str, locustfile: Path = LOCUSTFILE, cwd: Path | None = None
) -> AsyncIterator[Run]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "locust", "-f", str(locustfile)),
        *arguments,
        cwd=cwd,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        start_new_session=True,
    )
    try:
        yield Run(process, out)
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)  # its workers too, if it has any: it leads their group
            await process.wait()


def headless(plan: LoadPlan, folder: Path) -> list[str]:
    """The arguments with which our commands start it."""
    path = folder / "plan.json"
    plan.write(path)
    return ["--headless", "-u", "1", "-r", "1", "--only-summary", "--host", plan.host, "--plan", str(path)]


def plan_for(url: str, out: Path, *, gen: dict[str, Any] | None = None, **load: Any) -> LoadPlan:
    """A plan against our fakes, results in ``out``, operations on a free port."""
    settings = LoadSettings(**{"ramp_s": 0.0, "sample_every": 1, **load})
    return LoadPlan(
        host=url,
        settings=settings,
        gen=GenSettings(**(gen or {})),
        cache_hit_ratio=0.25,
        out=str(out),
        ops="127.0.0.1:0",
    )
