"""Gates and baseline on their way through a verb: options, checks before the run, judgement after it.

Any verb whose manifest `preparation.prepare` writes and whose result `conclusions` folds takes part by
`add_gate_options`: what was asked stands in the run directory, so that ``disagg-sim report`` judges again.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from loadtest.experiment.baseline import BASELINE_FILE, Earlier, against_baseline, read_earlier
from loadtest.experiment.fail_if import check_gates, judge_gates
from sim.core.settings import SettingError

__all__ = ["add_gate_options", "gated", "planned_gates"]


def add_gate_options(verb: argparse.ArgumentParser) -> None:
    """``--fail-if``, ``--baseline`` and ``--baseline-any``."""
    verb.add_argument(
        "--fail-if",
        action="append",
        default=[],
        metavar="EXPR",
        help="exit with 4 if this holds beyond the noise, such as 'cpu_us_per_chunk(B) > 1.05 * cpu_us_per_chunk(A)'; "
        "may be given several times (docs/gates.md)",
    )
    verb.add_argument(
        "--baseline",
        default=None,
        metavar="RESULT",
        help="compare with an earlier run: its result.json or run directory, of the same machine and settings",
    )
    verb.add_argument("--baseline-any", action="store_true", help="also with a baseline of another machine or settings")


def planned_gates(
    options: argparse.Namespace, kind: str, manifest: Mapping[str, Any]
) -> tuple[list[str], Earlier | None]:
    """The conditions and the earlier run that the options ask for, checked; a verb without these options has none.

    SettingError for whatever can't be used, so that nothing is started.
    """
    expressions = list(getattr(options, "fail_if", []))
    given, any_run = getattr(options, "baseline", None), getattr(options, "baseline_any", False)
    if any_run and given is None:
        raise SettingError("--baseline-any: there is no --baseline that it could apply to")
    earlier = None if given is None else read_earlier(given, kind, manifest, any_run=any_run)
    arms = [arm["name"] for arm in manifest.get("arms", [])]
    check_gates(expressions, kind, arms, None if earlier is None else list(earlier["result"].get("arms", {})))
    return expressions, earlier


def gated(run_dir: Path, result: Mapping[str, Any]) -> dict[str, Any]:
    """The result with its ``baseline`` and ``gates``, as the run directory says what was asked.

    ValueError for a file that is not what it should be.
    """
    manifest = json.loads((run_dir / "manifest.json").read_bytes())
    expressions, seed = manifest.get("fail_if", []), manifest["seed"]
    earlier = _kept(run_dir / BASELINE_FILE)
    arms = list(result.get("arms", {}))
    kind = result["schema"].split("/")[1]
    check_gates(expressions, kind, arms, None if earlier is None else list(earlier["result"].get("arms", {})))
    if earlier is None:
        return {**result, "baseline": None, "gates": judge_gates(expressions, result, None, None, seed)}
    baseline = against_baseline(result, earlier, seed)
    gates = judge_gates(expressions, result, earlier["result"], baseline["withheld"], seed)
    return {**result, "baseline": baseline, "gates": gates}


def _kept(path: Path) -> Earlier | None:
    if not path.exists():
        return None
    try:
        earlier = json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    if not isinstance(earlier, dict) or not {"path", "any", "result"} <= set(earlier):
        raise ValueError(f"{path} lacks path, any or result")
    return earlier
