"""Goodput of a run: the share of streams within the limits, with its interval, and how many a second.

Which stream is within them was judged by the load (`loadtest.goodput`); here its counts become figures.
"""

from __future__ import annotations

from typing import Any

from loadtest.experiment.run_files import RunFiles
from loadtest.experiment.stats import wilson_interval

__all__ = ["goodput_figures"]


def goodput_figures(files: RunFiles) -> dict[str, Any] | None:
    """The ``goodput`` part of a result; None when no limit is set, or the load left no counts.

    ``requests_per_s`` is over the time from the first planned send to the last stream's end.
    """
    counts = (files.client or {}).get("goodput")
    if not counts:
        return None
    within, of = counts["within"], counts["of"]
    seconds, interval = _seconds(files), wilson_interval(within, of)
    return {
        "limits": {name: limit or None for name, limit in counts["limits"].items()},
        "within": within,
        "of": of,
        "share": within / of if of else None,
        "ci95": None if interval is None else list(interval),
        "requests_per_s": within / seconds if seconds else None,
        "missed": dict(counts["missed"]),
    }


def _seconds(files: RunFiles) -> float:
    ended = [stream for stream in files.streams if stream.get("end_ns")]
    if not ended:
        return 0.0
    first_ns: int = min(stream["planned_ns"] for stream in ended)
    last_ns: int = max(stream["end_ns"] for stream in ended)
    return (last_ns - first_ns) / 1e9
