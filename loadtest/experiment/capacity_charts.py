"""Figures of a capacity run: what rises with the rate, where it parts from the simple queue, and the scaling curve.

Each takes the result and gives a figure, or None when there is nothing to draw.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from loadtest.experiment.capacity_slo import FAIL, PASS, UNATTRIBUTABLE
from loadtest.experiment.figures import MUTED, Figure, Look, axis, figure, label, lines, log_axis, looks_of
from loadtest.experiment.queueing import utilisation, wait_quantile_s

__all__ = ["WAKE_UP_S", "drawn", "looks"]

WAKE_UP_S = 0.001
"""Gen's wheel wakes once a millisecond at most: what came due since is written at once, and comes as one piece."""
_HEIGHT_PX = 360
_SYMBOLS = {PASS: "circle", FAIL: "circle-open", UNATTRIBUTABLE: "x-thin-open"}
_SHORTEST_LAG_MS = 0.02

Value = Callable[[Mapping[str, Any]], float | None]


def looks(result: Mapping[str, Any]) -> dict[str, Look]:
    """A look per limit."""
    return looks_of(list(result["limits"]))


def drawn(result: Mapping[str, Any], looks: Mapping[str, Look]) -> dict[str, Figure | None]:
    """Every figure by its name in the page."""
    return {
        "lag_by_rate": _lag(result, looks),
        "cpu_by_rate": _cpu(result, looks),
        "events_per_read_by_rate": _by_rate(result, looks, "events per read", lambda p: p["events_per_read"]),
        "itl_by_rate": _added_itl(result, looks),
        "scaling": _scaling(result),
    }


