"""Capacity runs made of simulated systems: files as a real run leaves them, for the fold, the text and the page."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from loadtest.experiment.capacity_fit import Trial, fit_limit
from loadtest.experiment.capacity_search import FURTHER_ROUNDS, LimitSearch, repeat_order, repeat_rate
from loadtest.experiment.capacity_slo import FAIL, PASS, Slo, judge_probe

STREAMS = 1000


def probe(rate: float, *, lag_ms: float = 3.0, **changes: Any) -> dict[str, Any]:
    """The figures of a healthy probe, with ``changes``."""
    figures = {
        "rate_tok_s": float(round(rate)),
        "step_s": STREAMS / rate,
        "uneven_share": 0.0,
        "chunks_per_s": rate,
        "relayed_share": 1.0,
        "cpu_us_per_chunk": 25.0,
        "cpu_share": min(1.0, rate * 25e-6),
        "busiest_core_share": min(1.0, rate * 25e-6),
        "workers_share_cpu": False,
        "lag_p50_s": 0.001,
        "lag_p99_s": lag_ms / 1e3,
        "lag_kernel_share": 0.1,
        "events_per_read": 1.0,
        "run_queue_wait_share": 0.01,
        "steal_share": 0.0,
        "requests": 15,
        "streams_by_worker": {"orchestrator": STREAMS},
        "itl_p99_s": STREAMS / rate + 0.004,
        "ttft_p95_s": 0.030,
        "ttft_n": 15,
        "failed_streams": 0,
        "due_tokens": round(rate * 1.5),
        "gen_due_share": 1.0,
        "gen_written_share": 1.0,
        "gen_late_p99_s": 0.002,
        "gen_cpu_share": 0.3,
        "load_cpu_share": 0.3,
        "load_lag_p99_s": 0.004,
    }
    return {**figures, **changes}


def by_limit(limit_tok_s: float, width: float = 0.01, **changes: Any) -> Callable[[float, np.random.Generator], Any]:
    """A system whose lag breaks out at ``limit_tok_s``, the chance to hold falling over ``width`` in log rate."""

    def measure(rate: float, rng: np.random.Generator) -> dict[str, Any]:
        chance = 1 / (1 + math.exp(min(50.0, max(-50.0, math.log(rate / limit_tok_s) / width))))
        lag_ms = 3.0 if rng.random() < chance else 120.0
        return probe(rate, lag_ms=lag_ms, busiest_core_share=0.97, **changes)

    return measure


def search(
    systems: Mapping[str, Callable[[float, np.random.Generator], Any]],
    rng: np.random.Generator,
    *,
    repeats: int = 3,
    start: float = 5_000,
    top: float = 100_000,
) -> tuple[list[dict[str, Any]], dict[str, list[Trial]]]:
    """Search and repeat as `capacity` does, on simulated ``systems``: (probe records, trials by policy)."""
    records: list[dict[str, Any]] = []
    trials: dict[str, list[Trial]] = {policy: [] for policy in systems}

    def once(policy: str, rate: float, phase: str, pair: tuple[int, int] | None = None) -> str:
        figures = systems[policy](float(round(rate)), rng)
        state = judge_probe(figures, Slo()).state
        records.append({"policy": policy, "engine": "splice", "workers": 1, "phase": phase, "pair": pair, **figures})
        if state in (PASS, FAIL):
            trials[policy].append(Trial(float(round(rate)), state == PASS, pair))
        return state

    searches = {policy: LimitSearch(start, top) for policy in systems}
    for policy, found in searches.items():
        while (rate := found.next_rate()) is not None:
            found.record(once(policy, rate, found.phase))
    near = [policy for policy, found in searches.items() if found.bracketed]
    for round_ in range(repeats + FURTHER_ROUNDS if near else 0):
        limits = {policy: fit_limit(trials[policy], 0) for policy in near}
        if round_ >= repeats and all(limit.estimate for limit in limits.values()):
            break
        for offset, policy in repeat_order(near, round_, rng):
            once(policy, repeat_rate(limits[policy].centre or start, offset), "repeat", (round_, offset))
    return records, trials


def manifest(policies: list[str], **changes: Any) -> dict[str, Any]:
    """The manifest of such a run."""
    return {
        "schema": "disagg-sim/manifest/1",
        "kind": "capacity",
        "started": "2026-12-01T16:00:00+00:00",
        "command": ["disagg-sim", "capacity", *policies],
        "versions": {"python": "3.11.7"},
        "host": {"cpus": 2, "pinning": {"orchestrator": [1], "others": [0]}},
        "interrupted": False,
        "failure": None,
        "scenario": {
            "name": "seed",
            "gen": {"events_per_write": 1, "tokens_per_chunk": 1},
            "load": {"streams": STREAMS},
        },
        "seed": 1,
        "policies": policies,
        "engines": ["splice"],
        "workers": [1],
        "cpus_by_workers": {"1": [1], "2": [1]},
        "slo": {"lag": 50.0, "ttft": 1000.0, "itl": 100.0},
        "from_tok_s": 5_000.0,
        "to_tok_s": 100_000.0,
        "probe_s": 1.5,
        "repeats": 3,
        "max_minutes": 5.0,
        **changes,
    }


def write(path: Path, records: list[dict[str, Any]], head: dict[str, Any]) -> Path:
    """The run directory of ``records``."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "manifest.json").write_text(json.dumps(head))
    (path / "probes.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return path
