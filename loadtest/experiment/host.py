"""What a run was made with: the machine, its kernel and limits, and the versions of everything that matters."""

from __future__ import annotations

import os
import platform
import resource
from importlib import metadata
from pathlib import Path
from typing import Any

__all__ = ["host_facts", "versions"]

_PACKAGES = ("disagg-sim", "aiohttp", "uvloop", "orjson", "msgspec", "locust", "gevent", "numpy", "plotly")


def versions() -> dict[str, str]:
    """Version of Python and of each package that a figure depends on."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def host_facts() -> dict[str, Any]:
    """The machine, JSON-able; what cannot be read is None."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return {
        "cpus": len(os.sched_getaffinity(0)),
        "model": _after_colon(Path("/proc/cpuinfo"), "model name"),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "governor": _text(Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")),
        "cgroup_cpu_max": _text(Path("/sys/fs/cgroup/cpu.max")),
        "open_files": {"soft": soft, "hard": hard},
        "load_average": os.getloadavg(),
    }


def _text(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None


def _after_colon(path: Path, key: str) -> str | None:
    for line in (_text(path) or "").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return None
