"""What the kernel knows of this process, read cheaply: CPU, run-queue wait, throttling, steal, memory.

Files are opened once and re-read in place (0.8 us instead of 19 for a schedstat), because a reading is part of
what it measures.  What a machine does not offer reads as 0.  Judging the numbers is `sim.service.health`'s
business.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path

__all__ = ["CpuThrottle", "MachineCpu", "ProcFacts", "ProcReader", "ThreadCpu", "steal_share"]

_READ_BYTES = 4096
_CGROUP_ROOT = Path("/sys/fs/cgroup")


class ThreadCpu:
    """CPU time and run-queue wait of one thread, from its schedstat; read it on that thread.

    A kernel without schedstat still gives the CPU time; the wait then reads as 0.
    """

    __slots__ = ("_fd",)

    def __init__(self, tid: int | None = None) -> None:
        tid = threading.get_native_id() if tid is None else tid
        self._fd = _open(Path(f"/proc/self/task/{tid}/schedstat"))

    def read(self) -> tuple[int, int]:
        """(on-CPU ns, ns runnable but not running), both since the thread began."""
        if self._fd < 0:
            return time.thread_time_ns(), 0
        cpu_ns, wait_ns, _ = os.pread(self._fd, 128, 0).split()
        return int(cpu_ns), int(wait_ns)

    def close(self) -> None:
        """Let the file go."""
        _close(self._fd)
        self._fd = -1


class CpuThrottle:
    """Time that the control group's CPU quota held this process back."""

    __slots__ = ("_fd", "_key", "_per_us")

    def __init__(self, root: Path = _CGROUP_ROOT, membership: Path = Path("/proc/self/cgroup")) -> None:
        self._fd, self._key, self._per_us = -1, b"", 1
        for folder in _cpu_folders(root, membership):
            for key, per_us in ((b"throttled_usec", 1), (b"throttled_time", 1000)):
                fd = _open(folder / "cpu.stat")
                if fd >= 0 and key in os.pread(fd, _READ_BYTES, 0):
                    self._fd, self._key, self._per_us = fd, key, per_us
                    return
                _close(fd)

    def read_us(self) -> int:
        """Microseconds throttled since the group began; 0 where there is no quota to read."""
        if self._fd < 0:
            return 0
        words = os.pread(self._fd, _READ_BYTES, 0).split()
        return int(words[words.index(self._key) + 1]) // self._per_us

    def close(self) -> None:
        """Let the file go."""
        _close(self._fd)
        self._fd = -1


class MachineCpu:
    """The machine's CPU clock: how much of it a hypervisor gave to others."""

    __slots__ = ("_fd",)

    def __init__(self, path: Path = Path("/proc/stat")) -> None:
        self._fd = _open(path)

    def read(self) -> tuple[int, int]:
        """(stolen ticks, all ticks), summed over the CPUs; guest time is inside user time, so left out."""
        if self._fd < 0:
            return 0, 0
        ticks = [int(word) for word in os.pread(self._fd, 256, 0).split(b"\n", 1)[0].split()[1:9]]
        return (ticks[7] if len(ticks) > 7 else 0), sum(ticks)

    def close(self) -> None:
        """Let the file go."""
        _close(self._fd)
        self._fd = -1


def steal_share(before: tuple[int, int], after: tuple[int, int]) -> float:
    """Share (0..1) of the machine's time between two `MachineCpu` readings that was stolen."""
    ticks = after[1] - before[1]
    return (after[0] - before[0]) / ticks if ticks > 0 else 0.0


@dataclass(frozen=True, slots=True)
class ProcFacts:
    """One reading of the slow-moving facts."""

    process_cpu_ns: int
    throttled_us: int
    machine_ticks: tuple[int, int]
    rss_bytes: int


class ProcReader:
    """Reads `ProcFacts`; about 10 us, meant for once a second."""

    __slots__ = ("_machine", "_page_bytes", "_statm_fd", "_throttle")

    def __init__(self) -> None:
        self._throttle = CpuThrottle()
        self._machine = MachineCpu()
        self._statm_fd = _open(Path("/proc/self/statm"))
        self._page_bytes = os.sysconf("SC_PAGE_SIZE")

    def read(self) -> ProcFacts:
        """The facts as of now."""
        pages = int(os.pread(self._statm_fd, 128, 0).split()[1]) if self._statm_fd >= 0 else 0
        return ProcFacts(
            time.process_time_ns(), self._throttle.read_us(), self._machine.read(), pages * self._page_bytes
        )

    def close(self) -> None:
        """Let the files go."""
        self._throttle.close()
        self._machine.close()
        _close(self._statm_fd)
        self._statm_fd = -1


def _cpu_folders(root: Path, membership: Path) -> list[Path]:
    """Where this process's cpu.stat may lie: cgroup v2, then v1; inside a container its own root."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return []
    folders: list[Path] = []
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers == "":
            mounts = [root, root / "unified"]
        elif "cpu" in controllers.split(","):
            mounts = [root / controllers, root / "cpu"]
        else:
            continue
        folders += [mount / path.lstrip("/") for mount in mounts] + mounts
    return folders


def _open(path: Path) -> int:
    """A read-only descriptor, or -1 where the file is not to be had."""
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1


def _close(fd: int) -> None:
    if fd >= 0:
        os.close(fd)
