"""Run directories made up from known numbers: what a fold over their files must give back.

`compare_run` and `load_run` give the files as objects, to be changed by a test before `write` puts them on disk.
The machine in them is quiet: nothing in an unchanged run is a reason to doubt it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from loadtest.experiment.rounds import arms_with_control, block_schedule
from sim.core.histogram import LogHistogram

STREAMS = 1_000
RATE = 15_400.0
BLOCK_S, SETTLE_S = 0.7, 0.1
START_NS = 5_000_000_000_000
GATE_CHUNKS = 240
COSTS_US = {"filter-off": 45.0, "filter-on": 40.0, "parse-orjson": 42.0}

Files = dict[str, Any]


def compare_run(
    policies: Sequence[str] = ("filter-off", "filter-on"),
    *,
    costs_us: Mapping[str, float] | None = None,
    rounds: int = 30,
    seed: int = 1,
    noise: float = 0.03,
) -> Files:
    """A compare whose arms cost what ``costs_us`` (by policy) says, with drift common to a round."""
    rng = np.random.default_rng(seed)
    arms = arms_with_control(policies)
    costs = {**COSTS_US, **(costs_us or {})}
    drift = 1.0 + 0.002 * np.cumsum(rng.normal(0.0, 1.0, rounds))
    blocks, at_ns = [], START_NS
    for planned in block_schedule(arms, rounds, round(BLOCK_S * 1e9), np.random.default_rng(seed)):
        cost_us = costs[planned.policy] * drift[planned.round] * (1.0 + noise * rng.standard_t(5))
        blocks.append(block(planned.round, planned.slot, planned.arm, planned.policy, at_ns, cost_us, rng))
        at_ns += planned.length_ns
    seconds = round((at_ns - START_NS) / 1e9)
    files = _shared("compare", ["disagg-sim", "compare", *policies], seconds, seed)
    files["manifest.json"].update(
        {
            "arms": [{"name": arm.name, "policy": arm.policy} for arm in arms],
            "rounds_planned": rounds,
            "block_s": BLOCK_S,
            "settle_s": SETTLE_S,
            "at_tok_s": RATE,
            "asked_chunks_per_s": RATE,
        }
    )
    files["blocks.jsonl"] = blocks
    files["equality.json"] = equality(policies)
    files["streams.jsonl"] = [stream(n, n * 5_000_000, seconds, rng) for n in range(STREAMS)]
    _count(files, gate=True)
    return files


def load_run(*, requests: int = 400, seconds: int = 40, seed: int = 1) -> Files:
    """A run of streams that come and go, 100 tokens each."""
    rng = np.random.default_rng(seed)
    files = _shared("run", ["disagg-sim", "run", "azure-conv"], seconds, seed)
    files["manifest.json"]["scenario"]["name"] = "azure-conv"
    files["manifest.json"]["scenario"]["load"] = {"arrivals": "poisson", "request_rate": requests / seconds}
    due_ns = np.sort(rng.integers(0, (seconds - 8) * 10**9, requests))
    files["streams.jsonl"] = [stream(n, int(due), 6.5, rng, warm_up_s=0.0) for n, due in enumerate(due_ns)]
    _count(files, gate=False)
    return files


def write(files: Files, path: Path) -> Path:
    """Put the files where `analyze` reads them."""
    path.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        lines = name.endswith(".jsonl")
        text = "".join(json.dumps(line) + "\n" for line in content) if lines else json.dumps(content)
        (path / name).write_text(text)
    return path


def block(
    number: int, slot: int, arm: str, policy: str, at_ns: int, cost_us: float, rng: np.random.Generator
) -> dict[str, Any]:
    """One ledger: ``cost_us`` of CPU per chunk at the asked rate, one event a read, no wait."""
    wall_ns = round((BLOCK_S - SETTLE_S) * 1e9)
    chunks = round(RATE * wall_ns / 1e9)
    cpu_ns = round(cost_us * 1e3 * chunks)
    lag_ns = rng.gamma(2.0, 300_000, 60).astype(int)
    kernel_ns = (lag_ns * 0.05).astype(int)
    return {
        "round": number,
        "slot": slot,
        "arm": arm,
        "policy": policy,
        "start_ns": at_ns + round(SETTLE_S * 1e9),
        "end_ns": at_ns + round(BLOCK_S * 1e9),
        "wall_ns": wall_ns,
        "cpu_ns": cpu_ns,
        "loop_cpu_ns": round(cpu_ns * 0.99),
        "cpu_user_s": cpu_ns * 0.6 / 1e9,
        "cpu_sys_s": cpu_ns * 0.4 / 1e9,
        "run_queue_wait_ns": round(wall_ns * 0.004),
        "steal_share": 0.0006,
        "throttled_us": 0,
        "chunks": chunks,
        "events": chunks,
        "reads": chunks,
        "requests": 0,
        "bytes_in": chunks * 250,
        "bytes_out": chunks * 250,
        "unchanged": chunks,
        "changed": 0,
        "parsed": chunks if policy == "filter-off" else 0,
        "lag": histogram(lag_ns),
        "lag_kernel": histogram(kernel_ns),
        "late_ticks": 1,
        "late_ticks_kernel": 0,
        "gc_pause_ns": 200_000,
        "spin_ns": round(1_000_000 * (1.0 + 0.01 * rng.normal())),
        "live_streams": STREAMS,
    }


def histogram(values_ns: Sequence[int] | np.ndarray) -> dict[str, Any]:
    """A recorded LogHistogram of the values."""
    recorded = LogHistogram()
    for value_ns in values_ns:
        recorded.record_ns(int(value_ns))
    return recorded.to_json()


def stream(
    number: int, planned_ns: int, seconds: float, rng: np.random.Generator, *, warm_up_s: float = 9.0
) -> dict[str, Any]:
    """One stream that passed its checks, sent 0.2 ms late and answered in about 30 ms."""
    planned = START_NS - round(warm_up_s * 1e9) + planned_ns
    sent = planned + 200_000
    first = sent + round(rng.gamma(9.0, 3.3e6))
    end = first + round(seconds * 1e9)
    tokens = 100
    return {
        "seq": number,
        "planned_ns": planned,
        "sent_ns": sent,
        "first_byte_ns": first - 100_000,
        "first_token_ns": first,
        "last_token_ns": end - 1_000_000,
        "end_ns": end,
        "prompt_tokens": int(rng.lognormal(6.0, 1.0)) + 1,
        "asked_tokens": tokens,
        "tokens": tokens,
        "chunks": tokens,
        "events": tokens + 3,
        "outcome": "ok",
        "checked": "bytes" if number % 10 == 0 else "counted",
    }


def samples(process: str, seconds: int, rng: np.random.Generator) -> list[dict[str, Any]]:
    """A sample per second from 10 s before START_NS on."""
    cpu = {"orchestrator": 0.65, "gen0": 0.25, "ctx0": 0.02, "load": 0.3}[process]
    return [
        {
            "t_ns": START_NS + (second - 9) * 10**9,
            "wall_s": 1.0,
            "cpu_s": cpu * (1 + 0.02 * rng.normal()),
            "loop_cpu_s": cpu * 0.9,
            "run_queue_wait_s": abs(rng.normal(0.004, 0.002)) * (1 if process == "orchestrator" else 4),
            "lag_max_s": 0.004,
            "lag_p99_s": 0.002,
            "ticks": 100,
            "late_ticks": 0,
            "late_ticks_kernel": 0,
            "gc_pause_s": 0.0005,
            "throttled_s": 0.0,
            "steal_share": 0.0006,
            "rss_bytes": 60_000_000,
        }
        for second in range(seconds + 12)
    ]


def equality(policies: Sequence[str], changed: int = 14) -> dict[str, Any]:
    """A gate that every policy passed, the rewrite changing ``changed`` events."""
    outcome = {
        "state": "equal",
        "events": GATE_CHUNKS,
        "changed": changed,
        "expected_changes": changed,
        "first_difference": None,
    }
    return {
        "state": "equal",
        "streams": 17,
        "events": GATE_CHUNKS,
        "policies": {policy: dict(outcome) for policy in policies},
        "cases": [{"name": "plain", "endpoint": "chat", "usage": "final"}],
        "dead_path": [] if changed else list(policies),
    }


def _shared(kind: str, command: list[str], seconds: int, seed: int) -> Files:
    rng = np.random.default_rng(seed + 1)
    lag = histogram(rng.gamma(2.0, 300_000, 500).astype(int))
    late = histogram(rng.gamma(2.0, 500_000, 2_000).astype(int))
    servers = ("orchestrator", "gen0", "ctx0")
    return {
        "manifest.json": {
            "schema": "disagg-sim/manifest/1",
            "command": command,
            "kind": kind,
            "scenario": {
                "name": "seed",
                "description": "1,000 streams at 15,400 tok/s in total",
                "ctx": {"slots": 64, "cache_hit_ratio": 0.25},
                "gen": {"emission": "paced", "tok_s": 15.4, "events_per_write": 1, "tokens_per_chunk": 1},
                "orchestrator": {"usage_by": "orchestrator"},
                "load": {"arrivals": "staggered", "streams": STREAMS},
            },
            "versions": {"python": "3.12.1", "aiohttp": "3.14.5", "uvloop": "0.23.0"},
            "host": {
                "cpus": 2,
                "model": "Xeon",
                "kernel": "6.18",
                "pinning": {"orchestrator": [1], "others": [0]},
            },
            "seed": seed,
            "started": "2026-12-01T09:00:00+00:00",
            "interrupted": False,
            "failure": None,
        },
        "samples.json": {
            name: {"samples": samples(name, seconds, rng), "lag": lag, "lag_kernel": histogram([0, 1000])}
            for name in servers
        },
        "client.json": {
            "itl": histogram(rng.normal(64.9e6, 2e6, 5_000).astype(int)),
            "lateness": late,
            "lag": lag,
            "health": samples("load", seconds, rng),
            "cpu_s": 0.3 * seconds,
            "wall_s": float(seconds),
        },
        "pacing": {
            "asked_interval_s": 0.06494,
            "delivered_interval_s": 0.06495,
            "tokens_due": 100,
            "lateness": late,
        },
    }


def _count(files: Files, *, gate: bool) -> None:
    """Counters of all parties, made from the streams; with ``gate``, the servers' hold the gate's traffic too."""
    streams = files["streams.jsonl"]
    n, tokens = len(streams), sum(s["tokens"] for s in streams)
    kinds = {"role_events": n, "finish_events": 0, "usage_events": n, "done_events": n}
    counts = {"tokens": tokens, "chunks": tokens, "events": tokens + 3 * n, **kinds}
    size = counts["events"] * 250
    files["client.json"].update(
        {
            **counts,
            "bytes": size,
            "streams": {"planned": n, "started": n, "ok": n, "failed": {}, "aborted": 0},
            "start_ns": min(s["sent_ns"] for s in streams),
            "end_ns": max(s["end_ns"] for s in streams),
        }
    )
    pacing = files.pop("pacing")
    before = _servers(dict.fromkeys(counts, GATE_CHUNKS) if gate else dict.fromkeys(counts, 0), 17 if gate else 0, 0)
    after = _servers({k: v + before["gen0"][k] for k, v in counts.items()}, n + (17 if gate else 0), size)
    after["gen0"]["pacing"] = pacing
    after["ctx0"]["prefill"] = {"asked_s": 4.0, "delivered_s": 4.1, "lateness": pacing["lateness"]}
    files["counters.json"] = after
    if gate:
        files["counters_before.json"] = before


def _servers(counts: Mapping[str, int], streams: int, size: int) -> dict[str, Any]:
    lives = {"started": streams, "live": 0, "ended": {"complete": streams}}
    policy = {"offered": counts["events"], "unchanged": counts["events"] - 14, "changed": 14, "parsed": 20}
    relayed = {name: count for name, count in counts.items() if name != "tokens"}
    return {
        "gen0": {"requests": streams, "streams": lives, "answers": {"started": 0}, **counts, "bytes": size},
        "ctx0": {"requests": streams, "answered": streams},
        "orchestrator": {
            "requests": streams,
            "answers": 0,
            "streams": lives,
            "reads": counts["events"],
            **relayed,
            "bytes_in": size,
            "bytes_out": size,
            "policies": {"filter-off": policy, "filter-on": policy},
        },
    }
