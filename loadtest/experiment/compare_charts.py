"""Figures of a compare: differences, rounds, costs, lag by arm, events per read, rate.

Each takes what it draws and gives a figure, or None when there is nothing to draw.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from loadtest.experiment.figures import (
    INK,
    MUTED,
    SOFT,
    Figure,
    Look,
    axis,
    figure,
    label,
    lines,
    span,
    tail_figure,
    tail_of,
)
from loadtest.experiment.rounds import RATE_TOLERANCE, JudgedRounds
from sim.core.histogram import LogHistogram

__all__ = [
    "cost_by_arm",
    "cost_over_time",
    "differences_forest",
    "events_per_read",
    "lag_by_arm",
    "paired_differences",
    "rate_over_time",
]

_ROW_PX = 62


def differences_forest(differences: Sequence[Mapping[str, Any]], control: Mapping[str, Any] | None) -> Figure | None:
    """A row per difference: estimate, 95 % interval, and in grey what would have gone unseen; the A/A below."""
    rows = [d for d in [*differences, *([control] if control else [])] if (d["cpu_us_per_chunk"] or {}).get("ci95")]
    if not rows:
        return None
    data, notes, ends = [], [], []
    for y, row in zip(range(len(rows) - 1, -1, -1), rows, strict=True):
        value = row["cpu_us_per_chunk"]
        is_control = row is control
        colour = MUTED if is_control else INK
        name = f"A/A: {row['a']} minus itself" if is_control else f"{row['a']} minus {row['b']}"
        data.append(lines([-value["mde"], value["mde"]], [y, y], "", colour=SOFT, width=14, hoverinfo="skip"))
        ends += [-value["mde"], value["mde"], *value["ci95"]]
        if is_control and value["ci999"] is not None:
            data.append(lines(value["ci999"], [y, y], "99.9 %", colour=colour, width=1, hoverinfo="skip"))
        data.append(lines(value["ci95"], [y, y], "95 %", colour=colour, width=3, hoverinfo="skip"))
        text = f"{value['estimate']:+.2f} µs [{value['ci95'][0]:.2f}, {value['ci95'][1]:.2f}]"
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "x": [value["estimate"]],
                "y": [y],
                "name": label(name),
                "marker": {"color": colour, "size": 11, "symbol": "diamond-open" if is_control else "diamond"},
                "hovertemplate": f"{text}<extra></extra>",
            }
        )
        notes.append(_row_note(f"{label(name)}  <b>{text}</b>", y))
    return figure(
        data,
        _ROW_PX * len(rows) + 70,
        showlegend=False,
        annotations=notes,
        xaxis=axis("CPU per chunk, µs: a minus b", zeroline=True, range=span(ends)),
        margin_left_px=10,
        yaxis={"visible": False, "range": [-0.5, len(rows) - 0.3], "fixedrange": True},
    )


def _row_note(text: str, y: float) -> dict[str, Any]:
    """A row's name above it, at the left edge: it needs no margin, so it fits a narrow screen."""
    place = {"x": 0, "xref": "paper", "xanchor": "left", "y": y + 0.4, "yref": "y", "yanchor": "middle"}
    return {"text": text, "showarrow": False, "align": "left", **place}


