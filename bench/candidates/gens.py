"""The fakes beside our gen server: an ordinary aiohttp one, and the mock servers that come with load generators."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from bench.candidate import Addresses, Candidate, Load
from bench.candidates.environment import PROGRAMS, Environment, here, with_all_fds

__all__ = ["GENS"]

_AIPERF, _GUIDELLM = Environment("aiperf"), Environment("guidellm")
_AIPERF_SERVER = _AIPERF.directory / "bin" / "aiperf-mock-server"
DEFAULT_TOK_S = 15.0
_SPARE = 1.5  # a reply is that much longer than the load lasts


def _tok_s(load: Load | None) -> float:
    return load.tok_s if load is not None and load.tok_s > 0 else DEFAULT_TOK_S


def _aiohttp_argv(addresses: Addresses, _directory: Path, load: Load | None) -> Sequence[str]:
    script = str(PROGRAMS / "gen_aiohttp.py")
    return with_all_fds(script, "--port", str(addresses.port), "--tok-s", str(_tok_s(load)), imports_bench=True)


def _guidellm_argv(addresses: Addresses, _directory: Path, load: Load | None) -> Sequence[str]:
    tok_s = _tok_s(load)
    lasts_s = load.ramp_s + load.duration_s if load is not None else 60.0
    tokens = math.ceil(tok_s * lasts_s * _SPARE) + 100
    return with_all_fds(
        *(_GUIDELLM.python, str(PROGRAMS / "gen_guidellm.py"), "--port", str(addresses.port)),
        *("--itl-ms", str(1000 / tok_s), "--output-tokens", str(tokens)),
    )


def _aiperf_missing() -> str | None:
    if _AIPERF_SERVER.exists():
        return None
    return (
        "not on PyPI, nor in AIPerf's package: from AIPerf's source, `python3 -m venv .bench/aiperf && "
        ".bench/aiperf/bin/pip install tests/aiperf_mock_server`"
    )


def _aiperf_argv(addresses: Addresses, _directory: Path, load: Load | None) -> Sequence[str]:
    return with_all_fds(
        *(str(_AIPERF_SERVER), "--host", "127.0.0.1", "--port", str(addresses.port), "--no-tokenizer"),
        *("--ttft", "1", "--itl", str(1000 / _tok_s(load)), "--log-level", "WARNING"),
    )


GENS = (
    Candidate("aiohttp-gen", "gen", here("aiohttp"), lambda: None, _aiohttp_argv),
    # Its replies are as long as its own setting or the request's max_tokens, whichever is less.
    Candidate("guidellm-mock", "gen", _GUIDELLM.version_of("guidellm"), _GUIDELLM.missing, _guidellm_argv),
    # Not run by us: its flags are those of its source.
    Candidate("aiperf-mock-server", "gen", _AIPERF.version_of("aiperf-mock-server"), _aiperf_missing, _aiperf_argv),
)
