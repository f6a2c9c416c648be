"""The machine's standing facts, read and held against what a run needs; measuring is `doctor_probe`."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from loadtest.experiment import doctor_findings as findings
from loadtest.experiment.doctor_findings import Finding
from loadtest.experiment.doctor_proc import Quota, cpu_list, ports_taken, quota_v1, quota_v2
from loadtest.experiment.host import versions
from loadtest.experiment.ports import HIGHEST_PORT, LOWEST_PORT
from loadtest.experiment.topology import Pinning, pinning_of, usable_cpus

__all__ = ["machine_findings", "title", "tool_findings"]

_CPU = Path("/sys/devices/system/cpu")
_CGROUP = Path("/sys/fs/cgroup")
_DEVICES = Path("/sys/bus/event_source/devices")
_CLOCKSOURCE = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")

TOOLS = (
    ("py-spy", ("py-spy",), "profiles (disagg-sim profile)", "pip install py-spy"),
    ("valgrind", ("valgrind",), "instruction counts (compare --counter instructions)", "apt-get install valgrind"),
    ("nginx", ("nginx", "/usr/sbin/nginx"), "nginx in make bench", "apt-get install nginx-light"),
    ("prometheus", ("prometheus",), "Prometheus in its own test", "apt-get install prometheus"),
    ("chromium", ("chromium", "chromium-browser", "google-chrome"), "test of the report", "apt-get install chromium"),
    ("docker", ("docker",), "containers", "see docs.docker.com; nothing here needs it"),
)
"""Name, commands, what for, how to get it."""


def machine_findings() -> list[Finding]:
    """Software, timers, CPUs and sockets, without measuring anything."""
    cpus = usable_cpus()
    pinning = pinning_of(cpus, wanted=True)
    found = versions()
    lines = [findings.version_finding(package, found[package]) for package in findings.TESTED]
    lines.append(findings.clock_finding(time.clock_getres(time.CLOCK_MONOTONIC), _text(_CLOCKSOURCE)))
    lines.append(findings.cpus_finding(cpus, pinning, may_pin=_may_pin(pinning)))
    for cpu in sorted(pinning.orchestrator):
        siblings = findings.siblings_finding(cpu, _siblings(cpu), sorted(pinning.others))
        lines += [] if siblings is None else [siblings]
    lines.append(findings.quota_finding(_quota()))
    lines.append(findings.governor_finding(_text(_CPU / f"cpu{cpus[-1]}" / "cpufreq" / "scaling_governor")))
    lines.append(findings.descriptors_finding(*resource.getrlimit(resource.RLIMIT_NOFILE)))
    ports = (_text(Path("/proc/sys/net/ipv4/ip_local_port_range")) or "").split()
    if len(ports) == 2:
        lines.append(findings.ports_finding(int(ports[0]), int(ports[1])))
    tables = [_text(Path("/proc/net") / name) or "" for name in ("tcp", "tcp6")]
    lines.append(findings.server_ports_finding(ports_taken(tables, LOWEST_PORT, HIGHEST_PORT)))
    return lines


def tool_findings() -> list[Finding]:
    """Programs that some commands and tests need, and the hardware's counters."""
    lines = [findings.tool_finding(name, _which(commands), purpose, how) for name, commands, purpose, how in TOOLS]
    units = sorted(path.name for path in _DEVICES.iterdir()) if _DEVICES.is_dir() else []
    return [*lines, findings.counter_finding(units)]


def title() -> str:
    """What machine this is, in one line."""
    model = next(
        (line.partition(":")[2].strip() for line in _lines(Path("/proc/cpuinfo")) if line.startswith("model name")),
        platform.machine(),
    )
    gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{model}, {gib:.0f} GiB, Linux {platform.release()}"


def _may_pin(pinning: Pinning) -> bool:
    """Try it on this process."""
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, pinning.orchestrator or before)
    except OSError:
        return False
    os.sched_setaffinity(0, before)
    return True


def _siblings(cpu: int) -> list[int] | None:
    text = _text(_CPU / f"cpu{cpu}" / "topology" / "thread_siblings_list")
    return cpu_list(text) if text else None


def _quota() -> Quota | None:
    """The tightest quota of this process's control groups."""
    quotas = []
    for line in _lines(Path("/proc/self/cgroup")):
        _, controllers, path = line.split(":", 2)
        mount = _CGROUP if not controllers else _CGROUP / controllers
        for folder in (mount / path.lstrip("/"), mount):
            limit = _text(folder / "cpu.max")
            quota, period = _text(folder / "cpu.cfs_quota_us"), _text(folder / "cpu.cfs_period_us")
            if limit:
                quotas.append(quota_v2(limit))
            elif quota and period:
                quotas.append(quota_v1(quota, period))
    return min((quota for quota in quotas if quota is not None), key=lambda quota: quota.cpus, default=None)


def _which(commands: Sequence[str]) -> str | None:
    beside = str(Path(sys.executable).parent)
    found = (shutil.which(command, path=beside) or shutil.which(command) for command in commands)
    return next(filter(None, found), None)


def _lines(path: Path) -> list[str]:
    return (_text(path) or "").splitlines()


def _text(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None
