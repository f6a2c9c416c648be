"""``profile.json``: a pure fold over the files of a profile's run directory, with its own verdict.

The share of a class is its share of the samples; its microseconds are that share of the CPU per chunk that the
orchestrator's ledger measured while it was sampled.  The contract is ``disagg-sim/profile/1``; keys may be added.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from loadtest.experiment import thresholds as limits
from loadtest.experiment.blocks import Block, IncompleteBlockError
from loadtest.experiment.profile_sampler import LOG_NAME, STACKS_NAME, SamplerLog, read_log
from loadtest.experiment.profile_stacks import Stack, awake, class_rows, parse_folded
from loadtest.experiment.reasons import Reason, graded
from loadtest.experiment.run_files import RunFiles
from loadtest.experiment.verdict import verdict_of

__all__ = ["ARMS", "fold_profile", "read_stacks"]

ARMS = ("unsampled", "sampled")

REST_SUSPECT = 0.15
"""A larger rest means that the table of frames does not know this engine, or this version of what it uses."""
SAMPLES_SUSPECT, SAMPLES_VOID = 400, 50
"""400 samples know a share of 30 % to within 4.5 points (95 %); 50 to within 13."""
BEHIND_VOID_S = 0.5
"""A sampler so far behind its rate samples without a pause: always where the orchestrator was let go the last time."""
DISTURBED_SUSPECT = 0.25
"""CPU per chunk while sampled against just before, less 1: the sampler, or the machine, changed what was measured."""


def read_stacks(run_dir: Path) -> list[Stack]:
    """What was sampled, waiting included; nothing if there is no file.  FoldedError for a file that is not its own."""
    path = run_dir / STACKS_NAME
    return parse_folded(path.read_text()) if path.exists() else []


def fold_profile(run_dir: Path) -> dict[str, Any]:
    """The result of the profile in ``run_dir``; FileNotFoundError without a manifest, ValueError for a broken file."""
    files, everything = RunFiles.read(run_dir), read_stacks(run_dir)
    stacks = awake(everything)
    log_path = run_dir / "logs" / LOG_NAME
    log = read_log(log_path.read_text(errors="replace") if log_path.exists() else "")
    blocks = dict(_blocks(files))
    sampled, unsampled = blocks.get("sampled"), blocks.get("unsampled")
    cost = _cpu_us_per_chunk(sampled or unsampled)
    plan = files.manifest["sampler"]
    rows = class_rows(stacks, cost)
    samples = sum(stack.count for stack in stacks)
    waiting = sum(stack.count for stack in everything) - samples
    reasons = [
        *_run_reasons(files.manifest, samples, log),
        *_block_reasons(files, sampled, unsampled),
        *_table_reasons(rows, native=plan["native"]),
    ]
    return {
        "schema": "disagg-sim/profile/1",
        "verdict": verdict_of(reasons).to_json(),
        "policy": files.manifest["policy"],
        "engine": files.setting("orchestrator", "engine", None),
        "streams": files.setting("load", "streams", None),
        "chunks_per_s": None if sampled is None else sampled.chunks / sampled.wall_ns * 1e9,
        "cpu_us_per_chunk": cost,
        "cpu_us_per_chunk_unsampled": _cpu_us_per_chunk(unsampled),
        "cpu_share": None if sampled is None else sampled.cpu_ns / sampled.wall_ns,
        "system_share": None
        if sampled is None
        else sampled.cpu_sys_s / max(1e-9, sampled.cpu_sys_s + sampled.cpu_user_s),
        "classes": rows,
        "sampler": {**plan, "samples": samples, "waiting": waiting, "errors": log.errors, "behind_s": log.behind_s},
        "scenario": files.manifest["scenario"],
        "versions": files.manifest["versions"],
        "host": files.manifest["host"],
        "command": files.manifest["command"],
    }


def _blocks(files: RunFiles) -> Iterator[tuple[str, Block]]:
    for record in files.blocks:
        try:
            yield record["arm"], Block.from_record(record)
        except IncompleteBlockError:
            continue


def _cpu_us_per_chunk(block: Block | None) -> float | None:
    return None if block is None else block.cpu_ns / block.chunks / 1e3


def _run_reasons(manifest: Mapping[str, Any], samples: int, log: SamplerLog) -> Iterator[Reason]:
    if manifest.get("failure"):
        yield Reason("failure", "void", manifest["failure"])
    if manifest.get("interrupted"):
        yield Reason(
            "interrupted", "suspect", "the run was interrupted; the figures are of what was sampled until then"
        )
    if log.behind_s > BEHIND_VOID_S:
        text = f"the sampler fell {log.behind_s:.1f} s behind its rate, so its samples are not at random moments"
        yield Reason("sampler_behind", "void", text, log.behind_s)
    if samples < SAMPLES_SUSPECT:
        state, limit = ("void", SAMPLES_VOID) if samples < SAMPLES_VOID else ("suspect", SAMPLES_SUSPECT)
        yield Reason("few_samples", state, f"{samples:,} samples are fewer than {limit}", float(samples))
    yield from (Reason("note", "note", note) for note in manifest.get("notes", ()))


def _block_reasons(files: RunFiles, sampled: Block | None, unsampled: Block | None) -> Iterator[Reason]:
    if unsampled is not None:
        # The sampler itself makes the orchestrator wait, so only the block before it tells of the machine.
        wait = unsampled.run_queue_wait_ns / unsampled.wall_ns
        pair = limits.ORCHESTRATOR_WAIT_SUSPECT, limits.ORCHESTRATOR_WAIT_VOID
        yield from graded(
            "cpu_starved",
            wait,
            *pair,
            lambda limit: f"the orchestrator was ready but not running for over {limit} of the time",
        )
    if sampled is None:
        text = "the sampled block is missing, so microseconds are of the block before it, or none"
        yield Reason("no_block", "suspect", text)
        return
    merged = sampled.events / sampled.reads / files.setting("gen", "events_per_write", 1)
    if merged > limits.BATCHING_SUSPECT:
        state = "void" if merged > limits.BATCHING_VOID else "suspect"
        text = f"{merged:.2f} events per read, all written apart: while sampled the orchestrator did not hold the load"
        yield Reason("batching", state, text, merged)
    if unsampled is not None:
        drift = abs(sampled.cpu_ns / sampled.chunks / (unsampled.cpu_ns / unsampled.chunks) - 1)
        if drift > DISTURBED_SUSPECT:
            text = f"CPU per chunk was {drift:.0%} off what it was just before the sampling"
            yield Reason("disturbed", "suspect", text, drift)


def _table_reasons(rows: Sequence[Mapping[str, Any]], *, native: bool) -> Iterator[Reason]:
    rest = next(row for row in rows if row["class"] == "rest")
    if rest["share"] is not None and rest["share"] > REST_SUSPECT:
        most = ", ".join(entry["frame"] for entry in rest["frames"][:3])
        text = f"{rest['share']:.0%} of the samples fit no class but rest, most in {most}"
        yield Reason("large_rest", "suspect", text, rest["share"])
    if not native:
        text = "sampled without C frames: reading from the socket is in loop, not in recv"
        yield Reason("no_native_frames", "note", text)
