"""``disagg-sim history``: one row a run in a CSV file, as Apache Otava reads it.

Otava (https://otava.apache.org, docs/CSV.md of apache/otava, read for release 0.8.0) wants a header, a column of
timestamps, a number in every cell of a metric, and attributes that it copies as they are; a cell that is no number
stops it.  It looks for change points over all rows, so a file holds one machine and one load, oldest run first.

`history_row` and `with_rows` are pure; reading, asking git and writing are below them.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import io
import json
import math
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from loadtest.experiment.comparable import NEEDED, identity, machine_of, settings_of
from loadtest.experiment.condition import Figure
from loadtest.experiment.instruction_figures import PER_CHUNK, PER_REQUEST
from loadtest.experiment.named_figures import point
from loadtest.experiment.rundir import write_whole
from loadtest.experiment.steps import progress
from sim.core.settings import SettingError

__all__ = ["ATTRIBUTES", "add_history", "append", "history_row", "with_rows"]

ATTRIBUTES = ("commit", "run", "host", "settings", "verdict")
"""Columns after ``time`` that are no metrics; host and settings are short names of what `comparable` lists."""
_OF_AN_ARM = {
    "compare": ("cpu_us_per_chunk", "events_per_read", "loop_lag_p99_s"),
    "run": (),
    "instructions": (PER_CHUNK, PER_REQUEST),
}
_LATENCIES = ("ttft_p50_s", "ttft_p95_s", "ttft_p99_s", "itl_p50_s", "itl_p99_s")
_OF_THE_RUN = {
    "compare": (*_LATENCIES, "failed_streams", "spin_us"),
    "run": (
        *("cpu_us_per_chunk", "events_per_read", "loop_lag_p99_s"),
        *(*_LATENCIES, "e2e_p50_s", "e2e_p99_s", "failed_streams", "tok_s"),
    ),
    "instructions": (),
}
Row = dict[str, str]


def history_row(result: Mapping[str, Any], run: str, commit: str) -> Row:
    """A run's row, by column.  SettingError for a figure that the run did not leave: Otava reads no empty cell."""
    kind = result["schema"].split("/")[1]
    row = {
        "time": result["started"],
        "commit": commit,
        "run": run,
        "host": identity(machine_of(result)),
        "settings": identity(settings_of(result)),
        "verdict": result["verdict"]["state"],
    }
    figures = [Figure(name, arm) for arm in result.get("arms", {}) for name in _OF_AN_ARM[kind]]
    figures += [Figure(name, None) for name in _OF_THE_RUN[kind]]
    for figure in figures:
        row[str(figure)] = _cell(point(result, figure), str(figure), run)
    for difference in result.get("differences", []):
        name = _OF_AN_ARM[kind][0]
        a, b = (Figure(name, difference[side]) for side in ("a", "b"))
        values = [point(result, figure) for figure in (a, b)]
        known = None if None in values else values[0] - values[1]  # type: ignore[operator]
        row[f"{a} - {b}"] = _cell(known, f"{a} - {b}", run)
    return row


def _cell(value: float | None, column: str, run: str) -> str:
    if value is None or not math.isfinite(value):
        raise SettingError(f"{run}: {column} was not measured, and a history has a number in every cell")
    return f"{value:.6g}"


def with_rows(text: str, rows: Sequence[Row], *, any_run: bool = False) -> tuple[str, list[str]]:
    """The file's new text and the names of runs that were in it already.

    SettingError where the file is no history, or a row's columns, machine or settings are not those of the file
    (``any_run`` lets another machine or other settings pass).
    """
    header, kept = _read(text)
    known = {(row["run"], row["time"]) for row in kept}
    again = []
    for row in rows:
        if (row["run"], row["time"]) in known:
            again.append(row["run"])
            continue
        _check(header or list(row), kept, row, any_run=any_run)
        header = header or list(row)
        known.add((row["run"], row["time"]))
        kept.append(row)
    kept.sort(key=lambda row: datetime.datetime.fromisoformat(row["time"]))
    written = io.StringIO()
    writer = csv.DictWriter(written, header, lineterminator="\n")
    writer.writeheader()
    writer.writerows(kept)
    return written.getvalue(), again


