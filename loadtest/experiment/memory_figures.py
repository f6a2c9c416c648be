"""Memory of each process of a run: what it grew to, what that is per stream, and whether it went on growing.

Growth counts from a process's first sample, before any stream, to its greatest; it is shared out among the most
streams that were live at once; of several orchestrators, or workers of the load, each has the part that it began.
A leak would show as growth in the second half of the measured time, once every stream is there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from loadtest.experiment.process_figures import LOAD, Window, samples_by_process
from loadtest.experiment.run_files import RunFiles
from loadtest.experiment.server_counters import streams_by_server

__all__ = ["memory_figures", "most_live"]

_FEWEST_STREAMS = 100
"""With fewer, a process's own comings and goings are more than what the streams take."""


def memory_figures(files: RunFiles, window: Window | None) -> dict[str, Any]:
    """The ``memory`` part of a run's result; bytes, None for what cannot be said."""
    streams = most_live(files.streams)
    parts = (streams_by_server(files.counters, "orchestrator"), _sent_by_load_worker(files))
    held = {
        name: round(streams * count / begun)
        for by_process in parts
        if (begun := sum(by_process.values()))
        for name, count in by_process.items()
    }
    return {
        "most_live_streams": streams,
        "processes": {
            name: _process(samples, window, held.get(name, streams))
            for name, samples in samples_by_process(files).items()
            if samples
        },
    }


def _sent_by_load_worker(files: RunFiles) -> dict[str, int]:
    """Streams that each worker of the load has sent; {} where one process is the whole load."""
    workers = (files.client or {}).get("workers", [])
    return {f"{LOAD}{worker['index']}": int(worker.get("started", 0)) for worker in workers}


def most_live(streams: Sequence[Mapping[str, Any]]) -> int:
    """The greatest number of streams live at the same time; one that ends as another is sent makes room for it."""
    spans = [(s["sent_ns"], s["end_ns"]) for s in streams if None not in (s.get("sent_ns"), s.get("end_ns"))]
    moments = sorted([(sent, 1) for sent, _ in spans] + [(end, -1) for _, end in spans])
    live = most = 0
    for _, change in moments:
        live += change
        most = max(most, live)
    return most


def _process(samples: Sequence[Mapping[str, Any]], window: Window | None, streams: int) -> dict[str, float | None]:
    first = samples[0]["rss_bytes"]
    inside = [s["rss_bytes"] for s in samples if window is None or window.holds(s)]
    most = max(inside, default=None)
    growth = None if most is None else max(0, most - first)
    return {
        "first_bytes": first,
        "max_bytes": most,
        "bytes_per_stream": growth / streams if growth is not None and streams >= _FEWEST_STREAMS else None,
        "second_half_growth_bytes": inside[-1] - inside[len(inside) // 2] if len(inside) > 1 else None,
    }
