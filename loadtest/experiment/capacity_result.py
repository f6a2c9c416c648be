"""``result.json`` of a capacity run: a pure fold over its manifest and probes; folding twice gives the same.

The contract is ``disagg-sim/capacity/1``; keys may be added.  Outcomes are judged anew from the probes' figures.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np

from loadtest.experiment.capacity_fit import Limit, Trial, fit_limit, fit_ratio
from loadtest.experiment.capacity_places import PlaceFiles
from loadtest.experiment.capacity_search import RESOLUTION
from loadtest.experiment.capacity_slo import FAIL, PASS, UNATTRIBUTABLE, Slo, judge_probe
from loadtest.experiment.capacity_verdict import capacity_reasons, not_certified
from loadtest.experiment.run_files import read_lines
from loadtest.experiment.rundir import RunDirectoryError
from loadtest.experiment.verdict import verdict_of

__all__ = ["PROBES_NAME", "UNMERGED", "fold_capacity"]

PROBES_NAME = "probes.jsonl"
UNMERGED = 1.05
"""Events per read, over what gen writes at once, up to which a chunk's cost is that of a chunk read alone."""
_ROUNDED = 0.01  # rates are probed as whole numbers
_NEEDED = (
    *("policy", "engine", "workers", "phase", "rate_tok_s", "step_s", "cpu_us_per_chunk", "cpu_share"),
    *("busiest_core_share", "workers_share_cpu", "lag_p99_s", "events_per_read", "run_queue_wait_share", "steal_share"),
    *("itl_p99_s", "ttft_p95_s", "failed_streams", "relayed_share", "streams_by_worker"),
    *(
        "due_tokens",
        "uneven_share",
        "gen_due_share",
        "gen_late_p99_s",
        "gen_cpu_share",
        "load_cpu_share",
        "load_lag_p99_s",
    ),
)

Key = tuple[str, str, int]


