"""The files of a run directory, read back: all that a result and a report are made from.

A file that is missing reads as None (or as no lines): a run that broke off is reported from what it left.
Writing them is `rundir`; folding them is `result`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["FURTHER_STARTS", "RunFiles"]

FURTHER_STARTS = "start-*"
"""Directories of a run's further process starts, each a run directory of its own."""


_NO_OUTCOME: dict[str, Any] = {"streams": 0, "events": 0, "policies": {}, "cases": [], "dead_path": []}
"""What a gate that could not finish may leave out."""


@dataclass(frozen=True, slots=True)
class RunFiles:
    """One run, as it was recorded.

    ``counters_before`` are the servers' counters once the equality gate is done and before the load starts.
    """

    path: Path
    manifest: dict[str, Any]
    blocks: list[dict[str, Any]]
    samples: dict[str, Any]
    counters: dict[str, Any]
    counters_before: dict[str, Any] | None
    streams: list[dict[str, Any]]
    client: dict[str, Any] | None
    equality: dict[str, Any] | None

    @classmethod
    def read(cls, path: Path) -> RunFiles:
        """Read the directory.  FileNotFoundError without a manifest, ValueError for what is not JSON."""
        gate = _object(path / "equality.json")
        return cls(
            path=path,
            manifest=json.loads((path / "manifest.json").read_text()),
            blocks=_lines(path / "blocks.jsonl"),
            samples=_object(path / "samples.json") or {},
            counters=_object(path / "counters.json") or {},
            counters_before=_object(path / "counters_before.json"),
            streams=_lines(path / "streams.jsonl"),
            client=_object(path / "client.json"),
            equality=None if gate is None else {**_NO_OUTCOME, **gate},
        )

    @property
    def kind(self) -> str:
        """The verb that made it: compare or run."""
        return str(self.manifest["kind"])

    def setting(self, table: str, name: str, default: Any = None) -> Any:
        """A key of the scenario, such as ("gen", "events_per_write")."""
        return self.manifest.get("scenario", {}).get(table, {}).get(name, default)


def _object(path: Path) -> dict[str, Any] | None:
    if not path.exists():
        return None
    value = json.loads(path.read_text())
    if not isinstance(value, dict):
        raise ValueError(f"{path} does not hold a JSON object")
    return value


def _lines(path: Path) -> list[dict[str, Any]]:
    """JSON objects, one a line; a last line that was cut short by a dying process is dropped."""
    if not path.exists():
        return []
    *whole, last = path.read_text().split("\n")
    records: list[dict[str, Any]] = [json.loads(line) for line in whole if line]
    if last:
        try:
            records.append(json.loads(last))
        except ValueError:
            return records
    return records
