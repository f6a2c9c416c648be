"""The edges of a measured window: what gen, relay and client had counted, and what each process had used.

At the first edge the counters are asked before the CPU clocks are read, at the last edge after: what answering costs
falls outside the window.  Rates are taken between the moments the answers came, so the gap does not matter.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bench.proc_tree import TreeReading, read_tree, spent_between
from bench.rig import Rig
from sim.core.histogram import LogHistogram

__all__ = ["Edge", "Sources", "read_edge", "window_figures"]

BEHIND_SHARE = 0.97
"""A client that gets less than this share of what gen writes is behind: the rest waits in buffers."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Where counts are to be had: URLs of operations ports, None for a program that is not ours."""

    gen: str | None
    relay: str | None
    client: str | None


@dataclass(slots=True)
class Edge:
    """One edge; every count comes with the moment it was known, CLOCK_MONOTONIC ns."""

    at_ns: int = 0
    trees: dict[str, TreeReading] = field(default_factory=dict)
    gen: tuple[int, dict[str, Any]] | None = None
    relay: dict[str, Any] | None = None
    client: tuple[int, dict[str, Any]] | None = None


async def read_edge(rig: Rig, sources: Sources, *, first: bool) -> Edge:
    """Read all there is.  ChildFailedError if a process that should answer does not."""
    edge = Edge()

    async def counts_of_client() -> None:
        if sources.client is not None:
            counters = await rig.call(f"{sources.client}/admin/counters")
            edge.client = time.monotonic_ns(), counters

    async def counts_of_relay() -> None:
        if sources.relay is not None:
            edge.relay = await rig.call(f"{sources.relay}/admin/counters")

    async def counts_of_gen() -> None:
        if sources.gen is not None:
            counters = await rig.call(f"{sources.gen}/admin/counters")
            edge.gen = time.monotonic_ns(), counters

    async def clocks() -> None:
        edge.trees = {role: read_tree(rig.pid(role)) for role in rig.children}
        edge.at_ns = time.monotonic_ns()

    order = [counts_of_client, counts_of_relay, counts_of_gen, clocks]
    for read in order if first else reversed(order):
        await read()
    return edge


def window_figures(first: Edge, last: Edge, asked_tok_s: float) -> dict[str, Any]:
    """Rates, CPU per token and shares of wall time by process; all JSON-able."""
    wall_ns = last.at_ns - first.at_ns
    gen_tok_s = None if first.gen is None or last.gen is None else _rate(first.gen, last.gen, "tokens")
    # A gen server that is not ours says anything: there an event with text counts as a token.
    counted = "tokens" if gen_tok_s is not None else "chunks"
    client_tok_s = None if first.client is None or last.client is None else _rate(first.client, last.client, counted)
    behind = None not in (gen_tok_s, client_tok_s) and client_tok_s < BEHIND_SHARE * gen_tok_s  # type: ignore[operator]
    tok_s = client_tok_s if gen_tok_s is None or behind else gen_tok_s
    tokens = (tok_s or 0.0) * wall_ns / 1e9
    processes = {}
    for role, tree in last.trees.items():
        spent = spent_between(first.trees[role], tree)
        processes[role] = {
            "cpu_us_per_token": spent.cpu_ns / 1e3 / tokens if tokens else None,
            "cpu_share": spent.cpu_ns / wall_ns,
            "wait_share": spent.wait_ns / wall_ns,
        }
    return {
        "window_s": wall_ns / 1e9,
        "tok_s": tok_s,
        "gen_tok_s": gen_tok_s,
        "client_tok_s": client_tok_s,
        "delivered_share": None if tok_s is None else tok_s / asked_tok_s,
        "gen_share": None if gen_tok_s is None else gen_tok_s / asked_tok_s,
        "gen_late_p99_s": _gen_lateness(first, last),
        "behind": behind,
        "transit_s": _transit(first, last),
        "events_per_read": _events_per_read(first.relay, last.relay),
        "processes": processes,
    }


def _rate(first: tuple[int, Mapping[str, Any]], last: tuple[int, Mapping[str, Any]], name: str) -> float:
    return float((last[1][name] - first[1][name]) / (last[0] - first[0]) * 1e9)


def _events_per_read(first: Mapping[str, Any] | None, last: Mapping[str, Any] | None) -> float | None:
    """None where the relay does not split its stream into events, or does not count its reads."""
    if first is None or last is None:
        return None
    reads, events = last["reads"] - first["reads"], last["events"] - first["events"]
    return events / reads if reads and events else None


def _gen_lateness(first: Edge, last: Edge) -> float | None:
    """How late gen wrote its tokens within the window, p99 in s."""
    if first.gen is None or last.gen is None:
        return None
    return _within(*(edge[1]["pacing"]["lateness"] for edge in (first.gen, last.gen))).quantile_s(0.99)


def _transit(first: Edge, last: Edge) -> dict[str, float] | None:
    """Time from gen's write to the client's read, of the window's tokens, s; None where events do not say it."""
    if first.client is None or last.client is None or not last.client[1].get("transit"):
        return None
    transit = _within(first.client[1]["transit"] or LogHistogram().to_json(), last.client[1]["transit"])
    p50, p99 = transit.quantile_s(0.5), transit.quantile_s(0.99)
    return None if p50 is None or p99 is None else {"p50": p50, "p99": p99}


def _within(before: Mapping[str, Any], after: Mapping[str, Any]) -> LogHistogram:
    """What a histogram was given between two readings; its greatest value is not known to be of that time."""
    found, earlier = LogHistogram.from_json(after), LogHistogram.from_json(before)
    found.counts = {index: count - earlier.counts.get(index, 0) for index, count in found.counts.items()}
    found.count -= earlier.count
    found.sum_ns -= earlier.sum_ns
    return found
