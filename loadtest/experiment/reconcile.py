"""Do gen, orchestrator and client count the same?  Every row is a figure that two or three of them count, exactly.

The servers' counters hold the equality gate's streams too, so what counts is their growth since the gate
(``counters_before.json``); without that file, and with a gate run, nothing can be said, nor without the client's
counts, which a load that was killed leaves none of.

A client that cancels a stream leaves tokens behind that gen and orchestrator had sent, so where any was cancelled
most figures may only fall as the data flow, by no more than those streams had still to come.  What must be equal
even then: replies begun, replies that came to their end or were cancelled, and who was cancelled, less those so
near their end that they were over before the servers heard of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from loadtest.experiment.facts import Mismatch
from loadtest.experiment.run_files import RunFiles
from loadtest.experiment.server_counters import role_total

__all__ = ["Row", "mismatches", "reconcile", "reconciliation_json"]

_COUNTERS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "replies": {
        "gen": ("streams.started", "answers.started"),
        "orchestrator": ("streams.started", "answers"),
        "client": ("streams.started",),
    },
    "replies ended early": {
        "gen": ("streams.ended.drained", "answers.ended.drained"),
        "client": ("streams.ended_early",),
    },
    "tokens": {"gen": ("tokens",), "client": ("tokens",)},
    **{
        what: {"gen": (what,), "orchestrator": (what,), "client": (what,)}
        for what in ("chunks", "role_events", "finish_events", "usage_events", "done_events", "events")
    },
    "bytes from gen": {"gen": ("bytes",), "orchestrator": ("bytes_in",)},
    "bytes to client": {"orchestrator": ("bytes_out",), "client": ("bytes",)},
}
"""Figure -> party, in the order the data flow -> the counters that add up to it (dots go into nested ones)."""

_CANCELLED: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "replies ended": {
        "gen": (
            *(f"streams.ended.{how}" for how in ("complete", "drained", "client_gone")),
            *(f"answers.ended.{how}" for how in ("complete", "drained", "client_gone")),
        ),
        "orchestrator": ("streams.ended.complete", "streams.ended.client_gone", "answers"),
        "client": ("streams.ok", "streams.cancelled"),
    },
    "replies cancelled": {
        "gen": ("streams.ended.client_gone",),
        "orchestrator": ("streams.ended.client_gone",),
        "client": ("streams.cancelled",),
    },
}
"""The same, of a run with cancelled streams."""

_ALWAYS_EQUAL = ("replies", "replies ended", "role_events")
_CLOSING_EVENTS = ("finish_events", "usage_events", "done_events")


@dataclass(frozen=True, slots=True)
class Row:
    """One figure and what each party counted, in the order the data flow.

    ``rule`` is what must hold: all "equal", or each party's count not above ("falling") or below ("rising") that of
    the one before it, the first and the last no further apart than ``room`` (None: any distance).
    """

    what: str
    counts: Mapping[str, int]
    rule: str = "equal"
    room: int | None = 0

    @property
    def equal(self) -> bool:
        """Whether all parties agree."""
        return len(set(self.counts.values())) <= 1

    @property
    def holds(self) -> bool:
        """Whether the rule is kept."""
        counts = list(self.counts.values())
        if self.equal or self.rule == "equal":
            return self.equal
        in_order = counts == sorted(counts, reverse=self.rule == "falling")
        return in_order and (self.room is None or abs(counts[0] - counts[-1]) <= self.room)


def reconcile(files: RunFiles) -> list[Row] | None:
    """A row per figure that two parties or more have counted; None without the gate's share or the client's."""
    if files.client is None or (files.equality is not None and files.counters_before is None):
        return None
    parties = {
        "gen": role_total(files.counters, "gen", files.counters_before),
        "orchestrator": role_total(files.counters, "orchestrator", files.counters_before),
        "client": files.client,
    }
    cancelled = _at(parties["client"], "streams.cancelled") or 0
    rows = []
    for what, sources in {**_COUNTERS, **(_CANCELLED if cancelled else {})}.items():
        found = {party: _total(parties[party], names) for party, names in sources.items()}
        counts = {party: count for party, count in found.items() if count is not None}
        row = Row(what, counts, *_rule(what, parties["client"])) if cancelled else Row(what, counts)
        if len(row.counts) > 1:
            rows.append(row)
    cached = _cached_tokens(role_total(files.counters, "ctx", files.counters_before), parties["client"])
    return rows if cached is None else [*rows, cached]


def _rule(what: str, client: Mapping[str, Any]) -> tuple[str, int | None]:
    """The rule of a figure and its room, where streams were cancelled."""
    cancelled, left = client["streams"]["cancelled"], client.get("left_tokens", 0)
    if what in _ALWAYS_EQUAL:
        return "equal", 0
    if what == "replies cancelled":
        return "rising", client["streams"].get("cancelled_near_end", 0)
    if what in ("tokens", "chunks"):
        return "falling", left
    if what == "events":
        return "falling", left + len(_CLOSING_EVENTS) * cancelled
    return "falling", None if what.startswith("bytes") else cancelled


def _cached_tokens(ctx: Mapping[str, Any], client: Mapping[str, Any]) -> Row | None:
    """Cached tokens as ctx answered and as clients were told, where both speak of the same replies.

    They do not where a usage never reached its client, or a prefill was asked for twice.
    """
    told, answered = _at(ctx, "prompt_tokens.cached"), _at(ctx, "answered")
    usages, started = _at(client, "usages"), _at(client, "streams.started")
    heard = _at(client, "cached_tokens")
    if told is None or heard is None or not usages == answered == started:
        return None
    return Row("cached tokens told", {"ctx": told, "client": heard})


def mismatches(rows: list[Row] | None) -> tuple[Mismatch, ...]:
    """The rows whose parties disagree by more than they may."""
    return tuple(Mismatch(row.what.replace("_", " "), row.counts) for row in rows or () if not row.holds)


def reconciliation_json(rows: list[Row] | None) -> dict[str, Any]:
    """``state`` is equal, within (every rule holds, and not all rows are equal), differs or unknown."""
    if not rows:
        return {"state": "unknown", "rows": []}
    held = "equal" if all(row.equal for row in rows) else "within"
    return {
        "state": held if all(row.holds for row in rows) else "differs",
        "rows": [
            {"what": row.what, **row.counts, "equal": row.equal, "rule": row.rule, "room": row.room, "holds": row.holds}
            for row in rows
        ],
    }


def _total(counters: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    """Sum of the named counters; None when none of them is there."""
    values = [_at(counters, name) for name in names]
    return sum(value or 0 for value in values) if any(value is not None for value in values) else None


def _at(counters: Mapping[str, Any], name: str) -> int | None:
    value: Any = counters
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value if isinstance(value, int) else None
