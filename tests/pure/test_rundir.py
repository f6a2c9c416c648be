"""Run directories: never shared, never overwritten, the manifest first."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from loadtest.experiment.rundir import RunDirectory, RunDirectoryError


def test_runs_that_start_in_the_same_second_get_directories_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with ThreadPoolExecutor(8) as pool:
        runs = list(pool.map(lambda number: RunDirectory.create(None, "compare", {"number": number}), range(24)))

    assert len({run.path for run in runs}) == 24
    for number, run in enumerate(runs):
        manifest = json.loads((run.path / "manifest.json").read_text())
        assert (manifest["number"], manifest["kind"]) == (number, "compare")


def test_a_directory_with_anything_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("as it was")
    with pytest.raises(RunDirectoryError, match="is not empty"):
        RunDirectory.create(str(tmp_path), "run", {})

    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_a_path_that_cannot_be_a_directory_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunDirectoryError, match=r"--out: cannot use .*file"):
        RunDirectory.create(str(tmp_path / "file" / "below"), "run", {})


def test_changes_of_the_manifest_are_on_disk_at_once(tmp_path: Path) -> None:
    run = RunDirectory.create(str(tmp_path / "run"), "run", {"seed": 7})
    run.save_manifest(interrupted=True)

    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert (manifest["seed"], manifest["interrupted"]) == (7, True)
