"""Real processes for the system tests: the command itself, bounded in time, always ended; and a real browser."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

COMMAND = [sys.executable, "-m", "loadtest.experiment"]
READY_TIMEOUT_S = 40
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@dataclass(frozen=True)
class Up:
    """A topology that `disagg-sim up` started: URLs by server name."""

    listen: dict[str, str]
    ops: dict[str, str]
    process: subprocess.Popen[str]


def start(*arguments: str, cwd: Path | None = None) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )


def finish(process: subprocess.Popen[str], timeout_s: float) -> tuple[int, str, str]:
    """(exit code, stdout, stderr); a process that outlives the bound is ended and fails the test."""
    try:
        out, err = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=15)
        process.kill()
        raise
    return process.returncode, out, err


def run_command(*arguments: str, timeout_s: float = 60, cwd: Path | None = None) -> tuple[int, str, str]:
    return finish(start(*arguments, cwd=cwd), timeout_s)


@contextlib.contextmanager
def topology_up(out: Path, *arguments: str) -> Iterator[Up]:
    process = start("up", "--out", str(out), *arguments)
    listen: dict[str, str] = {}
    ops: dict[str, str] = {}
    try:
        assert process.stdout is not None
        deadline = time.monotonic() + READY_TIMEOUT_S
        while "orchestrator" not in listen:
            line = process.stdout.readline()
            found = re.fullmatch(r"(\S+)\s+(\S+)\s+metrics (\S+)/metrics", line.strip())
            if found is None or time.monotonic() > deadline:
                process.kill()
                pytest.fail(f"`up` printed {line!r}; {process.stderr.read() if process.stderr else ''}")
            listen[found[1]], ops[found[1]] = found[2], found[3]
        yield Up(listen, ops, process)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        finish(process, 30)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        message = "no Chromium on PATH; get one with `apt-get install chromium`"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield started
        started.close()