def fold_capacity(run_dir: Path, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The result of the capacity run in ``run_dir``.  ValueError for a file that is not what it should be."""
    missing = [
        key for key in ("policies", "engines", "workers", "slo", "scenario", "seed", "host") if key not in manifest
    ]
    if missing:
        raise RunDirectoryError(f"{run_dir / 'manifest.json'} lacks {', '.join(missing)}")
    slo, seed = Slo(**manifest["slo"]), manifest["seed"]
    probes = [
        {**probe, "state": (outcome := judge_probe(probe, slo)).state, "by": list(outcome.by)}
        for probe in read_lines(run_dir / PROBES_NAME, _NEEDED)
    ]
    keys: list[Key] = [
        (policy, engine, workers)
        for engine, workers, policy in product(manifest["engines"], manifest["workers"], manifest["policies"])
    ]
    by_key = {key: [probe for probe in probes if _key(probe) == key] for key in keys}
    trials = {key: _trials(found) for key, found in by_key.items()}
    names = {key: _name(key, manifest) for key in keys}
    per_write = manifest["scenario"].get("gen", {}).get("events_per_write", 1)
    limits = {
        names[key]: _limit(key, found, fit_limit(trials[key], seed), manifest["to_tok_s"], per_write)
        for key, found in by_key.items()
    }
    places = {
        f"{engine}-{workers}": PlaceFiles.read(run_dir / f"{engine}-{workers}").to_json()
        for engine, workers in product(manifest["engines"], manifest["workers"])
    }
    return {
        "schema": "disagg-sim/capacity/1",
        "verdict": verdict_of(capacity_reasons(manifest, probes, limits, places)).to_json(),
        "slo": {f"{key}_ms": value for key, value in manifest["slo"].items()},
        "limits": limits,
        "comparisons": [
            _comparison((a, b), limits[names[a]], limits[names[b]], trials, names, seed)
            for a, b in combinations(keys, 2)
            if a[1:] == b[1:]
        ],
        "scaling": _scaling(manifest, limits, trials, names, seed),
        "certified": not_certified(manifest, limits),
        "places": places,
        "probes": probes,
        **{key: manifest[key] for key in ("scenario", "versions", "host", "command") if key in manifest},
    }


def _key(probe: Mapping[str, Any]) -> Key:
    return probe["policy"], probe["engine"], probe["workers"]


def _name(key: Key, manifest: Mapping[str, Any]) -> str:
    """The policy, and what else tells this limit from the others."""
    policy, engine, workers = key
    parts = [policy]
    if len(manifest["engines"]) > 1:
        parts.append(engine)
    if len(manifest["workers"]) > 1:
        parts.append(f"{workers} worker{'s' if workers > 1 else ''}")
    return ", ".join(parts)


def _trials(probes: Sequence[Mapping[str, Any]]) -> list[Trial]:
    return [
        Trial(probe["rate_tok_s"], probe["state"] == PASS, tuple(probe["pair"]) if probe.get("pair") else None)
        for probe in probes
        if probe["state"] != UNATTRIBUTABLE
    ]


def _limit(
    key: Key, probes: Sequence[Mapping[str, Any]], limit: Limit, top_tok_s: float, events_per_write: int
) -> dict[str, Any]:
    policy, engine, workers = key
    states = Counter(probe["state"] for probe in probes)
    estimate = None if limit.estimate is None else {"estimate": limit.estimate, "ci95": list(limit.ci95 or ())}
    return {
        "policy": policy,
        "engine": engine,
        "workers": workers,
        "limit_tok_s": estimate,
        "at_least_tok_s": limit.at_least,
        "below_tok_s": limit.below,
        "stopped_by": _stopped_by(probes, limit, top_tok_s),
        "bracketed": _bracketed(probes, limit),
        "probes": {state: states[state] for state in (PASS, FAIL, UNATTRIBUTABLE)},
        "cpu_us_per_chunk": _cost_us(probes, events_per_write),
        "at_limit": _at_limit(probes, limit),
    }


def _stopped_by(probes: Sequence[Mapping[str, Any]], limit: Limit, top_tok_s: float) -> str | None:
    """What broke first, oftenest: a key of the SLO, who gave out, the option --to (ceiling), or the time."""
    if not probes:
        return None
    wanted = UNATTRIBUTABLE if limit.estimate is None and limit.below is None else FAIL
    reached = limit.at_least or 0.0
    blamed: Counter[str] = Counter(
        probe["by"][0]
        for probe in probes
        if probe["state"] == wanted and (wanted == FAIL or probe["rate_tok_s"] > reached)
    )
    if blamed:
        return blamed.most_common(1)[0][0]
    return "ceiling" if reached >= top_tok_s else "time"


def _bracketed(probes: Sequence[Mapping[str, Any]], limit: Limit) -> bool:
    """Whether the search came to its end: no gap is left between what held and what did not, or there was none."""
    if limit.at_least is None:
        return limit.estimate is not None or limit.below is not None
    above = [probe["rate_tok_s"] for probe in probes if probe["rate_tok_s"] > limit.at_least]
    return not above or min(above) / limit.at_least <= RESOLUTION + _ROUNDED


def _cost_us(probes: Sequence[Mapping[str, Any]], events_per_write: int) -> float | None:
    """CPU us per chunk where reads did not merge, of the upper half of such rates: at low ones a chunk costs more."""
    unmerged = [
        (probe["rate_tok_s"], probe["cpu_us_per_chunk"])
        for probe in probes
        if probe["state"] == PASS and probe["events_per_read"] <= UNMERGED * events_per_write
    ]
    if not unmerged:
        return None
    middle = float(np.median([rate for rate, _ in unmerged]))
    return float(np.median([cost for rate, cost in unmerged if rate >= middle]))


_NEAREST = ("rate_tok_s", "cpu_us_per_chunk", "cpu_share", "events_per_read", "lag_p99_s", "streams_by_worker")


def _at_limit(probes: Sequence[Mapping[str, Any]], limit: Limit) -> dict[str, Any] | None:
    """Figures of the highest rate that passed and is not above the limit."""
    bound = limit.estimate or limit.at_least or 0.0
    held = [probe for probe in probes if probe["state"] == PASS and probe["rate_tok_s"] <= bound]
    if not held:
        return None
    nearest = max(held, key=lambda probe: float(probe["rate_tok_s"]))
    return {name: nearest[name] for name in _NEAREST}


def _comparison(
    pair: tuple[Key, Key],
    a: Mapping[str, Any],
    b: Mapping[str, Any],
    trials: Mapping[Key, Sequence[Trial]],
    names: Mapping[Key, str],
    seed: int,
) -> dict[str, Any]:
    """How two policies at one place stand: "<", ">", "no difference shown" or "unknown"."""
    ratio = fit_ratio(trials[pair[0]], trials[pair[1]], seed)
    order = "unknown"
    if ratio is not None:
        order = ("<" if ratio.estimate < 1.0 else ">") if ratio.differs else "no difference shown"
    elif a["limit_tok_s"] and b["at_least_tok_s"] and a["limit_tok_s"]["ci95"][1] < b["at_least_tok_s"]:
        order = "<"
    elif b["limit_tok_s"] and a["at_least_tok_s"] and b["limit_tok_s"]["ci95"][1] < a["at_least_tok_s"]:
        order = ">"
    return {
        "a": names[pair[0]],
        "b": names[pair[1]],
        "order": order,
        "ratio": None if ratio is None else {"estimate": ratio.estimate, "ci95": list(ratio.ci95)},
    }


def _scaling(
    manifest: Mapping[str, Any],
    limits: Mapping[str, Mapping[str, Any]],
    trials: Mapping[Key, Sequence[Trial]],
    names: Mapping[Key, str],
    seed: int,
) -> list[dict[str, Any]]:
    """A curve per policy and engine where several numbers of workers were tried; each over the first."""
    counts = manifest["workers"]
    if len(counts) < 2:
        return []
    curves = []
    for engine, policy in product(manifest["engines"], manifest["policies"]):
        points = []
        for workers in counts:
            key, first = (policy, engine, workers), (policy, engine, counts[0])
            limit = limits[names[key]]
            # Places are measured one after the other: nothing was made side by side.
            alone = [[Trial(t.rate_tok_s, t.passed) for t in trials[one]] for one in (key, first)]
            ratio = None if key == first else fit_ratio(alone[0], alone[1], seed)
            points.append(
                {
                    "workers": workers,
                    **{name: limit[name] for name in ("limit_tok_s", "at_least_tok_s", "below_tok_s", "stopped_by")},
                    "over_first": None if ratio is None else {"estimate": ratio.estimate, "ci95": list(ratio.ci95)},
                }
            )
        curves.append({"policy": policy, "engine": engine, "points": points})
    return curves
