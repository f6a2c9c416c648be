"""Exact counters of several servers of one role, added up: two orchestrators are to the client one.  Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from loadtest.experiment.process_figures import role_of

__all__ = ["combined", "role_total", "streams_by_server"]


def role_total(
    counters: Mapping[str, Mapping[str, Any]], role: str, before: Mapping[str, Mapping[str, Any]] | None = None
) -> dict[str, Any]:
    """Counters of all servers of ``role`` added up, less what they stood at ``before``; {} without any server."""
    total: dict[str, Any] = {}
    for name, counted in counters.items():
        if role_of(name) == role:
            total = combined(total, combined(counted, (before or {}).get(name, {}), -1), 1)
    return total


def combined(left: Mapping[str, Any], right: Mapping[str, Any], sign: int) -> dict[str, Any]:
    """``left`` + ``sign`` * ``right`` over nested whole numbers; None stays None, anything else is left out."""
    result: dict[str, Any] = {}
    for key in {**left, **right}:
        a, b = left.get(key, 0), right.get(key, 0)
        if isinstance(a, Mapping) or isinstance(b, Mapping):
            result[key] = combined(a if isinstance(a, Mapping) else {}, b if isinstance(b, Mapping) else {}, sign)
        elif a is None or b is None:
            result[key] = None
        elif isinstance(a, int) and isinstance(b, int):
            result[key] = a + sign * b
    return result


def streams_by_server(counters: Mapping[str, Mapping[str, Any]], role: str) -> dict[str, int]:
    """Streams that each server of ``role`` has begun."""
    return {
        name: int(counted.get("streams", {}).get("started", 0))
        for name, counted in sorted(counters.items())
        if role_of(name) == role
    }
