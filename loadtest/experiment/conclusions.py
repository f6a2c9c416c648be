"""What every verb does when it is over: fold the run directory into a result, write it, print it, and judge."""

from __future__ import annotations

import json
from pathlib import Path

from loadtest.experiment import micro, profile
from loadtest.experiment.capacity_verb import conclude_capacity
from loadtest.experiment.instruction_figures import count_figures, count_text
from loadtest.experiment.micro_text import render_micro
from loadtest.experiment.profile_text import render_profile
from loadtest.experiment.report import write_report
from loadtest.experiment.result import analyze
from loadtest.experiment.rundir import write_whole
from loadtest.experiment.steps import progress
from loadtest.experiment.text import render_text
from sim.core.settings import SettingError

__all__ = [
    "CONCLUSIONS", "EXIT_DONE", "EXIT_ERROR", "EXIT_USAGE", "EXIT_VOID", "conclude", "conclude_count",
    "conclude_micro", "conclude_profile",
]  # fmt: skip

EXIT_DONE, EXIT_ERROR, EXIT_USAGE, EXIT_VOID = 0, 1, 2, 3


def conclude(run_dir: Path, as_json: bool) -> int:
    """Fold the run directory into result.json and report.html, print it, and judge."""
    result = analyze(run_dir)
    write_whole(run_dir / "result.json", json.dumps(result, indent=1) + "\n")
    report = write_report(run_dir, result)
    if as_json:
        print(json.dumps(result))
        progress(f"report: {report}")
    else:
        print(render_text(result, report))
    return EXIT_VOID if result["verdict"]["state"] == "void" else EXIT_DONE


def conclude_count(run_dir: Path, as_json: bool) -> int:
    """Fold an instruction count into result.json, print it, and judge."""
    result = count_figures(run_dir)
    write_whole(run_dir / "result.json", json.dumps(result, indent=1) + "\n")
    print(json.dumps(result) if as_json else count_text(result))
    return EXIT_VOID if result["verdict"]["state"] == "void" else EXIT_DONE


def conclude_profile(run_dir: Path, as_json: bool) -> int:
    """Fold the run directory into profile.json and flamegraph.svg, print it, and judge."""
    result = profile.write_profile(run_dir)
    print(json.dumps(result) if as_json else render_profile(result, run_dir))
    return EXIT_VOID if result["verdict"]["state"] == "void" else EXIT_DONE


def conclude_micro(run_dir: Path, as_json: bool) -> int:
    """Fold the cells of `micro` into result.json, and print the table."""
    result = micro.fold(*micro.read(run_dir))
    if not result["cells"]:
        if result["interrupted"]:
            raise KeyboardInterrupt
        raise SettingError(
            f"--sizes: a chunk with usage {', '.join(result['usage'])} is larger than every size asked for"
        )
    write_whole(run_dir / "result.json", json.dumps(result, indent=1) + "\n")
    print(json.dumps(result) if as_json else render_micro(result))
    progress(f"kept in {run_dir}")
    return EXIT_DONE


CONCLUSIONS = {
    "micro": conclude_micro,
    "instructions": conclude_count,
    "profile": conclude_profile,
    "capacity": conclude_capacity,
}
"""How a run directory of each kind is concluded; those that are not here, by `conclude`."""