def paired_differences(
    pairs: Sequence[tuple[str, str]], judged: JudgedRounds, results: Mapping[tuple[str, str], Mapping[str, Any]]
) -> Figure | None:
    """Per pair a strip of round-by-round differences with mean and interval; crosses are void rounds."""
    drawn = [pair for pair in pairs if (results[pair]["cpu_us_per_chunk"] or {}).get("ci95")]
    if not drawn:
        return None
    data: list[dict[str, Any]] = []
    layout: dict[str, Any] = {"showlegend": False, "annotations": [], "shapes": []}
    share = 1.0 / len(drawn)
    rounds = [-0.7, judged.planned - 0.3]
    for i, (a, b) in enumerate(drawn):
        top = 1.0 - i * share
        suffix = "" if i == 0 else str(i + 1)
        numbers = [next(iter(round_.values())).round for round_ in judged.used]
        gaps = [round_[a].cpu_us_per_chunk - round_[b].cpu_us_per_chunk for round_ in judged.used]
        value = results[a, b]["cpu_us_per_chunk"]
        on = {"xaxis": f"x{suffix}", "yaxis": f"y{suffix}"}
        data.append(_points(numbers, gaps, f"{a} minus {b}", INK, "circle", hover="round %{x}: %{y:+.2f} µs", **on))
        if judged.void_rounds:
            void = sorted(judged.void_rounds)
            why = [judged.void_rounds[number].replace("_", " ") for number in void]
            crosses = _points(
                void, [0.0] * len(void), "void", MUTED, "x-thin-open", hover="round %{x} void: %{text}", **on
            )
            data.append({**crosses, "text": why})
        band = {"type": "rect", "xref": f"x{suffix} domain", "x0": 0, "x1": 1, "yref": f"y{suffix}", "layer": "below"}
        low, high = value["ci95"]
        layout["shapes"] += [
            {**band, "y0": low, "y1": high, "fillcolor": SOFT, "line": {"width": 0}},
            {
                **band,
                "type": "line",
                "y0": value["estimate"],
                "y1": value["estimate"],
                "line": {"color": INK, "width": 1.5},
            },
        ]
        layout["annotations"].append(
            {
                "text": f"{label(a)} minus {label(b)}",
                "showarrow": False,
                "x": 0,
                "xref": "paper",
                "xanchor": "left",
                "y": top,
                "yref": "paper",
                "yanchor": "top",
            }
        )
        domain = [max(0.0, top - share + 0.3 * share * (i < len(drawn) - 1)), top - 0.13 * share]
        last = i == len(drawn) - 1
        layout[f"xaxis{suffix}"] = {**axis("round" if last else ""), "anchor": f"y{suffix}", "range": rounds}
        layout[f"yaxis{suffix}"] = {**axis("µs"), "anchor": f"x{suffix}", "domain": domain, "zeroline": True}
    return figure(data, 190 * len(drawn) + 60, **layout)


def cost_by_arm(
    judged: JudgedRounds, arms: Mapping[str, Mapping[str, Any]], looks: Mapping[str, Look]
) -> Figure | None:
    """Per arm every block that counts, and the mean with its interval."""
    if not judged.used:
        return None
    rng = np.random.default_rng(0)  # only spreads the dots
    data, notes = [], []
    for y, (arm, look) in zip(range(len(looks) - 1, -1, -1), looks.items(), strict=True):
        values = [round_[arm].cpu_us_per_chunk for round_ in judged.used]
        spread = y + rng.uniform(-0.16, 0.12, len(values))
        dots = _points(values, spread.tolist(), arm, look.colour, look.symbol, hover="%{x:.2f} µs")
        data.append({**dots, "marker": {**dots["marker"], "opacity": 0.55, "size": 6}})
        mean = arms[arm]["cpu_us_per_chunk"]
        if mean["ci95"] is not None:
            data.append(lines(mean["ci95"], [y, y], "", colour=look.colour, width=4, hoverinfo="skip"))
        data.append(_points([mean["mean"]], [y], f"{arm} mean", look.colour, "line-ns-open", hover="mean %{x:.2f} µs"))
        data[-1]["marker"].update({"size": 20, "line": {"width": 3, "color": look.colour}})
        notes.append(_row_note(f"{label(arm)}  <b>{mean['mean']:.2f} µs</b>", y))
    return figure(
        data,
        _ROW_PX * len(looks) + 70,
        showlegend=False,
        annotations=notes,
        xaxis=axis("CPU per chunk, µs"),
        margin_left_px=10,
        yaxis={"visible": False, "range": [-0.5, len(looks) - 0.3], "fixedrange": True},
    )


def cost_over_time(judged: JudgedRounds, looks: Mapping[str, Look]) -> Figure | None:
    """CPU per chunk of every block that counts, by arm, as the run went on."""
    return _over_time(judged, looks, lambda block: block.cpu_us_per_chunk, "CPU per chunk, µs", "%{y:.2f} µs")


