"""``result.json``: a pure fold over the files of a run directory.

No clock and no randomness of its own: intervals are drawn with the run's seed, so folding twice gives the same
result, byte for byte.  The contract is ``disagg-sim/compare/1`` and ``disagg-sim/run/1``; keys may be added.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from loadtest.experiment.arms import arm_figures, cpu_split, difference_json, pairs_of, regression, values_us
from loadtest.experiment.client_figures import client_figures
from loadtest.experiment.evidence import equality_facts, gather, round_facts
from loadtest.experiment.facts import Facts
from loadtest.experiment.memory_figures import memory_figures
from loadtest.experiment.process_figures import measured_window, process_figures, role_of
from loadtest.experiment.reconcile import reconcile, reconciliation_json
from loadtest.experiment.request_cost import RUN_HAS_NO_COUNTS, request_cost, without_request_cost
from loadtest.experiment.rounds import Arm, JudgedRounds, RoundRules, judge_rounds
from loadtest.experiment.run_files import FURTHER_STARTS, KINDS, RunFiles
from loadtest.experiment.server_counters import role_total, streams_by_server
from loadtest.experiment.starts import across_starts
from loadtest.experiment.stats import Estimate, paired_difference
from loadtest.experiment.verdict import judge

__all__ = ["analyze", "arms_of", "judged_rounds"]


def analyze(run_dir: Path) -> dict[str, Any]:
    """The result of the run in ``run_dir``.

    FileNotFoundError without a manifest; ValueError for a file that is not what it should be, and for a directory
    of a kind that measures nothing.
    """
    files = RunFiles.read(run_dir)
    if files.kind not in KINDS:
        raise ValueError(f"{run_dir} is of kind {files.kind}, which measures nothing: there is nothing to report")
    if files.kind == "compare":
        starts = sorted((path.parent for path in run_dir.glob(f"{FURTHER_STARTS}/manifest.json")), key=_start_number)
        return _compare(files, {path.name: analyze(path) for path in starts})
    return _run(files)


def _start_number(path: Path) -> tuple[int, str]:
    """Orders start-2 before start-10."""
    return len(path.name), path.name


def arms_of(files: RunFiles) -> list[Arm]:
    """The arms of a compare, in the order of the command line."""
    return [Arm(arm["name"], arm["policy"]) for arm in files.manifest["arms"]]


def judged_rounds(files: RunFiles) -> JudgedRounds:
    """The rounds of a compare and which of them count."""
    manifest = files.manifest
    asked = manifest.get("asked_chunks_per_s")
    lockstep = files.setting("gen", "emission") == "lockstep" and asked
    rules = RoundRules(
        measured_s=manifest["block_s"] - manifest["settle_s"],
        asked_chunks_per_s=asked,
        step_s=files.setting("load", "streams", 0) / asked if lockstep else 0.0,
    )
    return judge_rounds(files.blocks, [arm["name"] for arm in manifest["arms"]], manifest["rounds_planned"], rules)


def _compare(files: RunFiles, further: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    arms, judged = arms_of(files), judged_rounds(files)
    rng = np.random.default_rng(files.manifest["seed"])
    at_chunks_per_s = files.manifest["at_tok_s"] / files.setting("gen", "tokens_per_chunk", 1)
    figures = {arm.name: arm_figures(arm, judged, at_chunks_per_s, rng) for arm in arms}
    for name, figure in figures.items():
        # A generator of its own: the other intervals are what they were without it.
        figure |= request_cost([round_[name] for round_ in judged.used], np.random.default_rng(files.manifest["seed"]))
    pairs, control_pair = pairs_of(arms)
    withheld = {pair: why for pair in pairs if (why := _withheld(files, arms, pair))}

    def difference(pair: tuple[str, str], estimate: Estimate | None) -> dict[str, Any]:
        base = figures[pair[1]]["cpu_us_per_chunk"]
        why = withheld.get(pair) or (None if estimate else "no round counts")
        return difference_json(pair, estimate, base and base["mean"], at_chunks_per_s, why)

    differences = [difference(pair, _estimate(judged, pair, rng)) for pair in pairs]
    control = None if control_pair is None else _estimate(judged, control_pair, rng)
    window = measured_window(files, judged.blocks)
    processes, client = process_figures(files, window), client_figures(files)
    rows = reconcile(files)
    names = [name for arm in arms for name in (arm.name, arm.policy)]
    equality = equality_facts(files, names, len(withheld), len(pairs))
    facts = gather(
        files,
        window,
        processes,
        client,
        rows,
        judged,
        round_facts(files, judged, figures, control),
        equality,
        {name: result["verdict"]["state"] for name, result in further.items()},
    )
    result = {
        "schema": "disagg-sim/compare/1",
        "verdict": judge(facts).to_json(),
        "equality": files.equality or {"state": "not_run", "policies": {}, "dead_path": []},
        "dead_path": list(equality.dead_path),
        **{key: files.manifest[key] for key in ("at_tok_s", "block_s", "settle_s")},
        "arms": figures,
        "differences": differences,
        "control": None if control_pair is None else difference(control_pair, control),
        "rounds": {
            "planned": judged.planned,
            "used": len(judged.used),
            "void": judged.void,
            "void_by_arm": judged.void_by_arm,
        },
        "regression": regression(arms, judged, withheld, rng),
        "cpu_split": cpu_split(judged.blocks),
        **_shared(files, facts, processes, client, reconciliation_json(rows)),
    }
    return {**result, "restarts": across_starts([result, *further.values()]) if further else None}


def _run(files: RunFiles) -> dict[str, Any]:
    window = measured_window(files, ())
    processes, client = process_figures(files, window), client_figures(files)
    rows = reconcile(files)
    facts = gather(files, window, processes, client, rows)
    seconds = None if window is None else (window.end_ns - window.start_ns) / 1e9
    return {
        "schema": "disagg-sim/run/1",
        "verdict": judge(facts).to_json(),
        "measured_s": seconds,
        "orchestrator": _relay_figures(files, seconds),
        "memory": memory_figures(files, window),
        **_shared(files, facts, processes, client, reconciliation_json(rows)),
    }


def _shared(
    files: RunFiles,
    facts: Facts,
    processes: Mapping[str, Any],
    client: Mapping[str, Any],
    reconciliation: Mapping[str, Any],
) -> dict[str, Any]:
    orchestrator = role_total(files.counters, "orchestrator")
    relays = [process for process in facts.processes if process.role == "orchestrator"]
    waits = [relay.run_queue_wait_share for relay in relays if relay.run_queue_wait_share is not None]
    return {
        "machine": {
            "orchestrator_run_queue_wait_share": max(waits, default=None),
            "steal_share": facts.steal_share,
            "kernel_lag_share": facts.kernel_lag_share,
        },
        "client": client,
        "processes": processes,
        "reconciliation": reconciliation,
        "policies": orchestrator.get("policies", {}),
        **{key: files.manifest[key] for key in ("command", "started", "scenario", "seed", "versions", "host")},
    }


def _relay_figures(files: RunFiles, seconds: float | None) -> dict[str, Any]:
    """What the relay did over its whole life; CPU from its samples, so a run's first second is not in it."""
    counters = role_total(files.counters, "orchestrator")
    chunks, events, reads = (counters.get(key) for key in ("chunks", "events", "reads"))
    samples = [
        sample
        for name, record in files.samples.items()
        if role_of(name) == "orchestrator"
        for sample in record.get("samples", [])
    ]
    cpu_s = sum(sample["cpu_s"] for sample in samples) if samples else None
    streams = streams_by_server(files.counters, "orchestrator")
    return {
        "chunks": chunks,
        "events": events,
        "reads": reads,
        "requests": counters.get("requests"),
        "cpu_s": cpu_s,
        "cpu_us_per_chunk": cpu_s * 1e6 / chunks if chunks and cpu_s is not None else None,
        **without_request_cost(RUN_HAS_NO_COUNTS),
        "events_per_read": events / reads if events and reads else None,
        "chunks_per_s": chunks / seconds if chunks and seconds else None,
        "streams_by_worker": streams if len(streams) > 1 else None,
    }


def _estimate(judged: JudgedRounds, pair: tuple[str, str], rng: np.random.Generator) -> Estimate | None:
    if not judged.used:
        return None
    return paired_difference(values_us(judged, pair[0]), values_us(judged, pair[1]), rng)


def _withheld(files: RunFiles, arms: list[Arm], pair: tuple[str, str]) -> str | None:
    """Why there is no claim about a pair's speed: the gate did not find both policies' output right."""
    gate = files.equality
    if gate is None:
        return "the equality gate did not run"
    policy_of = {arm.name: arm.policy for arm in arms}
    for name in pair:
        outcome = gate["policies"].get(name) or gate["policies"].get(policy_of[name])
        if outcome is None or outcome["state"] != "equal":
            return f"the output of {name} differs from the reference"
    return None
