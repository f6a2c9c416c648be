"""Reading what the kernel says of the machine: /proc and /sys texts in, figures out.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

__all__ = ["CpuTicks", "Quota", "busy_shares", "cpu_list", "cpu_ticks", "ports_taken", "quota_v1", "quota_v2", "steal"]

_IDLE = (3, 4)  # columns of /proc/stat after the name: user nice system idle iowait irq softirq steal
_STEAL, _COLUMNS = 7, 8


@dataclass(frozen=True, slots=True)
class Quota:
    """CPU time per period that a control group may use, in CPUs."""

    cpus: float
    period_s: float


@dataclass(frozen=True, slots=True)
class CpuTicks:
    """One CPU's clock ticks since boot."""

    busy: int
    steal: int
    all: int


def cpu_ticks(stat: str) -> dict[int, CpuTicks]:
    """Ticks by CPU, from /proc/stat; guest time is inside user time, so left out."""
    found = {}
    for line in stat.splitlines():
        name, *words = line.split()
        if name.startswith("cpu") and name[3:].isdecimal():
            columns = [int(word) for word in words[:_COLUMNS]]
            columns += [0] * (_COLUMNS - len(columns))  # kernels before 2.6.11 have no steal
            idle = sum(columns[i] for i in _IDLE)
            found[int(name[3:])] = CpuTicks(sum(columns) - idle - columns[_STEAL], columns[_STEAL], sum(columns))
    return found


def busy_shares(before: Mapping[int, CpuTicks], after: Mapping[int, CpuTicks]) -> dict[int, float]:
    """Share of each CPU's time that was used, in between."""
    return {
        cpu: (after[cpu].busy - before[cpu].busy) / max(1, after[cpu].all - before[cpu].all)
        for cpu in before.keys() & after.keys()
    }


def steal(before: Mapping[int, CpuTicks], after: Mapping[int, CpuTicks]) -> float:
    """Share of all CPUs' time that was stolen, in between."""
    cpus = before.keys() & after.keys()
    taken = sum(after[cpu].steal - before[cpu].steal for cpu in cpus)
    return taken / max(1, sum(after[cpu].all - before[cpu].all for cpu in cpus))


def cpu_list(text: str) -> list[int]:
    """CPUs of a list as the kernel writes it: 0-2,5.  ValueError for another text."""
    cpus: list[int] = []
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        cpus += range(int(first), int(last or first) + 1)
    return cpus


def quota_v2(text: str) -> Quota | None:
    """From cpu.max: ``200000 100000``; None for ``max 100000``.  ValueError for another text."""
    quota, period = text.split()
    return None if quota == "max" else Quota(int(quota) / int(period), int(period) / 1e6)


def quota_v1(quota: str, period: str) -> Quota | None:
    """From cpu.cfs_quota_us and cpu.cfs_period_us; None for -1, no quota."""
    return None if int(quota) < 0 else Quota(int(quota) / int(period), int(period) / 1e6)


def ports_taken(tables: Iterable[str], low: int, high: int) -> int:
    """Local ports from ``low`` to ``high``, that one not included, in /proc/net/tcp and tcp6."""
    taken = set()
    for table in tables:
        for line in table.splitlines()[1:]:
            port = int(line.split()[1].rpartition(":")[2], 16)
            if low <= port < high:
                taken.add(port)
    return len(taken)
