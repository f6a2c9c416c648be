"""``python -m bench``: measure, keep the raw results, write the document."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import resource
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.document import render, replaced
from bench.options import parser
from bench.programme import Plan, Subjects, subjects_of
from bench.run import BenchRun, read_results
from loadtest.experiment.host import host_facts, versions
from loadtest.experiment.rundir import RunDirectory, RunDirectoryError, write_whole
from loadtest.experiment.steps import progress
from loadtest.experiment.topology import pinning_of, usable_cpus
from sim.core.settings import SettingError

__all__ = ["main"]

EXIT_DONE, EXIT_ERROR, EXIT_USAGE = 0, 1, 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    options = parser().parse_args(arguments)
    try:
        if options.run_from is not None:
            run_dir = Path(options.run_from)
        else:
            subjects = subjects_of([name for part in options.only.split(",") if (name := part.strip())])
            if options.list:
                _list(subjects)
                return EXIT_DONE
            run_dir = _measure(options, subjects)
        return _conclude(run_dir, Path(options.out), dict(options.figure))
    except (SettingError, RunDirectoryError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return EXIT_USAGE
    except BrokenPipeError:  # the reader of our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_DONE
    except KeyboardInterrupt:
        print("bench: interrupted", file=sys.stderr)
        return EXIT_ERROR


def _measure(options: Any, subjects: Subjects) -> Path:
    _raise_descriptor_limit()
    make = Plan.quick if options.quick else Plan.full
    plan = make(options.passes or (1 if options.quick else 3), options.window or (1.0 if options.quick else 5.0))
    pinning = pinning_of(usable_cpus(), wanted=True)
    candidates = [*subjects.relays, *subjects.gens, *subjects.clients]
    manifest = {
        "command": _command(options),
        "plan": dataclasses.asdict(plan),
        "quick": options.quick,
        "lead": subjects.lead,
        "ours": sorted(subjects.ours),
        "missing": subjects.missing,
        "candidates": {c.name: c.version() for c in candidates if c.name not in subjects.ours},
        "versions": versions(),
        "host": host_facts(),
        "pinned": bool(pinning.orchestrator),
        "interrupted": False,
        "elsewhere": {},
    }
    run = RunDirectory.create(options.run_dir, "bench", manifest)
    if pinning.others:
        os.sched_setaffinity(0, pinning.others)
    progress(f"raw results: {run.path}")
    asyncio.run(BenchRun(run, plan, subjects, pinning).measure())
    return run.path


def _conclude(run_dir: Path, out: Path, elsewhere: dict[str, float]) -> int:
    """Write the document from a run directory's files; what else is in the document stays."""
    try:
        manifest = json.loads((run_dir / "manifest.json").read_text())
        cells = read_results(run_dir)
    except (OSError, ValueError) as error:
        raise RunDirectoryError(f"{run_dir}: holds no results of a bench run: {error}") from None
    if manifest.get("kind") != "bench":
        raise RunDirectoryError(f"{run_dir}: is a run of kind {manifest.get('kind')!r}, not bench")
    manifest["elsewhere"] = {**manifest.get("elsewhere", {}), **elsewhere}
    RunDirectory(run_dir, manifest).save_manifest()
    try:
        write_whole(out, replaced(out.read_text() if out.exists() else "", render(manifest, cells)))
    except OSError as error:
        raise RunDirectoryError(f"--out: cannot write {out}: {(error.strerror or str(error)).lower()}") from None
    progress(f"document: {out}")
    measured = any(not cell.get("problem") for cell in cells)
    return EXIT_DONE if measured and not manifest["interrupted"] else EXIT_ERROR


def _command(options: Any) -> str:
    """The command without its paths."""
    words = ["python", "-m", "bench"]
    for flag in ("passes", "window"):
        if getattr(options, flag) is not None:
            words += [f"--{flag}", f"{getattr(options, flag):g}"]
    words += ["--only", options.only] if options.only else []
    return " ".join([*words, *(["--quick"] if options.quick else [])])


def _list(subjects: Subjects) -> None:
    for candidate in (*subjects.relays, *subjects.gens, *subjects.clients):
        print(f"{candidate.kind:8} {candidate.name:28} {candidate.version()}")
    for name, reason in subjects.missing.items():
        print(f"missing  {name:28} {reason}")


def _raise_descriptor_limit() -> None:
    """As many descriptors as allowed, for all that is started: not every program raises its own limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


if __name__ == "__main__":
    sys.exit(main())
