"""One program that the bench can start: what it is called, how it is had, how it is started."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Addresses", "Candidate", "Load"]


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where a candidate listens (``port``, loopback) and whom it talks to: URLs, http://127.0.0.1:PORT."""

    port: int
    gen_url: str = ""
    ctx_url: str = ""
    target_url: str = ""  # of a load client: what it loads
    second_port: int = 0  # a further free port, for metrics and the like


@dataclass(frozen=True, slots=True)
class Load:
    """Of a load client: so many streams of such a rate, started over ``ramp_s``, ended by SIGTERM or ``duration_s``."""

    streams: int
    tok_s: float  # of each stream
    ramp_s: float
    duration_s: float


@dataclass(frozen=True, slots=True)
class Candidate:
    """``kind`` is relay, gen or client.  ``missing()`` says why it cannot be run here and how to get it, or None."""

    name: str
    kind: str
    version: Callable[[], str]
    missing: Callable[[], str | None]
    argv: Callable[[Addresses, Path, Load | None], Sequence[str]]  # may write its configuration into the directory
    ready_path: str = "/health"  # answers 200 when it is ready; "" = a TCP connect is enough
    endpoint: str = "/v1/chat/completions"
