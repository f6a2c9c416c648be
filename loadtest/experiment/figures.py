"""Plotly figures as plain data, and the small vocabulary that all of them share.

A colour is the name of a CSS variable (``--arm-0``): the page looks it up when it draws and draws again when
light turns dark.  An arm has one colour throughout; its A/A twin has the same, lighter, with open markers and
dashes.  Everything that is not an arm is drawn in ink and told apart by its dash.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from loadtest.experiment.rounds import CONTROL_SUFFIX
from loadtest.experiment.stats import FloatArray
from sim.core.histogram import LogHistogram

__all__ = [
    "ARM_COLOURS",
    "INK",
    "MUTED",
    "SOFT",
    "Figure",
    "Look",
    "axis",
    "ecdf",
    "figure",
    "label",
    "lines",
    "log_axis",
    "looks_of",
    "process_style",
    "span",
    "tail_figure",
    "tail_of",
]

INK, MUTED, SOFT = "--ink", "--muted", "--soft"
ARM_COLOURS = 6
"""How many arm colours the page's style sheet has."""

Figure = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Look:
    """How one arm is drawn everywhere."""

    colour: str
    soft: str
    dash: str
    symbol: str


def looks_of(arms: Sequence[str]) -> dict[str, Look]:
    """A look per arm, in their order; an A/A arm takes after the arm it repeats."""
    looks: dict[str, Look] = {}
    for name in arms:
        twin = name.removesuffix(CONTROL_SUFFIX)
        if twin != name and twin in looks:
            colour = looks[twin].colour
            looks[name] = Look(f"{colour}-again", f"{colour}-soft", "dash", "circle-open")
        else:
            colour = f"--arm-{sum(look.dash == 'solid' for look in looks.values()) % ARM_COLOURS}"
            looks[name] = Look(colour, f"{colour}-soft", "solid", "circle")
    return looks


def process_style(role: str) -> dict[str, Any]:
    """Colour and dash that a process is known by; its colours are no arm's."""
    dash = {"orchestrator": "solid", "gen": "dash", "ctx": "dot", "load": "dashdot"}[role]
    return {"colour": INK if role == "orchestrator" else f"--process-{role}", "dash": dash}


def span(values: Sequence[float], *, at_least: tuple[float, float] | None = None, pad: float = 0.06) -> list[float]:
    """An axis range that holds the values, and ``at_least``, with a margin on either side."""
    held = [*values, *(at_least or ())]
    low, high = min(held), max(held)
    margin = pad * (high - low or abs(high) or 1.0)
    return [low - margin, high + margin]


def figure(data: Sequence[Mapping[str, Any]], height_px: int, **layout: Any) -> Figure:
    """A figure of fixed height; the page adds fonts, colours and margins."""
    return {"data": list(data), "layout": layout, "height_px": height_px}


def axis(title: str, **more: Any) -> dict[str, Any]:
    """An axis with its title, unit included."""
    return {"title": {"text": title}, **more}


def log_axis(title: str, powers: range) -> dict[str, Any]:
    """A logarithmic axis with every label written out, at 1 and 3 of each power of ten."""
    steps = [digit * 10.0**power for power in powers for digit in (1, 3)]
    return axis(title, type="log", tickvals=steps, ticktext=[f"{step:,.10g}" for step in steps])


def label(name: str) -> str:
    """A name as Plotly text, in which ``<`` would begin a tag."""
    return escape(name, quote=False)


def lines(x: Any, y: Any, name: str, *, colour: str = INK, dash: str = "solid", **more: Any) -> dict[str, Any]:
    """A line without markers."""
    style = {"color": colour, "dash": dash, "width": more.pop("width", 1.8), **more.pop("line", {})}
    return {
        "type": "scatter",
        "mode": "lines",
        "x": _plain(x),
        "y": _plain(y),
        "name": label(name),
        "line": style,
        **more,
    }


def ecdf(values: FloatArray, points: int = 400) -> tuple[list[float], list[float]]:
    """Values and the share of the sample at or below each, thinned to ``points``."""
    shares = np.unique(np.concatenate([np.linspace(0.0, 1.0, points), [0.99, 0.999]]))
    return np.quantile(values, shares, method="inverted_cdf").tolist(), shares.tolist()


def tail_of(histogram: LogHistogram) -> tuple[list[float], list[float]]:
    """(share, value in ms) of every bucket in use: how rare a value of at least that size is.

    Ends at the rarest share there can be, one in all; what is under 1 us stands at 1 us, as the axis is a log.
    """
    shares, values_ms = [], []
    below = 0
    for upper_s, cumulative in histogram.buckets():
        shares.append((histogram.count - below) / histogram.count)
        values_ms.append(max(upper_s, 1e-6) * 1e3)
        below = cumulative
    return [*shares, 1.0 / histogram.count], [*values_ms, values_ms[-1]]


def tail_figure(data: Sequence[Mapping[str, Any]], height_px: int, what: str) -> Figure:
    """A figure of tails: rarer to the right, worse upwards."""
    rare = [1.0, 0.5, 0.1, 0.01, 0.001, 0.0001]
    words = ["all", "half", "1 in 10", "1 in 100", "1 in 1,000", "1 in 10,000"]
    return figure(
        data,
        height_px,
        xaxis=axis("how often at least this late", type="log", autorange="reversed", tickvals=rare, ticktext=words),
        yaxis=log_axis(f"{what}, ms", range(-3, 5)),
    )


def _plain(values: Any) -> list[Any]:
    plain: list[Any] = values.tolist() if isinstance(values, np.ndarray) else list(values)
    return plain
