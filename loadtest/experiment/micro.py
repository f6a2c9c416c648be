"""``disagg-sim micro``: what each policy costs per chunk, timed alone, by size of the chunk and its usage.

Every process is started anew, has the orchestrator's CPU to itself, times one policy with one kind of usage, and
ends; the next one times another, so that what the machine does meanwhile falls on all alike.  A cell is the median
over its processes, with the lowest and the highest beside it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import random
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from loadtest.experiment.options import AT_TOK_S
from loadtest.experiment.processes import ChildFailedError, ChildProcess
from loadtest.experiment.rundir import RunDirectory
from loadtest.experiment.steps import progress
from sim.core.settings import SettingError

__all__ = ["check", "fold", "measure", "read"]

SEED_FIGURES = {"parse_us_per_chunk": 3.46, "prefilter_us_per_chunk": 0.25, "source": "TensorRT-LLM PR #15042"}
"""What the change that this project's question comes from says of itself, on its own machine."""

MAX_WAIT_SHARE = 0.05  # of a process's time, runnable but not running; above it the table says so
END_TIMEOUT_S = 30.0
_ONE_SIZE = "final"  # the closing event has the size it has
_MODULE = [sys.executable, "-m", "sim.orchestrator.chunk_timer"]


def check(policies: Sequence[str]) -> None:
    """SettingError if a policy is named twice; whether it is known, the timed process says."""
    twice = next((policy for policy in policies if policies.count(policy) > 1), None)
    if twice is not None:
        raise SettingError(f"POLICY: {twice} is named twice")


async def measure(options: argparse.Namespace, run: RunDirectory, cpus: frozenset[int]) -> None:
    """Fill ``samples.jsonl`` of ``run``, process by process, in an order of its own each time round.

    ChildFailedError when a policy is not known (before anything is timed) or a process fails.  Cancelled, it
    leaves what was measured, as the manifest says.
    """
    rng = random.Random(options.seed)
    samples: list[dict[str, Any]] = []
    try:
        known = await _answer(run, ["--check", *options.policies], cpus)
        policies = options.policies or known["policies"]
        run.save_manifest(policies=policies)
        for number in range(options.processes):
            progress(f"process {number + 1} of {options.processes} for each of {len(policies)} policies")
            order = list(itertools.product(policies, options.usage))
            rng.shuffle(order)
            for policy, usage in order:
                sizes = options.sizes[:1] if usage == _ONE_SIZE else options.sizes
                argv = [policy, "--usage", usage, "--seed", str(number), "--sizes", *map(str, sizes)]
                answer = await _answer(run, argv, cpus)
                samples += [{"policy": policy, "usage": usage, "process": number, **f} for f in answer["figures"]]
    except asyncio.CancelledError:
        run.save_manifest(interrupted=True)
        progress("interrupted: keeping what was measured")
        raise
    except ChildFailedError as failure:
        run.save_manifest(failure=str(failure))
        raise
    finally:
        run.write_lines("samples.jsonl", samples)


async def _answer(run: RunDirectory, argv: Sequence[str], cpus: frozenset[int]) -> dict[str, Any]:
    """What one process prints; it has ended when this returns."""
    log = run.path / "micro.log"
    child = await ChildProcess.start("the timed process", [*_MODULE, *argv], log, cpus)
    try:
        await asyncio.wait_for(child.process.wait(), END_TIMEOUT_S)
    except TimeoutError:
        raise ChildFailedError(f"{child.name} did not end within {END_TIMEOUT_S:g} s of its answer") from None
    finally:
        await child.stop()
    if child.process.returncode:
        raise child.failure()
    with contextlib.suppress(FileNotFoundError):
        log.unlink()  # only the last words of one that failed are of use
    return child.addresses


def read(run_dir: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The manifest and the samples of a finished or interrupted run.  OSError or ValueError if they can't be read."""
    manifest = json.loads((run_dir / "manifest.json").read_text())
    return manifest, [json.loads(line) for line in (run_dir / "samples.jsonl").read_text().splitlines()]


def fold(manifest: Mapping[str, Any], samples: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """``result.json``: one cell for each policy, usage and size that was measured, in the order asked for."""
    cells = []
    for usage, policy in itertools.product(manifest["usage"], manifest["policies"]):
        for size in manifest["sizes"]:
            own = [s for s in samples if (s["policy"], s["usage"], s["size"]) == (policy, usage, size)]
            if own:
                cells.append({"policy": policy, "usage": usage, "size": size, **_cell(own, once=usage == _ONE_SIZE)})
    waits = [sample["run_queue_wait_share"] for sample in samples]
    return {
        "schema": "disagg-sim/micro/1",
        "interrupted": manifest["interrupted"],
        "usage": manifest["usage"],
        "at_tok_s": AT_TOK_S,
        "seed_figures": SEED_FIGURES,
        "processes": {
            "planned": manifest["processes"],
            "measured": len({(s["policy"], s["usage"], s["process"]) for s in samples}),
            "run_queue_wait_share": {"median": median(waits), "high": max(waits)} if waits else None,
            "waited": sum(wait > MAX_WAIT_SHARE for wait in waits) / len(waits) if waits else None,
        },
        "cells": cells,
    }


def _cell(samples: Sequence[Mapping[str, Any]], *, once: bool) -> dict[str, Any]:
    """``once``: an event that a stream has one of has no share of a core at a rate of tokens."""
    costs = [sample["us_per_chunk"] for sample in samples]
    middle = median(costs)
    return {
        "chunk_bytes": samples[0]["chunk_bytes"],
        "processes": len(samples),
        "us_per_chunk": {"median": middle, "low": min(costs), "high": max(costs)},
        "core_share_at_rate": None if once else middle * 1e-6 * AT_TOK_S,
        "changed_share": samples[0]["changed_share"],
        "run_queue_wait_share": max(sample["run_queue_wait_share"] for sample in samples),
    }
