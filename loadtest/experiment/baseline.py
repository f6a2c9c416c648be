"""``--baseline``: this run beside an earlier one, as ratios with intervals.

The earlier run is taken from its result alone, so one file is all that needs keeping.  The rounds of two runs are
not paired: what both arms of one run share, the machine's hour above all, does not cancel, and what a process
draws at its start is in neither interval.  So the fixed spin of both is put beside the ratio.

Reading the file is at the end; all else is pure.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from loadtest.experiment.comparable import NEEDED, machine_of, settings_of, unlike, versions_of
from loadtest.experiment.condition import Figure
from loadtest.experiment.instruction_figures import PER_CHUNK
from loadtest.experiment.jackknife import reckoned
from loadtest.experiment.named_figures import by_round, point
from sim.core.settings import SettingError

__all__ = ["BASELINE_FILE", "Earlier", "against_baseline", "common_arms", "differing", "read_earlier"]

BASELINE_FILE = "baseline.json"
"""The copy of the earlier result in the run directory, with what was said about it."""

Earlier = Mapping[str, Any]
"""``path`` as given, ``any`` for --baseline-any, ``result`` the earlier one."""

_SCHEMAS = ("disagg-sim/compare/1", "disagg-sim/run/1", "disagg-sim/instructions/1")


def differing(now: Mapping[str, Any], then: Mapping[str, Any]) -> list[str]:
    """Why figures of the two runs can't be held against each other: machine first, then settings."""
    return [*unlike(machine_of(now), machine_of(then)), *unlike(settings_of(now), settings_of(then), "the default")]


def common_arms(now: Mapping[str, str], then: Mapping[str, str]) -> list[str]:
    """Arms of the same name and policy, in this run's order; both arguments map a name to its policy."""
    return [name for name, policy in now.items() if then.get(name) == policy]


def against_baseline(result: Mapping[str, Any], earlier: Earlier, seed: int) -> dict[str, Any]:
    """The ``baseline`` part of a result: what differs, and a ratio (now over then) for each arm of both."""
    then = earlier["result"]
    differs = differing(result, then)
    withheld = None if not differs or earlier["any"] else "the two runs differ in more than the code"
    spins = _spin_ratio(result, then)
    return {
        "path": earlier["path"],
        "started": then["started"],
        "state": then["verdict"]["state"],
        "differs": differs,
        "withheld": withheld,
        "versions_differ": unlike(versions_of(result), versions_of(then)),
        "spin_ratio": spins,
        "ratios": [] if withheld else [_ratio(arm, result, then, spins, seed) for arm in _arms(result, then)],
    }


def _arms(now: Mapping[str, Any], then: Mapping[str, Any]) -> Sequence[str | None]:
    if "arms" not in now:
        return [None]
    return common_arms(*({name: arm["policy"] for name, arm in run["arms"].items()} for run in (now, then)))


def _ratio(
    arm: str | None, now: Mapping[str, Any], then: Mapping[str, Any], spins: float | None, seed: int
) -> dict[str, Any]:
    what = PER_CHUNK if now["schema"].startswith("disagg-sim/instructions/") else "cpu_us_per_chunk"
    figure = Figure(what, arm)
    values = [point(run, figure) for run in (now, then)]
    entry = {"figure": str(figure), "now": values[0], "then": values[1], "ratio": None, "ci95": None, "by_spin": None}
    if not values[0] or not values[1]:
        return entry
    ratio, ci95 = values[0] / values[1], None
    rounds = [np.array([by_round(run, figure) or []]).T for run in (now, then)]
    if all(map(len, rounds)):
        log = reckoned(lambda means: math.log(means[0][0] / means[1][0]), rounds, np.random.default_rng(seed))
        ci95 = None if log.ci95 is None else [math.exp(bound) for bound in log.ci95]
    by_spin = ratio / spins if spins and what == "cpu_us_per_chunk" else None
    return {**entry, "ratio": ratio, "ci95": ci95, "by_spin": by_spin}


def _spin_ratio(now: Mapping[str, Any], then: Mapping[str, Any]) -> float | None:
    """How much longer the same fixed work took than then; None where a run has no blocks."""
    spins = [
        [arm["spin_us"] for arm in run.get("arms", {}).values() if arm.get("spin_us") is not None]
        for run in (now, then)
    ]
    return float(np.median(spins[0]) / np.median(spins[1])) if all(spins) else None


def read_earlier(given: str, kind: str, manifest: Mapping[str, Any], *, any_run: bool) -> Earlier:
    """The result that ``--baseline`` names (a file, or a run directory that holds one), found fit for this run.

    SettingError for what can't be read or compared; ``any_run`` lets another machine, scenario or settings, and a
    void run, pass.
    """
    path = Path(given)
    path = path / "result.json" if path.is_dir() else path
    try:
        result = json.loads(path.read_bytes())
    except OSError as error:
        raise SettingError(f"--baseline: cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise SettingError(f"--baseline: {path} is not JSON: {error}") from None
    schema = result.get("schema") if isinstance(result, dict) else None
    if schema not in _SCHEMAS:
        raise SettingError(f"--baseline: {path} is no result of compare or run; give a result.json or its directory")
    if schema != f"disagg-sim/{kind}/1":
        raise SettingError(f"--baseline: {path} is {schema}; a {kind} can be compared with disagg-sim/{kind}/1 only")
    rounds = [arm["cpu_us_per_chunk"] for arm in result["arms"].values()] if kind == "compare" else []
    missing = [key for key in NEEDED if key not in result]
    missing += ["by_round"] if any(cost and "by_round" not in cost for cost in rounds) else []
    if missing:
        raise SettingError(
            f"--baseline: {path} lacks {', '.join(missing)}, as an older version wrote it; "
            "`disagg-sim report RUN_DIR` writes it anew from the run's files"
        )
    if not any_run:
        _refuse_unlike(path, result, manifest)
    if kind != "run" and not common_arms(
        {arm["name"]: arm["policy"] for arm in manifest["arms"]},
        {name: arm["policy"] for name, arm in result["arms"].items()},
    ):
        raise SettingError(f"--baseline: {path} has no arm of this run; its arms are {', '.join(result['arms'])}")
    return {"path": given, "any": any_run, "result": result}


def _refuse_unlike(path: Path, result: Mapping[str, Any], manifest: Mapping[str, Any]) -> None:
    faults = differing(manifest, result)
    faults += ["it is void: its figures are not to be used"] if result["verdict"]["state"] == "void" else []
    if faults:
        raise SettingError(
            f"--baseline: {path} can't be compared with this run:\n  "
            + "\n  ".join(faults)
            + "\n--baseline-any compares all the same"
        )
