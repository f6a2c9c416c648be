"""Figures that every run has: what the client saw, how the processes fared, how well the fakes kept time.

Each takes what it draws and gives a figure, or None when there is nothing to draw.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from loadtest.experiment.blocks import Block
from loadtest.experiment.client_figures import latencies_s, send_lateness_s
from loadtest.experiment.figures import (
    INK,
    MUTED,
    Figure,
    axis,
    ecdf,
    figure,
    label,
    lines,
    log_axis,
    process_style,
    span,
    tail_figure,
    tail_of,
)
from loadtest.experiment.process_figures import Window, role_of, samples_by_process
from loadtest.experiment.run_files import RunFiles
from loadtest.experiment.stats import FloatArray
from sim.core.histogram import LogHistogram

__all__ = [
    "e2e",
    "itl",
    "lateness_tails",
    "lengths",
    "load_over_time",
    "orchestrator_lag",
    "processes_over_time",
    "ttft",
    "ttft_over_time",
]

_MOST_POINTS = 3_000


def ttft(files: RunFiles) -> Figure | None:
    """Share of streams whose first token had come, by time to it: from the planned and from the real send."""
    spans = latencies_s(files.streams)
    return _latencies({"from planned": spans["ttft_s"] * 1e3, "from sent": spans["ttft_from_sent_s"] * 1e3}, "TTFT, ms")


def e2e(files: RunFiles) -> Figure | None:
    """The same for whole streams."""
    spans = latencies_s(files.streams)
    return _latencies({"from planned": spans["e2e_s"], "from sent": spans["e2e_from_sent_s"]}, "E2E, s")


def _latencies(by_start: Mapping[str, FloatArray], title: str) -> Figure | None:
    hover = "%{x:.4g}: %{y:.1%}"
    data = [
        lines(*ecdf(values), name, dash="solid" if name == "from planned" else "dot", hovertemplate=hover)
        for name, values in by_start.items()
        if values.size
    ]
    return _shares(data, title) if data else None


def itl(files: RunFiles) -> Figure | None:
    """Share of gaps between tokens that were no longer than x; and of gaps between chunks, where that is another."""
    client = files.client or {}
    several = client.get("tokens") != client.get("chunks")
    data = []
    for name, key, dash in (("ITL", "itl", "solid"), *((("between chunks", "inter_chunk", "dot"),) if several else ())):
        histogram = LogHistogram.from_json(client[key]) if client.get(key) else LogHistogram()
        if histogram.count:
            x_ms = [upper_s * 1e3 for upper_s, _ in histogram.buckets()]
            shares = [cumulative / histogram.count for _, cumulative in histogram.buckets()]
            data.append(lines(x_ms, shares, name, dash=dash, hovertemplate="%{x:.4g} ms: %{y:.1%}<extra></extra>"))
    return _shares(data, "ITL, ms") if data else None


def _shares(data: list[dict[str, Any]], title: str) -> Figure:
    y = axis("share at or below", tickformat=".0%", range=[0, 1.02])
    reach = span([0.0, max(value for trace in data for value in trace["x"])], pad=0.04)
    return figure(data, 280, xaxis=axis(title, range=[0, reach[1]]), yaxis=y, showlegend=len(data) > 1)


def processes_over_time(files: RunFiles, window: Window | None, blocks: Sequence[Block]) -> Figure | None:
    """Run-queue wait and CPU of every process, and steal of the machine, second by second."""
    found = {name: samples for name, samples in samples_by_process(files).items() if samples}
    if not found:
        return None
    origin_ns = window.start_ns if window else min(s["t_ns"] for samples in found.values() for s in samples)
    data: list[dict[str, Any]] = []
    for name, samples in found.items():
        x = [(s["t_ns"] - origin_ns) / 1e9 for s in samples]
        style = process_style(role_of(name))
        for suffix, key in (("", "run_queue_wait_s"), ("2", "cpu_s")):
            y = [s[key] / s["wall_s"] for s in samples]
            on: dict[str, Any] = {"yaxis": f"y{suffix}", "legendgroup": name, "showlegend": not suffix}
            hover = f"%{{x:.0f}} s: %{{y:.1%}}<extra>{label(name)}</extra>"
            data.append(lines(x, y, name, **style, hovertemplate=hover, **on))
    steal = [(b.start_ns, b.steal_share) for b in blocks] or [
        (s["t_ns"], s.get("steal_share", 0.0)) for s in next(iter(found.values()))
    ]
    x, y = [(t - origin_ns) / 1e9 for t, _ in steal], [share for _, share in steal]
    hover = "%{x:.0f} s: %{y:.2%}<extra>steal</extra>"
    data.append(lines(x, y, "steal", xaxis="x", yaxis="y3", showlegend=False, hovertemplate=hover))
    share: dict[str, Any] = {"tickformat": ".0%", "rangemode": "tozero"}
    return figure(
        data,
        520,
        xaxis=axis("time since measuring began, s", anchor="y3"),
        yaxis=axis("run-queue wait", domain=[0.7, 1.0], **share),
        yaxis2=axis("CPU of a core", domain=[0.32, 0.62], **share),
        yaxis3=axis("steal", domain=[0.0, 0.24], tickformat=".2~%", range=[0.0, 1.1 * max(0.01, *y)]),
    )


def lateness_tails(files: RunFiles) -> Figure | None:
    """How late gen wrote tokens, ctx answered prefills and the load sent requests: our instruments' own error."""
    data = []
    for name, counters in sorted(files.counters.items(), key=lambda item: role_of(item[0]) != "gen"):
        for part, what in (("pacing", "tokens"), ("prefill", "prefill answers")):
            record = counters.get(part, {}).get("lateness")
            if record is not None:
                data += _tail(f"{name}: {what}", LogHistogram.from_json(record), process_style(role_of(name)))
    sends = LogHistogram()
    for late_s in send_lateness_s(files.streams):
        sends.record_ns(round(late_s * 1e9))
    data += _tail("load: sends", sends, process_style("load"))
    if not data:
        return None
    return tail_figure(data, 340, "lateness")


