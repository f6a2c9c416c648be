"""CPU time, run-queue wait and memory of a process with all its threads and children, read from /proc.

CPU is field 1 of every thread's schedstat, in ns: utime and stime are sampled at ticks and alias with work that comes
every few ms.  Field 2 is the time a thread was runnable and did not run: how much the box itself was in the way.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Spent", "TreeReading", "read_tree", "rss_bytes", "spent_between", "tree_of"]

_PROC = Path("/proc")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class TreeReading:
    """Per thread, by (pid, tid): ns on a CPU and ns in the run queue, both since it began."""

    threads: Mapping[tuple[int, int], tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Spent:
    """What a tree used between two readings, ns."""

    cpu_ns: int
    wait_ns: int


def tree_of(pid: int, proc: Path = _PROC) -> list[int]:
    """``pid`` and its living descendants; one that ends meanwhile is left out."""
    found, new = [], [pid]
    while new:
        current = new.pop()
        children = []
        try:
            for task in (proc / str(current) / "task").iterdir():
                children += [int(word) for word in (task / "children").read_text().split()]
        except OSError:
            pass
        if (proc / str(current)).exists():
            found.append(current)
        new += children
    return found


def read_tree(pid: int, proc: Path = _PROC) -> TreeReading:
    """All threads of the tree as of now; empty when the process is gone."""
    threads = {}
    for member in tree_of(pid, proc):
        try:
            tasks = list((proc / str(member) / "task").iterdir())
        except OSError:
            continue
        for task in tasks:
            try:
                cpu_ns, wait_ns, _ = (task / "schedstat").read_text().split()
            except (OSError, ValueError):
                continue
            threads[member, int(task.name)] = int(cpu_ns), int(wait_ns)
    return TreeReading(threads)


def spent_between(before: TreeReading, after: TreeReading) -> Spent:
    """The difference; a thread that is new counts whole, one that has ended is not known any more."""
    cpu_ns = wait_ns = 0
    for thread, (cpu, wait) in after.threads.items():
        cpu_before, wait_before = before.threads.get(thread, (0, 0))
        cpu_ns += cpu - cpu_before
        wait_ns += wait - wait_before
    return Spent(cpu_ns, wait_ns)


def rss_bytes(pid: int, proc: Path = _PROC) -> int:
    """Resident memory of the tree, summed; pages that its processes share count in each."""
    total = 0
    for member in tree_of(pid, proc):
        try:
            total += int((proc / str(member) / "statm").read_text().split()[1]) * _PAGE_BYTES
        except (OSError, IndexError):
            continue
    return total
