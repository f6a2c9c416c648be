"""Do gen, orchestrator and client count the same?  Every row is a figure that two or three of them count, exactly.

The servers' counters hold the equality gate's streams too, so what counts is their growth since the gate
(``counters_before.json``); without that file, and with a gate run, nothing can be said.
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


@dataclass(frozen=True, slots=True)
class Row:
    """One figure and what each party counted, in the order the data flow."""

    what: str
    counts: Mapping[str, int]

    @property
    def equal(self) -> bool:
        """Whether all parties agree."""
        return len(set(self.counts.values())) <= 1


def reconcile(files: RunFiles) -> list[Row] | None:
    """A row per figure that two parties or more have counted; None when the gate's share is not known."""
    if files.equality is not None and files.counters_before is None:
        return None
    parties = {
        "gen": role_total(files.counters, "gen", files.counters_before),
        "orchestrator": role_total(files.counters, "orchestrator", files.counters_before),
        "client": files.client or {},
    }
    rows = []
    for what, sources in _COUNTERS.items():
        found = {party: _total(parties[party], names) for party, names in sources.items()}
        row = Row(what, {party: count for party, count in found.items() if count is not None})
        if len(row.counts) > 1:
            rows.append(row)
    return rows


def mismatches(rows: list[Row] | None) -> tuple[Mismatch, ...]:
    """The rows whose parties disagree."""
    return tuple(Mismatch(row.what.replace("_", " "), row.counts) for row in rows or () if not row.equal)


def reconciliation_json(rows: list[Row] | None) -> dict[str, Any]:
    """``state`` is equal, differs or unknown."""
    if not rows:
        return {"state": "unknown", "rows": []}
    return {
        "state": "equal" if all(row.equal for row in rows) else "differs",
        "rows": [{"what": row.what, **row.counts, "equal": row.equal} for row in rows],
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