def orchestrator_lag(files: RunFiles) -> Figure | None:
    """Tail of the loop lag of all the orchestrator's workers over the whole run: in all, and each side's part."""
    records = [record for name, record in files.samples.items() if role_of(name) == "orchestrator"]
    data = []
    for key, name, dash in (
        ("lag", "lag", "solid"),
        ("lag_loop", "loop's part", "dash"),
        ("lag_kernel", "kernel's part", "dot"),
    ):
        together = LogHistogram()
        for record in records:
            if key in record:
                together.merge(LogHistogram.from_json(record[key]))
        data += _tail(name, together, {"dash": dash})
    return tail_figure(data, 340, "lag") if data else None


def _tail(name: str, histogram: LogHistogram, style: Mapping[str, Any]) -> list[dict[str, Any]]:
    if not histogram.count:
        return []
    hover = f"%{{y:.2f}} ms<extra>{label(name)}</extra>"
    return [lines(*tail_of(histogram), name, hovertemplate=hover, **style)]


def ttft_over_time(files: RunFiles) -> Figure | None:
    """TTFT of every stream by the time it was planned; failed streams as crosses on the axis."""
    streams = _thinned([s for s in files.streams if s.get("planned_ns")])
    if not streams:
        return None
    origin_ns = min(s["planned_ns"] for s in files.streams)
    passed = [s for s in streams if s["outcome"] == "ok" and s.get("first_token_ns")]
    failed = [s for s in streams if s["outcome"] not in ("ok", "aborted", "cancelled")]
    data = [
        {
            "type": "scatter",
            "mode": "markers",
            "x": [(s["planned_ns"] - origin_ns) / 1e9 for s in passed],
            "y": [(s["first_token_ns"] - s["planned_ns"]) / 1e6 for s in passed],
            "name": "passed every check",
            "marker": {"color": INK, "size": 5, "opacity": 0.5},
            "hovertemplate": "%{x:.1f} s: %{y:.1f} ms<extra></extra>",
        },
        {
            "type": "scatter",
            "mode": "markers",
            "x": [(s["planned_ns"] - origin_ns) / 1e9 for s in failed],
            "y": [0.0] * len(failed),
            "name": "failed a check",
            "text": [s["outcome"] for s in failed],
            "marker": {"color": "--void", "size": 9, "symbol": "x"},
            "hovertemplate": "%{x:.1f} s: %{text}<extra></extra>",
        },
    ]
    return figure(
        data[: 2 if failed else 1],
        300,
        showlegend=bool(failed),
        xaxis=axis("planned send, s"),
        yaxis=axis("TTFT, ms", rangemode="tozero"),
    )


def load_over_time(files: RunFiles) -> Figure | None:
    """Streams live, and requests planned and sent per second."""
    streams = [s for s in files.streams if s.get("sent_ns") and s.get("end_ns")]
    if not streams:
        return None
    origin_ns = min(s["planned_ns"] for s in streams)
    planned, sent, end = (np.array([(s[key] - origin_ns) / 1e9 for s in streams]) for key in _STAMPS)
    edges = np.arange(0.0, end.max() + 1.0)
    if edges.size < 2:
        edges = np.array([0.0, 1.0])
    live = np.searchsorted(np.sort(sent), edges, "right") - np.searchsorted(np.sort(end), edges, "right")
    data = [
        lines(
            edges, live, "live streams", yaxis="y2", showlegend=False, hovertemplate="%{x:.0f} s: %{y:,}<extra></extra>"
        )
    ]
    for name, times, dash, colour in (("planned", planned, "dot", MUTED), ("sent", sent, "solid", INK)):
        counts, _ = np.histogram(times, edges)
        data.append(lines(edges[:-1], counts, name, dash=dash, colour=colour, line={"shape": "hv"}))
    return figure(
        data,
        380,
        xaxis=axis("time since the first planned send, s", anchor="y2"),
        yaxis=axis("requests per second", domain=[0.56, 1.0], rangemode="tozero"),
        yaxis2=axis("live streams", domain=[0.0, 0.44], rangemode="tozero"),
    )


_STAMPS = ("planned_ns", "sent_ns", "end_ns")


def lengths(files: RunFiles) -> Figure | None:
    """Distribution of prompt and reply lengths, in tokens."""
    streams = [s for s in files.streams if s["outcome"] == "ok"]
    if not streams:
        return None
    data, ends = [], []
    for key, name, dash in (("prompt_tokens", "prompt", "solid"), ("tokens", "reply", "dash")):
        x, y = ecdf(np.array([max(1, s[key]) for s in streams], np.float64))
        ends += [x[0], x[-1]]
        data.append(lines(x, y, name, dash=dash, hovertemplate="%{x:,.0f} tokens: %{y:.1%}<extra></extra>"))
    return figure(
        data,
        280,
        xaxis={
            **log_axis("tokens", range(7)),
            "range": [math.floor(math.log10(min(ends))), math.ceil(math.log10(max(ends) + 1))],
        },
        yaxis=axis("share at or below", tickformat=".0%", range=[0, 1.02]),
    )


def _thinned(streams: list[dict[str, Any]]) -> list[Mapping[str, Any]]:
    """Every failed stream, and of the others as many as can be told apart on a screen."""
    step = max(1, len(streams) // _MOST_POINTS)
    return [s for i, s in enumerate(streams) if i % step == 0 or s["outcome"] != "ok"]
