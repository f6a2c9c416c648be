"""What one topology of a capacity run left when it ended: the gate, both loads' counts, the servers' counters."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loadtest.experiment.reconcile import reconcile, reconciliation_json
from loadtest.experiment.run_files import RunFiles, read_object
from loadtest.experiment.server_counters import combined, streams_by_server

__all__ = ["LOADS", "PlaceFiles"]

LOADS = (".", "short")
"""Directories of the standing streams' load and of the short requests', below the place's own."""


@dataclass(frozen=True, slots=True)
class PlaceFiles:
    """The files of ``ENGINE-WORKERS``; None and {} for what is missing."""

    equality: dict[str, Any] | None
    clients: tuple[dict[str, Any] | None, ...]
    counters: dict[str, Any]
    counters_before: dict[str, Any] | None
    path: Path

    @classmethod
    def read(cls, path: Path) -> PlaceFiles:
        """Read the directory; it may not be there.  ValueError for a file that is not JSON."""
        return cls(
            equality=read_object(path / "equality.json"),
            clients=tuple(read_object(path / load / "client.json") for load in LOADS),
            counters=read_object(path / "counters.json") or {},
            counters_before=read_object(path / "counters_before.json"),
            path=path,
        )

    def to_json(self) -> dict[str, Any]:
        """State of the gate, streams of both loads together, whether all parties count alike, streams per worker."""
        together: dict[str, Any] = {}
        for client in self.clients:
            together = combined(together, client or {}, 1)
        whole = None not in self.clients
        rows = None
        if whole and self.counters:
            rows = reconcile(
                RunFiles(
                    path=self.path,
                    manifest={},
                    blocks=[],
                    samples={},
                    counters=self.counters,
                    counters_before=self.counters_before,
                    streams=[],
                    client=together,
                    equality=self.equality,
                )
            )
        return {
            "equality": None if self.equality is None else self.equality["state"],
            "streams": together.get("streams") if whole else None,
            "reconciliation": reconciliation_json(rows),
            "streams_by_worker": streams_by_server(self.counters, "orchestrator"),
        }
