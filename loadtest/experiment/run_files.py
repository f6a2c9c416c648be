"""The files of a run directory, read back: all that a result and a report are made from.

A file that is missing reads as None (or as no lines): a run that broke off is reported from what it left.
Writing them is `rundir`; folding them is `result`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["FURTHER_STARTS", "KINDS", "RunFiles", "read_lines", "read_object"]

FURTHER_STARTS = "start-*"
"""Directories of a run's further process starts, each a run directory of its own."""

KINDS = ("compare", "run")
"""Kinds of run that measure something; a directory of another kind is read too, but nothing can be folded from it."""

_NUMBER = (int, float)
_EVERY_KIND: Mapping[str, Any] = {
    "command": list,
    "started": str,
    "scenario": dict,
    "seed": int,
    "versions": dict,
    "host": dict,
}
_NEEDED: Mapping[str, Mapping[str, Any]] = {
    "run": _EVERY_KIND,
    "instructions": {**_EVERY_KIND, "arms": list, "repeats": int},
    "compare": {
        **_EVERY_KIND,
        "arms": list,
        "rounds_planned": int,
        "block_s": _NUMBER,
        "settle_s": _NUMBER,
        "at_tok_s": _NUMBER,
    },
}
"""Keys of the manifest without which nothing can be folded, by kind, and the type of each."""
_NEEDED_OF_A_BLOCK = ("round", "arm")
_NEEDED_OF_A_STREAM = ("planned_ns", "outcome", "tokens")


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
        """Read the directory.

        FileNotFoundError without a manifest; ValueError, with the file, its line and what is wrong with it, for
        what can't be used.
        """
        if not (path / "manifest.json").exists():
            raise FileNotFoundError(f"{path / 'manifest.json'} is missing")
        return cls(
            path=path,
            manifest=_checked(read_object(path / "manifest.json") or {}, path / "manifest.json"),
            blocks=read_lines(path / "blocks.jsonl", _NEEDED_OF_A_BLOCK),
            samples=read_object(path / "samples.json") or {},
            counters=read_object(path / "counters.json") or {},
            counters_before=read_object(path / "counters_before.json"),
            streams=read_lines(path / "streams.jsonl", _NEEDED_OF_A_STREAM),
            client=read_object(path / "client.json", "streams"),
            equality=read_object(path / "equality.json", "state", "streams", "policies", "dead_path"),
        )

    @property
    def kind(self) -> str:
        """The verb that made it: one of KINDS, or up."""
        return str(self.manifest["kind"])

    def setting(self, table: str, name: str, default: Any = None) -> Any:
        """A key of the scenario, such as ("gen", "events_per_write")."""
        return self.manifest.get("scenario", {}).get(table, {}).get(name, default)


def read_object(path: Path, *needed: str) -> dict[str, Any] | None:
    """The JSON object in a file, None if there is none.  ValueError if it is something else or lacks a key."""
    if not path.exists():
        return None
    try:
        value = json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    return _with_keys(value, needed, str(path))


def _with_keys(value: Any, needed: tuple[str, ...], where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{where} does not hold a JSON object")
    missing = [key for key in needed if key not in value]
    if missing:
        raise ValueError(f"{where} lacks {', '.join(missing)}")
    return value


def _checked(manifest: dict[str, Any], path: Path) -> dict[str, Any]:
    if not isinstance(manifest.get("kind"), str):
        raise ValueError(f"{path} lacks kind, the verb that made the run")
    needed = _NEEDED.get(manifest["kind"], {})
    _with_keys(manifest, tuple(needed), str(path))
    wrong = [key for key, kind in needed.items() if not isinstance(manifest[key], kind)]
    wrong += ["notes"] if not isinstance(manifest.get("notes", []), list) else []
    if not wrong and "arms" in needed and not _are_arms(manifest["arms"]):
        wrong = ["arms"]
    if not wrong and "scenario" in needed and "name" not in manifest["scenario"]:
        wrong = ["scenario"]
    if wrong:
        raise ValueError(f"{path} holds something else than it should under {', '.join(wrong)}")
    return manifest


def _are_arms(arms: list[Any]) -> bool:
    return bool(arms) and all(isinstance(arm, dict) and {"name", "policy"} <= set(arm) for arm in arms)


def read_lines(path: Path, needed: tuple[str, ...]) -> list[dict[str, Any]]:
    """JSON objects, one a line; a last line that was cut short by a dying process is dropped."""
    if not path.exists():
        return []
    *whole, last = path.read_bytes().split(b"\n")
    records = [_record(line, needed, f"{path}, line {number},") for number, line in enumerate(whole, 1) if line]
    if last:
        try:
            records.append(_record(last, needed, str(path)))
        except ValueError:
            return records
    return records


def _record(line: bytes, needed: tuple[str, ...], where: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"{where} is not JSON: {error.msg} at column {error.colno}") from None
    except ValueError as error:
        raise ValueError(f"{where} is not JSON: {error}") from None
    return _with_keys(value, needed, where)
