"""What the client saw: latency from the planned and from the real send, and what became of the streams.

Latency counts from the *planned* send: a client that waits for a slow server before it sends again would not see
the queue it made (coordinated omission).  The from-sent figure stands beside it; the gap is what a cap on concurrency
held a request back, and the load's own lateness.  The two are told apart by ``ready_ns``: planned, or when the cap had
a slot for it.
Only streams that passed their checks have a latency; the others are counted by reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from loadtest.experiment.run_files import RunFiles
from loadtest.experiment.slo_figures import goodput_figures
from loadtest.experiment.stats import FloatArray, quantiles
from sim.core.histogram import LogHistogram

__all__ = ["client_figures", "distribution", "held_back_s", "histogram_json", "latencies_s", "send_lateness_s"]

_SPANS = {
    "ttft_s": ("planned_ns", "first_token_ns"),
    "ttft_from_sent_s": ("sent_ns", "first_token_ns"),
    "e2e_s": ("planned_ns", "end_ns"),
    "e2e_from_sent_s": ("sent_ns", "end_ns"),
}
_PROBABILITIES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}


def client_figures(files: RunFiles) -> dict[str, Any]:
    """The ``client`` part of a result; figures that the run did not leave are None."""
    client = files.client or {}
    figures: dict[str, Any] = {key: distribution(values) for key, values in latencies_s(files.streams).items()}
    figures["itl_s"] = histogram_json(client.get("itl"))
    figures["inter_chunk_s"] = histogram_json(client.get("inter_chunk"))
    transit = client.get("transit")  # None unless gen stamped its events
    figures["transit_s"] = None if transit is None else histogram_json(transit)
    figures["lateness_s"] = distribution(send_lateness_s(files.streams))
    figures["concurrency"] = concurrency = _concurrency(files)
    held = concurrency is not None and not concurrency["closed_loop"]
    figures["held_s"] = distribution(held_back_s(files.streams)) if held else None
    figures["goodput"] = goodput_figures(files)
    figures["streams"] = _streams(files)
    for key in ("tokens", "chunks", "events", "bytes"):
        figures[key] = client.get(key)
    return figures


def latencies_s(streams: Sequence[Mapping[str, Any]]) -> dict[str, FloatArray]:
    """TTFT and E2E of every stream that passed its checks, from planned and from sent; TPOT per stream."""
    passed = [s for s in streams if s["outcome"] == "ok"]
    spans: dict[str, FloatArray] = {
        key: np.array([(s[end] - s[start]) / 1e9 for s in passed if s.get(start) and s.get(end)], np.float64)
        for key, (start, end) in _SPANS.items()
    }
    spans["tpot_s"] = np.array(
        [
            (s["last_token_ns"] - s["first_token_ns"]) / 1e9 / (s["tokens"] - 1)
            for s in passed
            if s["tokens"] > 1 and s.get("last_token_ns") and s.get("first_token_ns")
        ],
        np.float64,
    )
    return spans


def send_lateness_s(streams: Sequence[Mapping[str, Any]], after_ns: int = 0) -> FloatArray:
    """The sender's own lateness, sent minus ready, of every stream planned from ``after_ns`` on."""
    return np.array(
        [(s["sent_ns"] - _ready_ns(s)) / 1e9 for s in streams if s.get("sent_ns") and s["planned_ns"] >= after_ns],
        np.float64,
    )


def held_back_s(streams: Sequence[Mapping[str, Any]]) -> FloatArray:
    """How long the cap on concurrency held a stream back, of those that it did."""
    waits = [(_ready_ns(s) - s["planned_ns"]) / 1e9 for s in streams]
    return np.array([wait for wait in waits if wait > 0], np.float64)


def _ready_ns(stream: Mapping[str, Any]) -> int:
    ready_ns: int = stream.get("ready_ns", stream["planned_ns"])
    return ready_ns


def distribution(values: FloatArray) -> dict[str, float | int | None]:
    """Percentiles, max, mean and count of a sample; all None but ``n`` when it is empty."""
    if not values.size:
        return {**dict.fromkeys((*_PROBABILITIES, "max", "mean"), None), "n": 0}
    found = dict(zip(_PROBABILITIES, quantiles(values, list(_PROBABILITIES.values())), strict=True))
    return {**found, "max": float(values.max()), "mean": float(values.mean()), "n": int(values.size)}


def histogram_json(record: Mapping[str, Any] | None) -> dict[str, float | int | None]:
    """The same of a recorded LogHistogram."""
    histogram = LogHistogram() if record is None else LogHistogram.from_json(record)
    if not histogram.count:
        return distribution(np.empty(0))
    found = {name: histogram.quantile_s(q) for name, q in _PROBABILITIES.items()}
    return {**found, "max": histogram.max_ns / 1e9, "mean": histogram.mean_s(), "n": histogram.count}


def _concurrency(files: RunFiles) -> dict[str, Any] | None:
    """The cap that the load had, None for none."""
    cap = files.setting("load", "max_concurrency")
    return {"max": cap, "closed_loop": files.setting("load", "arrivals") == "closed"} if cap else None


def _streams(files: RunFiles) -> dict[str, Any]:
    """Counts by outcome: the client's own where it wrote them, else from its lines."""
    if files.client is not None:
        counts: dict[str, Any] = dict(files.client["streams"])
        return counts
    outcomes = Counter(s["outcome"] for s in files.streams)
    others = {outcome: outcomes.pop(outcome, 0) for outcome in ("ok", "aborted", "cancelled")}
    return {"planned": None, "started": len(files.streams), "unsent": None, **others, "failed": dict(outcomes)}
