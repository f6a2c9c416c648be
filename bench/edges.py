"""The edges of a measured window: what gen, relay and client had counted, and what each process had used.

At the first edge the counters are asked before the CPU clocks are read, at the last edge after: what answering costs
falls outside the window.  Rates are taken between the moments the answers came, so the gap does not matter.
"""

from __future__ import annotations

import re
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
    client: tuple[int, dict[str, float]] | None = None


async def read_edge(rig: Rig, sources: Sources, *, first: bool) -> Edge:
    """Read all there is.  ChildFailedError if a process that should answer does not."""
    edge = Edge()

    async def counts_of_client() -> None:
        if sources.client is not None:
            page = await rig.text(f"{sources.client}/metrics")
            edge.client = time.monotonic_ns(), parse_client_page(page)

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


def parse_client_page(page: str) -> dict[str, float]:
    """Of our load's /metrics: streams that are live, tokens and events with tokens that have come."""
    found = {}
    for name, pattern in (
        ("live", r"^disagg_client_streams_live (\S+)$"),
        ("tokens", r"^disagg_client_tokens_total (\S+)$"),
        ("chunks", r'^disagg_client_events_total\{kind="content"\} (\S+)$'),
    ):
        value = re.search(pattern, page, re.MULTILINE)
        if value is not None:
            found[name] = float(value[1])
    return found


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
    before, after = (LogHistogram.from_json(edge[1]["pacing"]["lateness"]) for edge in (first.gen, last.gen))
    after.counts = {index: count - before.counts.get(index, 0) for index, count in after.counts.items()}
    after.count -= before.count
    return after.quantile_s(0.99)
