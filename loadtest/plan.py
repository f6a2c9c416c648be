"""One run of the load, as a JSON file: settings, target, and what the servers were told.

A run is planned whole before its first request: settings, seed and what the servers were told are all here, so
the load never asks them, and two runs of one plan send the same requests at the same offsets.
What can be set is in `load_settings`, when each request is due in `arrivals`, what it holds in `workload`.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from loadtest.load_settings import LoadSettings
from sim.core.settings import GenSettings, SettingError, from_mapping

__all__ = ["LoadPlan", "Target", "check_address"]


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


def check_address(name: str, address: str) -> None:
    """SettingError, under ``name``, if ``address`` is not HOST:PORT."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise SettingError(f"{name}: {address!r} is not of the form HOST:PORT")


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
            check_address("ops", self.ops)

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
            raise SettingError("\n".join(f"plan.{fault}" for fault in str(error).split("\n"))) from None

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
