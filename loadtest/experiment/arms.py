"""Figures of the arms and of their differences, from the rounds that count.

Per arm the sums over its blocks; per difference the paired statistics over rounds.  An arm's own interval holds
the drift of the machine, a difference's does not: compare arms by their difference, never by two intervals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from loadtest.experiment.blocks import Block
from loadtest.experiment.process_figures import lag_json
from loadtest.experiment.rounds import CONTROL_SUFFIX, Arm, JudgedRounds
from loadtest.experiment.stats import Estimate, FloatArray, marginal_costs, mean_over_rounds, paired_difference
from sim.core.histogram import LogHistogram

__all__ = ["arm_figures", "cpu_split", "difference_json", "pairs_of", "regression", "values_us"]


def values_us(judged: JudgedRounds, arm: str) -> FloatArray:
    """CPU us per chunk of one arm, a value per round that counts."""
    return np.array([round_[arm].cpu_us_per_chunk for round_ in judged.used], np.float64)


def pairs_of(arms: Sequence[Arm]) -> tuple[list[tuple[str, str]], tuple[str, str] | None]:
    """The differences to give, in the order of the command line, and the A/A pair if there is one."""
    names = [arm.name for arm in arms]
    real = [name for name in names if not name.endswith(CONTROL_SUFFIX)]
    control = next((name for name in names if name.endswith(CONTROL_SUFFIX)), None)
    pair = None if control is None else (control.removesuffix(CONTROL_SUFFIX), control)
    return list(combinations(real, 2)), pair


def arm_figures(arm: Arm, judged: JudgedRounds, at_chunks_per_s: float, rng: np.random.Generator) -> dict[str, Any]:
    """One entry of ``arms`` in the result; figures of an arm that no round is left of are None."""
    blocks = [round_[arm.name] for round_ in judged.used]
    figures: dict[str, Any] = {
        "policy": arm.policy,
        "rounds": len(blocks),
        "chunks": sum(block.chunks for block in blocks),
        "requests": sum(block.requests for block in blocks),
    }
    if not blocks:
        return {**figures, **dict.fromkeys(_NEEDS_BLOCKS)}
    cost = mean_over_rounds(values_us(judged, arm.name), rng)
    wall_ns = sum(block.wall_ns for block in blocks)
    return {
        **figures,
        "cpu_us_per_chunk": {
            "mean": cost.value,
            "ci95": _pair(cost.ci95),
            "by_round": values_us(judged, arm.name).tolist(),
        },
        "core_share_at_rate": cost.value * at_chunks_per_s / 1e6,
        "chunks_per_s": sum(block.chunks for block in blocks) * 1e9 / wall_ns,
        "events_per_read": sum(block.events for block in blocks) / sum(block.reads for block in blocks),
        "loop_lag_s": _pooled_lag(blocks),
        "late_ticks": sum(block.late_ticks for block in blocks),
        "late_ticks_kernel": sum(block.late_ticks_kernel for block in blocks),
        "loop_cpu_share": sum(block.loop_cpu_ns for block in blocks) / wall_ns,
        "run_queue_wait_share": sum(block.run_queue_wait_ns for block in blocks) / wall_ns,
        "gc_pause_share": sum(block.gc_pause_ns for block in blocks) / wall_ns,
        "spin_us": float(np.median([block.spin_ns for block in blocks])) / 1e3,
        "policy_events": _policy_events(blocks),
    }


_NEEDS_BLOCKS = (
    "cpu_us_per_chunk",
    "core_share_at_rate",
    "chunks_per_s",
    "events_per_read",
    "loop_lag_s",
    "late_ticks",
    "late_ticks_kernel",
    "loop_cpu_share",
    "run_queue_wait_share",
    "gc_pause_share",
    "spin_us",
    "policy_events",
)


def _policy_events(blocks: Sequence[Block]) -> dict[str, int | None]:
    """What the policy did inside the blocks: live streams, whose usage mostly comes after the last block."""
    parsed = [block.parsed for block in blocks if block.parsed is not None]
    unchanged, changed = sum(block.unchanged for block in blocks), sum(block.changed for block in blocks)
    return {
        "offered": unchanged + changed,
        "unchanged": unchanged,
        "changed": changed,
        "parsed": sum(parsed) if len(parsed) == len(blocks) else None,
    }


def _pooled_lag(blocks: Sequence[Block]) -> dict[str, float | None] | None:
    lag, kernel = LogHistogram(), LogHistogram()
    for block in blocks:
        lag.merge(block.lag)
        kernel.merge(block.lag_kernel)
    return lag_json(lag, kernel)


def difference_json(
    pair: tuple[str, str],
    estimate: Estimate | None,
    base_us: float | None,
    at_chunks_per_s: float,
    withheld: str | None,
) -> dict[str, Any]:
    """One entry of ``differences``; ``withheld`` says why no figure is given, ``base_us`` is the mean of arm b."""
    head: dict[str, Any] = {"a": pair[0], "b": pair[1], "withheld": withheld}
    if estimate is None or withheld is not None:
        return {**head, "cpu_us_per_chunk": None, "core_share_at_rate": None, "relative": None, "significant": None}
    per_core = at_chunks_per_s / 1e6
    ci95 = _pair(estimate.ci95)
    return {
        **head,
        "cpu_us_per_chunk": {
            "estimate": estimate.value,
            "ci95": ci95,
            "ci999": _pair(estimate.ci999),
            "mde": estimate.mde,
            "standard_error": estimate.standard_error,
        },
        "core_share_at_rate": {
            "estimate": estimate.value * per_core,
            "ci95": None if ci95 is None else [bound * per_core for bound in ci95],
        },
        "relative": estimate.value / base_us if base_us else None,
        "significant": estimate.significant,
    }


def regression(
    arms: Sequence[Arm], judged: JudgedRounds, withheld: Mapping[tuple[str, str], str], rng: np.random.Generator
) -> dict[str, Any] | None:
    """Slopes of CPU on chunks and on requests where requests came inside blocks; None where they can't be told apart.

    With streams that come and go, CPU per chunk holds the requests' CPU too; the slopes take them apart.
    """
    names = [arm.name for arm in arms]
    table = [[round_[name] for name in names] for round_ in judged.used]
    if not table or not any(block.requests for row in table for block in row):
        return None
    slopes = marginal_costs(
        [[block.chunks for block in row] for row in table],
        [[block.requests for block in row] for row in table],
        [[block.cpu_ns / 1e3 for block in row] for row in table],
    )
    if slopes is None:
        return None
    column = {name: slopes[:, i] for i, name in enumerate(names)}
    return {
        "cpu_us_per_chunk": {name: _slope(mean_over_rounds(values, rng)) for name, values in column.items()},
        "cpu_us_per_request": _slope(mean_over_rounds(slopes[:, -1], rng)),
        "differences": [
            {"a": a, "b": b, **_slope(paired_difference(column[a], column[b], rng))}
            for a, b in pairs_of(arms)[0]
            if (a, b) not in withheld
        ],
    }


def _slope(estimate: Estimate) -> dict[str, Any]:
    return {"estimate": estimate.value, "ci95": _pair(estimate.ci95)}


def cpu_split(blocks: Sequence[Block]) -> dict[str, float] | None:
    """User and system share of CPU, pooled over every block: the kernel samples the split at its tick."""
    user_s, sys_s = sum(block.cpu_user_s for block in blocks), sum(block.cpu_sys_s for block in blocks)
    total_s = user_s + sys_s
    return {"user_share": user_s / total_s, "sys_share": sys_s / total_s} if total_s else None


def _pair(bounds: tuple[float, float] | None) -> list[float] | None:
    return None if bounds is None else list(bounds)