def _read(text: str) -> tuple[list[str], list[Row]]:
    reader = csv.reader(io.StringIO(text))
    header = next(reader, [])
    if header and (header[0] != "time" or not set(ATTRIBUTES) <= set(header)):
        raise SettingError(f"--csv: the file is no history: its header lacks time, {', '.join(ATTRIBUTES)}")
    rows = []
    for cells in reader:
        if len(cells) != len(header):
            raise SettingError(f"--csv: line {reader.line_num} has {len(cells)} cells, the header {len(header)}")
        row = dict(zip(header, cells, strict=True))
        try:
            aware = datetime.datetime.fromisoformat(row["time"]).tzinfo is not None
        except ValueError:
            aware = False
        if not aware:
            raise SettingError(f"--csv: line {reader.line_num}: {row['time']!r} is no time with its offset from UTC")
        rows.append(row)
    return header, rows


def _check(header: Sequence[str], kept: Sequence[Row], row: Row, *, any_run: bool) -> None:
    if set(header) != set(row):
        more, fewer = [name for name in row if name not in header], [name for name in header if name not in row]
        differs = [f"{words}: {', '.join(names)}" for words, names in (("new", more), ("missing", fewer)) if names]
        raise SettingError(
            f"--csv: {row['run']} has other columns than the file ({'; '.join(differs)}); give it a file of its own"
        )
    for what in ("host", "settings"):
        if not any_run and kept and row[what] != kept[-1][what]:
            raise SettingError(
                f"--csv: {row['run']} has another {what} than the file ({row[what]}, not {kept[-1][what]}): a step "
                "would be no change of the code; give it a file of its own, or --any"
            )


def add_history(verb: argparse.ArgumentParser) -> None:
    """Options of ``disagg-sim history``."""
    verb.add_argument("run_dirs", nargs="+", metavar="RUN_DIR", help="run directory of compare or run")
    verb.add_argument("--csv", required=True, metavar="FILE", help="is made if it is not there")
    verb.add_argument("--commit", default=None, metavar="REV", help="default: that of the working directory")
    verb.add_argument("--void", action="store_true", help="append void runs too")
    verb.add_argument("--any", action="store_true", help="also runs of another machine or settings than the file's")


def append(options: argparse.Namespace) -> int:
    """Append the runs to the file, all or none; 0.  SettingError for one that can't be."""
    commit = options.commit or _git_commit()
    path = Path(options.csv)
    rows = []
    for given in options.run_dirs:
        result = _result_of(Path(given))
        if result["verdict"]["state"] == "void" and not options.void:
            progress(f"left out: {given} is void (--void appends it all the same)")
            continue
        rows.append(history_row(result, Path(given).resolve().name, commit))
    try:
        before = path.read_text(encoding="utf-8-sig") if path.exists() else ""
        text, again = with_rows(before, rows, any_run=options.any)
        for name in again:
            progress(f"left out: {name} is in {path} already")
        if rows:
            write_whole(path, text)
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError(f"--csv: cannot use {path}: {error}") from None
    print(f"{len(rows) - len(again)} of {len(options.run_dirs)} runs appended to {path}")
    return 0


def _result_of(run_dir: Path) -> Mapping[str, Any]:
    path = run_dir / "result.json"
    try:
        result = json.loads(path.read_bytes())
    except OSError as error:
        raise SettingError(f"RUN_DIR: cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise SettingError(f"RUN_DIR: {path} is not JSON: {error}") from None
    parts = str(result.get("schema") if isinstance(result, dict) else None).split("/")
    if len(parts) != 3 or parts[0] != "disagg-sim" or parts[1] not in _OF_THE_RUN:
        raise SettingError(f"RUN_DIR: {path} is no result of {', '.join(_OF_THE_RUN)}")
    missing = [key for key in NEEDED if key not in result]
    if missing:
        raise SettingError(f"RUN_DIR: {path} lacks {', '.join(missing)}; `disagg-sim report {run_dir}` writes it anew")
    found: Mapping[str, Any] = result
    return found


def _git_commit() -> str:
    """The commit checked out in the working directory, ``unknown`` where there is none."""
    try:
        found = subprocess.run(
            ["git", "rev-parse", "--short=12", "HEAD"],  # noqa: S607
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return found.stdout.strip()
