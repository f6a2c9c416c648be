"""What the load is to do: LoadSettings (a scenario's ``[load]`` table) and LoadPlan (one run, as a JSON file).

A run is planned whole before its first request: settings, seed and what the servers were told are all here, so
the load never asks them, and two runs of one plan send the same requests at the same offsets.
When each request is due is in `arrivals`; what it holds is in `workload`.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from sim.core.settings import GenSettings, SettingError, from_mapping, setting

__all__ = ["LoadPlan", "LoadSettings", "Target"]

MAX_TOKENS = 10_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSettings:
    """The load of one Locust user: when requests are due, how long prompts and replies are, what is checked.

    ``trace`` beats ``arrivals`` and ``lengths``: a replay has its own times and lengths.
    """

    endpoint: str = setting("chat", "which API to call", choices=("chat", "completions"))
    stream: bool = setting(True, "ask for a token stream; false: one whole answer")
    include_usage: bool = setting(True, "ask for the usage event at the end of a stream")
    arrivals: str = setting(
        "staggered",
        "staggered: `streams` requests over `ramp_s`; constant, poisson: `request_rate`; trace: as recorded",
        choices=("staggered", "constant", "poisson", "trace"),
    )
    request_rate: float = setting(
        0.0, "requests per second (constant, poisson), per Locust user", minimum=0, maximum=1e5
    )
    streams: int = setting(20, "requests of a staggered load", minimum=1, maximum=1_000_000)
    ramp_s: float = setting(1.0, "time over which a staggered load starts, s", minimum=0, maximum=86_400)
    trace: str = setting("", "Azure-format CSV to replay: its arrivals, its lengths")
    speed: float = setting(1.0, "speed of a replay (2: twice the recorded request rate)", minimum=1e-3, maximum=1e4)
    limit: int = setting(0, "greatest number of requests (0: no limit)", minimum=0)
    lengths: str = setting(
        "fixed",
        "fixed: `prompt_tokens` and `output_tokens`; azure-*: drawn from that trace's distribution",
        choices=("fixed", "azure-conv", "azure-code"),
    )
    prompt_tokens: int = setting(64, "prompt length (fixed), tokens", minimum=1, maximum=MAX_TOKENS)
    output_tokens: int = setting(30, "reply length (fixed), tokens", minimum=1, maximum=MAX_TOKENS)
    duration_s: float = setting(
        0.0,
        "requests are due before this time, s; staggered: what streams get after the ramp (0: no end of its own)",
        minimum=0,
        maximum=1e7,
    )
    seed: int = setting(1, "seed of arrivals, lengths and prompts", minimum=0)
    sample_every: int = setting(10, "one stream in so many is compared byte for byte (0: none)", minimum=0)
    timeout_s: float = setting(200.0, "longest silence on a stream, s", minimum=0.1, maximum=86_400)
    stop_timeout_s: float = setting(30.0, "time that streams get to finish after that, s", minimum=0, maximum=86_400)

    def __post_init__(self) -> None:
        if self.trace:
            object.__setattr__(self, "arrivals", "trace")
        elif self.arrivals == "trace":
            raise SettingError("trace: arrivals are 'trace', but no file is given")
        if self.arrivals in ("constant", "poisson"):
            if self.request_rate <= 0:
                raise SettingError(f"request_rate: {self.arrivals} arrivals need a rate above 0")
            if self.duration_s <= 0 and self.limit <= 0:
                raise SettingError(f"duration_s: {self.arrivals} arrivals need an end: set duration_s or limit")

    @property
    def end_s(self) -> float | None:
        """When the load is to be over, counted from its start, s; None when the schedule alone ends it."""
        if self.duration_s <= 0:
            return None
        return self.duration_s + (self.ramp_s if self.arrivals == "staggered" else 0.0)


@dataclass(frozen=True, slots=True)
class Target:
    """Where requests go: ``http://HOST:PORT``, with an optional path in front of ``/v1``."""

    host: str
    port: int
    path: str

    @classmethod
    def parse(cls, url: str) -> Target:
        """Read a base URL.  SettingError says what is wrong with it."""
        parts = urlsplit(url if "//" in url else f"http://{url}")
        if parts.scheme != "http":
            raise SettingError(f"host: {url!r} is not an http:// URL")
        try:
            port = parts.port
        except ValueError:
            port = -1
        if not parts.hostname or port == -1 or parts.query or parts.fragment:
            raise SettingError(f"host: {url!r} is not of the form http://HOST:PORT")
        return cls(parts.hostname, 80 if port is None else port, parts.path.rstrip("/"))


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan:
    """One run of the load.

    ``gen`` are the gen servers' settings: they allow the byte-for-byte check; None when the servers are not ours.
    ``cache_hit_ratio`` is ctx's, and gives the cached tokens to expect; None leaves them unchecked.
    ``usage_by_ctx`` says that the client must be told ctx's usage; False notes usage and does not judge it.
    ``may_end_early`` says that gen servers may be drained: a reply with fewer tokens than asked is then right if its
    own accounting says so.
    ``out`` is the directory for results (None: write none), ``ops`` the HOST:PORT of /metrics (None: none).
    """

    host: str
    settings: LoadSettings
    gen: GenSettings | None = None
    cache_hit_ratio: float | None = None
    usage_by_ctx: bool = True
    may_end_early: bool = False
    out: str | None = None
    ops: str | None = None

    def __post_init__(self) -> None:
        Target.parse(self.host)
        if self.cache_hit_ratio is not None and not 0 <= self.cache_hit_ratio <= 1:
            raise SettingError(f"cache_hit_ratio: {self.cache_hit_ratio!r} is out of range; allowed: 0 to 1")
        if self.ops is not None:
            host, _, port = self.ops.rpartition(":")
            if not host or not port.isdecimal() or int(port) > 65535:
                raise SettingError(f"ops: {self.ops!r} is not of the form HOST:PORT")

    def to_json(self) -> dict[str, Any]:
        """The plan file's object."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, value: object) -> LoadPlan:
        """Read a plan file's object.  SettingError names the key at fault."""
        if not isinstance(value, Mapping):
            raise SettingError(f"plan: {type(value).__name__} is not an object")
        known = [field.name for field in dataclasses.fields(cls)]
        unknown = sorted(set(value) - set(known))
        if unknown:
            raise SettingError(f"plan.{unknown[0]}: unknown key; known: {', '.join(known)}")
        gen = value.get("gen")
        ratio = value.get("cache_hit_ratio")
        if ratio is not None and (isinstance(ratio, bool) or not isinstance(ratio, (int, float))):
            raise SettingError(f"plan.cache_hit_ratio: {ratio!r} is not a number")
        try:
            return cls(
                host=_text(value, "host") or "",
                settings=from_mapping(LoadSettings, _table(value, "settings"), "settings"),
                gen=None if gen is None else from_mapping(GenSettings, _table(value, "gen"), "gen"),
                cache_hit_ratio=ratio,
                usage_by_ctx=_flag(value, "usage_by_ctx", default=True),
                may_end_early=_flag(value, "may_end_early", default=False),
                out=_text(value, "out"),
                ops=_text(value, "ops"),
            )
        except SettingError as error:
            raise SettingError(f"plan.{error}") from None

    def write(self, path: Path) -> None:
        """Write the plan file."""
        path.write_text(json.dumps(self.to_json(), indent=1) + "\n")

    @classmethod
    def read(cls, path: Path) -> LoadPlan:
        """Read a plan file.  SettingError says what is wrong with it, or that it is not there."""
        try:
            value = json.loads(path.read_text())
        except OSError as error:
            raise SettingError(f"plan: cannot read {path}: {error.strerror}") from None
        except ValueError as error:
            raise SettingError(f"plan: {path} is not JSON: {error}") from None
        return cls.from_json(value)


def _table(value: Mapping[str, Any], key: str) -> Mapping[str, object]:
    table = value.get(key)
    if not isinstance(table, Mapping):
        raise SettingError(f"{key}: {table!r} is not an object")
    return table


def _flag(value: Mapping[str, Any], key: str, *, default: bool) -> bool:
    flag = value.get(key, default)
    if not isinstance(flag, bool):
        raise SettingError(f"{key}: {flag!r} is not true or false")
    return flag


def _text(value: Mapping[str, Any], key: str) -> str | None:
    text = value.get(key)
    if text is not None and not isinstance(text, str):
        raise SettingError(f"{key}: {text!r} is not a string")
    return text