def _probes_of(result: Mapping[str, Any], limit: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    place = tuple(limit[key] for key in ("policy", "engine", "workers"))
    return [probe for probe in result["probes"] if (probe["policy"], probe["engine"], probe["workers"]) == place]


def _points(result: Mapping[str, Any], looks: Mapping[str, Look], value: Value, hover: str) -> list[dict[str, Any]]:
    """A marker per probe, in its policy's colour; what did not hold is hollow, what says nothing a cross."""
    data = []
    for name, limit in result["limits"].items():
        probes = sorted(_probes_of(result, limit), key=lambda probe: float(probe["rate_tok_s"]))
        known = [(probe, found) for probe in probes if (found := value(probe)) is not None]
        if known:
            data.append(
                {
                    "type": "scatter",
                    "mode": "markers",
                    "x": [probe["rate_tok_s"] for probe, _ in known],
                    "y": [found for _, found in known],
                    "name": label(name),
                    "legendgroup": name,
                    "marker": {
                        "color": looks[name].colour,
                        "symbol": [_SYMBOLS[probe["state"]] for probe, _ in known],
                        "size": 8,
                        "line": {"width": 1.6, "color": looks[name].colour},
                    },
                    "hovertemplate": f"%{{x:,.0f}} tok/s: {hover}<extra>{label(name)}</extra>",
                }
            )
    return data


def _rate_axis(result: Mapping[str, Any]) -> dict[str, Any]:
    return axis("rate asked of gen, tok/s", rangemode="tozero", range=[0, 1.05 * _highest(result)], tickformat=",d")


def _highest(result: Mapping[str, Any]) -> float:
    return max(float(probe["rate_tok_s"]) for probe in result["probes"])


def _level(result: Mapping[str, Any], y: float, name: str) -> dict[str, Any]:
    x = [0.0, 1.05 * _highest(result)]
    return lines(x, [y, y], name, colour=MUTED, dash="longdash", width=1.2, hoverinfo="skip")


def _lag(result: Mapping[str, Any], looks: Mapping[str, Look]) -> Figure | None:
    """Loop lag p99 against the rate; beside it what the queue says, chunk by chunk and in gen's batches."""
    data = _points(result, looks, lambda p: max(p["lag_p99_s"] * 1e3, _SHORTEST_LAG_MS), "%{y:.2f} ms")
    if not data:
        return None
    named: set[str] = set()  # a line has its policy's colour: one entry in the legend tells what it is
    for name, limit in result["limits"].items():
        if limit["workers"] > 1 or limit["cpu_us_per_chunk"] is None:
            continue  # of several workers on one CPU or more, no single queue can be told
        for batch, dash, words in ((False, "dot", "queue"), (True, "dash", "queue, in batches")):
            x, y = _predicted(result, limit["cpu_us_per_chunk"] / 1e6, in_batches=batch)
            style: dict[str, Any] = {"colour": looks[name].colour, "dash": dash, "width": 1.4}
            data.append(lines(x, y, words, hoverinfo="skip", showlegend=words not in named, **style))
            named.add(words)
    data.append(_level(result, result["slo"]["lag_ms"], "objective"))
    return figure(data, _HEIGHT_PX + 80, xaxis=_rate_axis(result), yaxis=log_axis("loop lag p99, ms", range(-2, 5)))


def _predicted(result: Mapping[str, Any], cost_s: float, *, in_batches: bool) -> tuple[list[float], list[float | None]]:
    """(rates, lag p99 in ms by M/D/1) up to where the queue has no end; chunks are one token each."""
    per_chunk = result["scenario"].get("gen", {}).get("tokens_per_chunk", 1)
    x = np.linspace(0.01, 1.05, 200) * _highest(result)
    y: list[float | None] = []
    for rate in x:
        chunks_s = float(rate) / per_chunk
        batch = max(1.0, chunks_s * WAKE_UP_S) if in_batches else 1.0
        wait_s = wait_quantile_s(0.99, chunks_s / batch, cost_s * batch)
        y.append(wait_s * 1e3 if math.isfinite(wait_s) and wait_s * 1e3 >= _SHORTEST_LAG_MS else None)
    return x.tolist(), y


def _cpu(result: Mapping[str, Any], looks: Mapping[str, Look]) -> Figure | None:
    """CPU of all workers, of a core; the line is the rate times the cost of a chunk read alone."""
    data = _points(result, looks, lambda p: p["cpu_share"], "%{y:.1%}")
    if not data:
        return None
    per_chunk = result["scenario"].get("gen", {}).get("tokens_per_chunk", 1)
    for name, limit in result["limits"].items():
        if limit["cpu_us_per_chunk"] is not None:
            cost_s = limit["cpu_us_per_chunk"] / 1e6
            ends = [0.0, min(1.05 * _highest(result), max(1, limit["workers"]) * per_chunk / cost_s)]
            shares = [utilisation(rate / per_chunk, cost_s) for rate in ends]
            style: dict[str, Any] = {"colour": looks[name].colour, "dash": "dot", "width": 1.4}
            first = all(trace["name"] != "rate x cost" for trace in data)
            data.append(lines(ends, shares, "rate x cost", hoverinfo="skip", showlegend=first, **style))
    y = axis("CPU of the orchestrator, of a core", tickformat=".0%", rangemode="tozero")
    return figure(data, _HEIGHT_PX + 60, xaxis=_rate_axis(result), yaxis=y)


def _added_itl(result: Mapping[str, Any], looks: Mapping[str, Look]) -> Figure | None:
    def added_ms(probe: Mapping[str, Any]) -> float | None:
        if probe["itl_p99_s"] is None:
            return None
        return max(float((probe["itl_p99_s"] - probe["step_s"]) * 1e3), _SHORTEST_LAG_MS)

    data = _points(result, looks, added_ms, "%{y:.2f} ms")
    if not data:
        return None
    data.append(_level(result, result["slo"]["itl_ms"], "objective"))
    y = log_axis("ITL p99 above the stream's pace, ms", range(-2, 5))
    return figure(data, _HEIGHT_PX, xaxis=_rate_axis(result), yaxis=y)


def _by_rate(result: Mapping[str, Any], looks: Mapping[str, Look], title: str, value: Value) -> Figure | None:
    data = _points(result, looks, value, "%{y:.2f}")
    return figure(data, _HEIGHT_PX, xaxis=_rate_axis(result), yaxis=axis(title)) if data else None


def _scaling(result: Mapping[str, Any]) -> Figure | None:
    """The limit against the number of workers; what is only a bound is hollow."""
    data = []
    colours: Sequence[Look] = list(looks_of([f"{c['policy']} {c['engine']}" for c in result["scaling"]]).values())
    for curve, look in zip(result["scaling"], colours, strict=True):
        points = [(point, _value(point)) for point in curve["points"]]
        known = [(point, value) for point, value in points if value is not None]
        if not known:
            continue
        bounds = [point["limit_tok_s"]["ci95"] if point["limit_tok_s"] else [value, value] for point, value in known]
        data.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "x": [point["workers"] for point, _ in known],
                "y": [value for _, value in known],
                "error_y": {
                    "type": "data",
                    "symmetric": False,
                    "array": [high - value for (_, value), (_, high) in zip(known, bounds, strict=True)],
                    "arrayminus": [value - low for (_, value), (low, _) in zip(known, bounds, strict=True)],
                    "color": look.colour,
                    "thickness": 1.4,
                },
                "name": label(f"{curve['policy']}, {curve['engine']}"),
                "line": {"color": look.colour, "width": 1.8},
                "marker": {
                    "size": 9,
                    "color": look.colour,
                    "symbol": ["circle" if point["limit_tok_s"] else "triangle-up-open" for point, _ in known],
                },
                "hovertemplate": "%{x} workers: %{y:,.0f} tok/s<extra></extra>",
            }
        )
    if not data:
        return None
    workers = sorted({point["workers"] for curve in result["scaling"] for point in curve["points"]})
    x = axis("workers of the orchestrator", tickvals=workers, range=[workers[0] - 0.4, workers[-1] + 0.4])
    return figure(data, _HEIGHT_PX, xaxis=x, yaxis=axis("limit, tok/s", rangemode="tozero", tickformat=",d"))


def _value(point: Mapping[str, Any]) -> float | None:
    if point["limit_tok_s"]:
        return float(point["limit_tok_s"]["estimate"])
    bound = point["at_least_tok_s"] or point["below_tok_s"]
    return None if bound is None else float(bound)
