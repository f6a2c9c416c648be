"""Across process starts: how far a difference moves when every process is started anew.

An interval is within one start: code layout, hash seeds and allocation are drawn once per process and its rounds
can't see them.  The spread between starts can; with few starts it is a range, not an interval.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

__all__ = ["across_starts"]


def across_starts(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Each difference's estimate per start, with mean, range and standard deviation; the first start leads."""
    return {
        "starts": len(results),
        "states": [result["verdict"]["state"] for result in results],
        "differences": [
            _spread(difference["a"], difference["b"], [result["differences"][i] for result in results])
            for i, difference in enumerate(results[0]["differences"])
        ],
    }


def _spread(a: str, b: str, differences: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    figures = [difference["cpu_us_per_chunk"] for difference in differences]
    estimates = [None if figure is None else figure["estimate"] for figure in figures]
    known = [estimate for estimate in estimates if estimate is not None]
    return {
        "a": a,
        "b": b,
        "estimates": estimates,
        "ci95": [None if figure is None else figure["ci95"] for figure in figures],
        "mean": fmean(known) if known else None,
        "low": min(known, default=None),
        "high": max(known, default=None),
        "standard_deviation": stdev(known) if len(known) > 1 else None,
    }
