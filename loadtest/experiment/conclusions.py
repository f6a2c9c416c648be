"""What every verb does when it is over: fold the run directory into a result, write it, print it, and judge."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from loadtest.experiment import micro, profile
from loadtest.experiment.capacity_verb import conclude_capacity
from loadtest.experiment.exit_codes import EXIT_DONE, EXIT_ERROR, EXIT_TRIPPED, EXIT_VOID
from loadtest.experiment.fail_if_plan import gated
from loadtest.experiment.fail_if_text import gates_text
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
    "CONCLUSIONS", "conclude", "conclude_count", "conclude_micro", "conclude_profile", "exit_code",
]  # fmt: skip


def exit_code(result: Mapping[str, Any]) -> int:
    """What a result says to a script: void before a gate that tripped before one that could not be judged."""
    if result["verdict"]["state"] == "void":
        return EXIT_VOID
    tripped = [gate["tripped"] for gate in result.get("gates", [])]
    if True in tripped:
        return EXIT_TRIPPED
    return EXIT_ERROR if None in tripped else EXIT_DONE


def conclude(run_dir: Path, as_json: bool) -> int:
    """Fold the run directory into result.json and report.html, print it, and judge."""
    result = gated(run_dir, analyze(run_dir))
    write_whole(run_dir / "result.json", json.dumps(result, indent=1) + "\n")
    report = write_report(run_dir, result)
    if as_json:
        print(json.dumps(result))
        progress(f"{gates_text(result)}\nreport: {report}".lstrip())
    else:
        print(render_text(result, report, gates_text(result)))
    return exit_code(result)


def conclude_count(run_dir: Path, as_json: bool) -> int:
    """Fold an instruction count into result.json, print it, and judge."""
    result = gated(run_dir, count_figures(run_dir))
    write_whole(run_dir / "result.json", json.dumps(result, indent=1) + "\n")
    print(json.dumps(result) if as_json else f"{count_text(result)}\n{gates_text(result)}".rstrip())
    return exit_code(result)


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