def events_per_read(judged: JudgedRounds, looks: Mapping[str, Look]) -> Figure | None:
    """How many events a read brought, by arm, as the run went on."""
    drawn = _over_time(judged, looks, lambda block: block.events_per_read, "events per read", "%{y:.3f}", height_px=260)
    if drawn is not None:
        values = [y for trace in drawn["data"] for y in trace["y"]]
        drawn["layout"]["yaxis"]["range"] = span(values, at_least=(0.95, 1.15), pad=0.1)
    return drawn


def _over_time(
    judged: JudgedRounds, looks: Mapping[str, Look], of: Any, title: str, hover: str, height_px: int = 300
) -> Figure | None:
    if not judged.used:
        return None
    start_ns = judged.blocks[0].start_ns
    data = []
    for arm, look in looks.items():
        blocks = [round_[arm] for round_ in judged.used]
        x = [(block.start_ns - start_ns) / 1e9 for block in blocks]
        data.append(
            _points(x, [of(block) for block in blocks], arm, look.colour, look.symbol, hover=f"%{{x:.0f}} s: {hover}")
        )
        data[-1].update({"mode": "lines+markers", "line": {"color": look.colour, "dash": look.dash, "width": 1.2}})
    return figure(data, height_px, xaxis=axis("time since the first block, s"), yaxis=axis(title))


def rate_over_time(judged: JudgedRounds, looks: Mapping[str, Look], asked_chunks_per_s: float | None) -> Figure | None:
    """Relayed chunks per second of every block, void ones too, against the asked rate and what is allowed."""
    if not judged.blocks:
        return None
    start_ns = judged.blocks[0].start_ns
    data, shapes = [], []
    for arm, look in looks.items():
        blocks = [block for block in judged.blocks if block.arm == arm]
        x = [(block.start_ns - start_ns) / 1e9 for block in blocks]
        y = [block.chunks_per_s for block in blocks]
        data.append(_points(x, y, arm, look.colour, look.symbol, hover="%{x:.0f} s: %{y:,.0f} chunks/s"))
    if asked_chunks_per_s is not None:
        across = {"xref": "x domain", "x0": 0, "x1": 1, "yref": "y", "layer": "below"}
        low, high = (asked_chunks_per_s * (1 + sign * RATE_TOLERANCE) for sign in (-1, 1))
        shapes = [{"type": "rect", **across, "y0": low, "y1": high, "fillcolor": SOFT, "line": {"width": 0}}]
    rates = [block.chunks_per_s for block in judged.blocks]
    around = None if asked_chunks_per_s is None else (0.95 * asked_chunks_per_s, 1.05 * asked_chunks_per_s)
    title = axis("chunks per second", tickformat=",d", range=span(rates, at_least=around))
    return figure(data, 260, shapes=shapes, xaxis=axis("time since the first block, s"), yaxis=title)


def lag_by_arm(judged: JudgedRounds, looks: Mapping[str, Look]) -> Figure | None:
    """Tail of the loop's lag per arm, pooled over its blocks; dotted, the part that was the kernel's."""
    data = []
    for arm, look in looks.items():
        blocks = [round_[arm] for round_ in judged.used]
        for lag, name, dash in (
            (_pooled([block.lag for block in blocks]), arm, look.dash),
            (_pooled([block.lag_kernel for block in blocks]), f"{arm}, kernel's part", "dot"),
        ):
            if lag.count:
                hover = "%{y:.2f} ms<extra>%{fullData.name}</extra>"
                data.append(lines(*tail_of(lag), name, colour=look.colour, dash=dash, hovertemplate=hover))
                data[-1].update({"legendgroup": arm, "showlegend": name == arm})
    if not data:
        return None
    return tail_figure(data, 380, "lag")


def _pooled(histograms: Sequence[LogHistogram]) -> LogHistogram:
    pooled = LogHistogram()
    for histogram in histograms:
        pooled.merge(histogram)
    return pooled


def _points(
    x: Sequence[float], y: Sequence[float], name: str, colour: str, symbol: str, *, hover: str, **more: Any
) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "x": list(x),
        "y": list(y),
        "name": label(name),
        "marker": {"color": colour, "symbol": symbol, "size": 7},
        "hovertemplate": f"{hover}<extra>{label(name)}</extra>",
        **more,
    }
