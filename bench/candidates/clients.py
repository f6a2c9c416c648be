"""The load clients beside ours: Locust's two HTTP users as their documentation has it, and an aiohttp one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.candidate import Addresses, Candidate, Load
from bench.candidates.environment import PROGRAMS, here, with_all_fds

__all__ = ["CLIENTS"]


def _loads(load: Load | None) -> Load:
    if load is None:
        raise ValueError("a load client needs a load")
    return load


def _locust(program: str) -> Callable[..., Sequence[str]]:
    def argv(addresses: Addresses, directory: Path, load: Load | None) -> Sequence[str]:
        load = _loads(load)
        spawn_per_s = max(1, round(load.streams / load.ramp_s)) if load.ramp_s > 0 else load.streams
        return with_all_fds(
            *("-m", "locust", "-f", str(PROGRAMS / program), "--headless", "--only-summary", "--loglevel", "WARNING"),
            *("-u", str(load.streams), "-r", str(spawn_per_s), "--stop-timeout", "0"),
            *("--host", addresses.target_url, "--directory", str(directory), "--duration-s", str(load.duration_s)),
            imports_bench=True,
        )

    return argv


def _aiohttp_argv(addresses: Addresses, directory: Path, load: Load | None) -> Sequence[str]:
    load = _loads(load)
    return with_all_fds(
        *(str(PROGRAMS / "load_aiohttp.py"), "--target-url", addresses.target_url, "--directory", str(directory)),
        *("--streams", str(load.streams), "--ramp-s", str(load.ramp_s), "--duration-s", str(load.duration_s)),
        imports_bench=True,
    )


def _locust_version() -> str:
    return f"{here('locust')()}, Python {sys.version_info.major}.{sys.version_info.minor}"


CLIENTS = (
    Candidate("locust-http", "client", _locust_version, lambda: None, _locust("locust_http.py"), ready_path=""),
    Candidate("locust-fasthttp", "client", _locust_version, lambda: None, _locust("locust_fasthttp.py"), ready_path=""),
    Candidate("aiohttp-client", "client", here("aiohttp"), lambda: None, _aiohttp_argv, ready_path=""),
)
