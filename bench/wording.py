"""Figures as text: medians with their spread, problems without paths, one line per cell.  Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.figures import Spread, figure_at

__all__ = ["NOTHING", "one_line", "rate_text", "short_problem", "spread_text"]

NOTHING = "-"
_PROBLEM_CHARACTERS = 160


def spread_text(spread: Spread | None, digits: int = 1, scale: float = 1.0) -> str:
    """As in "20.6 (19.8-21.3)"; the spread only where there are several values."""
    if spread is None:
        return NOTHING
    median, low, high = (f"{value * scale:,.{digits}f}" for value in (spread.median, spread.low, spread.high))
    return median if spread.count == 1 else f"{median} ({low}-{high})"


def rate_text(tok_s: float) -> str:
    """As in "12.5k"."""
    return f"{tok_s / 1e3:g}k"


def short_problem(problem: str) -> str:
    """A problem's first line, without the paths and logs that follow it."""
    line = problem.splitlines()[0].partition("; its last words")[0]
    return line if len(line) <= _PROBLEM_CHARACTERS else line[: _PROBLEM_CHARACTERS - 3] + "..."


def one_line(cell: Mapping[str, Any]) -> str:
    """What a cell brought, for whoever waits."""
    head = f"pass {cell['pass'] + 1} {cell['table']} {cell['load']} {cell['name']}: "
    if cell.get("problem"):
        return head + short_problem(cell["problem"])
    if cell["table"] == "capacity":
        highest = cell["highest_tok_s"]
        return head + ("no rate was held" if highest is None else f"{rate_text(highest)}, bound by {cell['bound']}")
    lost = f", {cell['lost']}" if cell["lost"] else ", nothing lost"
    if cell["table"] == "request":
        cost = figure_at("processes", "relay", "cpu_us_per_request")(cell)
        return head + f"{cost or 0:,.0f} us/request{lost}"
    costs = [
        f"{role} {figures['cpu_us_per_token']:.1f}"
        for role, figures in cell["processes"].items()
        if figures["cpu_us_per_token"] is not None and role != "ctx"
    ]
    return head + f"us/token: {', '.join(costs)}; {cell['tok_s'] or 0:,.0f} tok/s{lost}"
