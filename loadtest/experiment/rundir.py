"""The run directory: every fact of a run, written as it becomes known; results are folds over these files."""

from __future__ import annotations

import datetime
import itertools
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

__all__ = ["RunDirectory", "RunDirectoryError", "write_whole"]


class RunDirectoryError(ValueError):
    """The directory asked for cannot be used."""


class RunDirectory:
    """Files of one run below ``path``; ``manifest`` is written first and again whenever it changes."""

    def __init__(self, path: Path, manifest: dict[str, Any]) -> None:
        self.path = path
        self.manifest = manifest

    @classmethod
    def create(cls, wanted: str | None, kind: str, manifest: Mapping[str, Any]) -> RunDirectory:
        """Make ``wanted`` (default: runs/KIND-TIME) and write the manifest.  RunDirectoryError if it is in use."""
        now = datetime.datetime.now().astimezone()
        try:
            if wanted:
                path = Path(wanted)
                path.mkdir(parents=True, exist_ok=True)
                if any(path.iterdir()):
                    raise RunDirectoryError(f"--out: {path} is not empty; a run keeps its files apart")
            else:
                path = _new_directory(Path("runs") / f"{kind}-{now:%Y%m%d-%H%M%S}")
        except OSError as error:
            raise RunDirectoryError(f"--out: cannot use {wanted or 'runs'}: {error.strerror}") from None
        head = {"schema": "disagg-sim/manifest/1", "kind": kind, "started": now.isoformat(timespec="seconds")}
        run = cls(path, {**head, **manifest})
        run.save_manifest()
        return run

    def save_manifest(self, **changes: object) -> None:
        """Record ``changes`` in the manifest."""
        self.manifest.update(changes)
        self.write_json("manifest.json", self.manifest)

    def write_json(self, name: str, value: object) -> None:
        """Write one JSON file whole or not at all."""
        write_whole(self.path / name, json.dumps(value, indent=1) + "\n")

    def write_lines(self, name: str, records: Iterable[object]) -> None:
        """Write one JSON object a line."""
        write_whole(self.path / name, "".join(json.dumps(record) + "\n" for record in records))


def write_whole(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def _new_directory(wanted: Path) -> Path:
    """Make ``wanted``, or ``wanted``-2, -3 ... when several runs start in the same second."""
    for number in itertools.count(1):
        path = wanted if number == 1 else wanted.with_name(f"{wanted.name}-{number}")
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            continue
        return path
    raise AssertionError
