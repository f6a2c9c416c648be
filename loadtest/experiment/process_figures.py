"""Each process of a run over its measured time: CPU, run-queue wait, lag, memory, from its per-second samples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from loadtest.experiment.blocks import Block
from loadtest.experiment.run_files import RunFiles
from sim.core.histogram import LogHistogram

__all__ = ["LOAD", "Window", "lag_json", "measured_window", "process_figures", "role_of", "samples_by_process"]

LOAD = "load"
"""Locust's name among the processes; its workers are load0, load1, ..."""


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of CLOCK_MONOTONIC, ns."""

    start_ns: int
    end_ns: int

    def holds(self, sample: Mapping[str, Any]) -> bool:
        """Whether the whole second of a sample lies inside (it is stamped at its end)."""
        begun_ns: float = sample["t_ns"] - sample["wall_s"] * 1e9
        ended_ns: int = sample["t_ns"]
        return self.start_ns <= begun_ns and ended_ns <= self.end_ns


def measured_window(files: RunFiles, blocks: Iterable[Block]) -> Window | None:
    """From the first block to the last; without blocks, from the first request sent to the last stream's end."""
    spans = [(block.start_ns, block.end_ns) for block in blocks]
    spans = spans or [(s["sent_ns"], s["end_ns"]) for s in files.streams if s.get("sent_ns") and s.get("end_ns")]
    if not spans:
        return None
    return Window(min(start for start, _ in spans), max(end for _, end in spans))


def role_of(process: str) -> str:
    """gen0 is a gen, ctx1 a ctx, load2 a load; orchestrator and load are what they are called."""
    return process.rstrip("0123456789")


def samples_by_process(files: RunFiles) -> dict[str, list[dict[str, Any]]]:
    """Per-second samples of every process that left some, the orchestrator first and the load last."""
    found = {name: list(record.get("samples", [])) for name, record in files.samples.items()}
    found |= {name: list(record.get("health", [])) for name, record in _load_records(files).items()}
    order = ("orchestrator", "gen", "ctx", LOAD)
    known = [name for name in found if role_of(name) in order]
    return {name: found[name] for name in sorted(known, key=lambda name: (order.index(role_of(name)), name))}


def process_figures(files: RunFiles, window: Window | None) -> dict[str, dict[str, Any]]:
    """What each process used and waited for within ``window``; lag is from its whole life's histogram."""
    figures = {}
    for name, samples in samples_by_process(files).items():
        inside = [s for s in samples if window is None or window.holds(s)]
        wall_s = sum(s["wall_s"] for s in inside)
        figures[name] = {
            "role": role_of(name),
            "seconds": len(inside),
            **{key: _sum(inside, source) / wall_s if wall_s else None for key, source in _SHARES.items()},
            "steal_share": sum(s.get("steal_share", 0.0) * s["wall_s"] for s in inside) / wall_s if wall_s else None,
            "lag_max_s": max((s["lag_max_s"] for s in inside), default=None),
            "rss_bytes_max": max((s["rss_bytes"] for s in inside), default=None),
            "loop_lag_s": lag_json(*_lag_histograms(files, name)),
        }
    return figures


def _load_records(files: RunFiles) -> dict[str, Mapping[str, Any]]:
    """What each process of the load wrote of itself: the one there is, or every worker, without the master."""
    if files.client is None:
        return {}
    workers = files.client.get("workers", [])
    return {f"{LOAD}{worker['index']}": worker for worker in workers} or {LOAD: files.client}


_SHARES = {
    "cpu_share": "cpu_s",
    "loop_cpu_share": "loop_cpu_s",
    "run_queue_wait_share": "run_queue_wait_s",
    "throttled_share": "throttled_s",
    "gc_pause_share": "gc_pause_s",
}


def _sum(samples: Iterable[Mapping[str, Any]], key: str) -> float:
    return float(sum(sample.get(key, 0.0) for sample in samples))


def _lag_histograms(files: RunFiles, name: str) -> tuple[LogHistogram | None, LogHistogram | None]:
    record = _load_records(files).get(name) or files.samples.get(name)
    lag, kernel = (None if record is None else record.get(key) for key in ("lag", "lag_kernel"))
    return (
        None if lag is None else LogHistogram.from_json(lag),
        None if kernel is None else LogHistogram.from_json(kernel),
    )


def lag_json(lag: LogHistogram | None, kernel: LogHistogram | None) -> dict[str, float | None] | None:
    """Percentiles of a lag histogram in s, and the share of all lateness that was the kernel's."""
    if lag is None or not lag.count:
        return None
    share = None if kernel is None or not lag.sum_ns else kernel.sum_ns / lag.sum_ns
    return {
        "p50": lag.quantile_s(0.5),
        "p99": lag.quantile_s(0.99),
        "p999": lag.quantile_s(0.999),
        "max": lag.max_ns / 1e9,
        "kernel_share": share,
    }
