"""What the client saw: latency from the planned and from the real send, and what became of the streams.

Latency counts from the *planned* send: a client that waits for a slow server before it sends again would not see
the queue it made (coordinated omission).  The from-sent figure stands beside it; the gap is the load's lateness.
Only streams that passed their checks have a latency; the others are counted by reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from loadtest.experiment.run_files import RunFiles
from loadtest.experiment.stats import FloatArray, quantiles
from sim.core.histogram import LogHistogram

__all__ = ["client_figures", "distribution", "histogram_json", "latencies_s", "send_lateness_s"]

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
    transit = client.get("transit")  # None unless gen stamped its events
    figures["transit_s"] = None if transit is None else histogram_json(transit)
    figures["lateness_s"] = distribution(send_lateness_s(files.streams))
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
    """Sent minus planned, of every stream planned from ``after_ns`` on."""
    return np.array(
        [(s["sent_ns"] - s["planned_ns"]) / 1e9 for s in streams if s.get("sent_ns") and s["planned_ns"] >= after_ns],
        np.float64,
    )


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


def _streams(files: RunFiles) -> dict[str, Any]:
    """Counts by outcome: the client's own where it wrote them, else from its lines."""
    if files.client is not None:
        counts: dict[str, Any] = dict(files.client["streams"])
        return counts
    outcomes = Counter(s["outcome"] for s in files.streams)
    others = {outcome: outcomes.pop(outcome, 0) for outcome in ("ok", "aborted", "cancelled")}
    return {"planned": None, "started": len(files.streams), **others, "failed": dict(outcomes)}
