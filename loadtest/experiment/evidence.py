"""The facts of a run, for its verdict: drawn from figures already folded and from the raw blocks.

Nothing is judged here; limits and sentences are `verdict`'s.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from loadtest.experiment.blocks import Block
from loadtest.experiment.client_figures import send_lateness_s
from loadtest.experiment.facts import EqualityFacts, EvidenceFacts, Facts, ProcessFacts, RoundFacts, StreamFacts
from loadtest.experiment.process_figures import LOAD, Window, role_of, samples_by_process
from loadtest.experiment.reconcile import Row, mismatches
from loadtest.experiment.rounds import JudgedRounds
from loadtest.experiment.run_files import RunFiles
from loadtest.experiment.stats import Estimate, quantiles
from loadtest.experiment.thresholds import LATE_SECOND_S
from sim.core.histogram import LogHistogram

__all__ = ["equality_facts", "gather", "round_facts"]

_PASSES_ALL = "verbatim"
"""Changes nothing by design: gen reports ctx's usage for it, so for this policy it is no finding."""


def gather(
    files: RunFiles,
    window: Window | None,
    processes: Mapping[str, Mapping[str, Any]],
    client: Mapping[str, Any],
    rows: list[Row] | None,
    judged: JudgedRounds | None = None,
    rounds: RoundFacts | None = None,
    equality: EqualityFacts | None = None,
    other_starts: Mapping[str, str] | None = None,
) -> Facts:
    """Everything the verdict looks at; ``rows`` are `reconcile`'s."""
    blocks = [] if judged is None else judged.blocks
    streams = client["streams"]
    return Facts(
        interrupted=bool(files.manifest.get("interrupted")),
        failure=files.manifest.get("failure"),
        evidence=_left(files, client["streams"], rows),
        processes=tuple(_process(name, figures, files, window, blocks) for name, figures in processes.items()),
        steal_share=_steal(blocks, processes),
        kernel_lag_share=_kernel_share(blocks, processes),
        streams=StreamFacts(
            started=streams["started"], failed=dict(streams["failed"]), aborted=streams.get("aborted", 0)
        ),
        mismatches=mismatches(rows),
        rounds=rounds,
        equality=equality,
        other_starts=dict(other_starts or {}),
        lost_workers=_lost_workers(files),
        notes=tuple(files.manifest.get("notes", ())),
    )


def _lost_workers(files: RunFiles) -> dict[str, tuple[int, int]]:
    workers = (files.client or {}).get("workers", [])
    return {f"{LOAD}{w['index']}": (w["lost"], w["planned"]) for w in workers if w["gone"]}


_SERVERS = ("orchestrator", "gen", "ctx")


def _left(files: RunFiles, streams: Mapping[str, Any], rows: list[Row] | None) -> EvidenceFacts:
    """What of the run's evidence is there; a server is known by any of its files, and every role has one."""
    known = {*files.counters, *files.samples, *(files.counters_before or {})}
    named = {role: sorted(name for name in known if role_of(name) == role) or [role] for role in _SERVERS}
    servers = [name for role in _SERVERS for name in named[role]]
    replies = next((row.counts for row in rows or () if row.what == "replies"), {})
    return EvidenceFacts(
        client=files.client is not None,
        unsampled=tuple(name for name in servers if not files.samples.get(name, {}).get("samples")),
        uncounted=tuple(name for name in servers if not files.counters.get(name)),
        unreconciled=_unreconciled(files, rows),
        ended=sum(streams.get(how, 0) for how in ("ok", "aborted", "cancelled")) + sum(streams["failed"].values()),
        servers_started=max((count for party, count in replies.items() if party != "client"), default=None),
    )


def _unreconciled(files: RunFiles, rows: list[Row] | None) -> str | None:
    if files.client is None:
        return "client.json is missing, so what the client counted is not known"
    if rows is None:
        return "counters_before.json is missing, so the equality gate's share of the servers' counters is not known"
    return None if rows else "there are no counters of two parties to compare"


def round_facts(
    files: RunFiles, judged: JudgedRounds, arms: Mapping[str, Mapping[str, Any]], control: Estimate | None
) -> RoundFacts:
    """What the rounds say of themselves; ``arms`` are the result's."""
    spin_by_arm, spin_error = _spin_by_arm(judged)
    first = next(iter(arms.values()))["cpu_us_per_chunk"]
    return RoundFacts(
        planned=judged.planned,
        used=len(judged.used),
        void=judged.void,
        void_by_arm={arm: sum(counts.values()) for arm, counts in judged.void_by_arm.items()},
        control=control,
        control_mean_us=None if first is None else first["mean"],
        events_per_read=_events_per_read(judged.blocks),
        events_per_write=files.setting("gen", "events_per_write", 1),
        spin_drift=_spin_drift(judged.blocks),
        spin_by_arm=spin_by_arm,
        spin_error=spin_error,
    )


def equality_facts(files: RunFiles, policies: Sequence[str], withheld: int, differences: int) -> EqualityFacts:
    """The gate's outcome for the policies of this run."""
    gate = files.equality
    if gate is None:
        return EqualityFacts(state="not_run", withheld=withheld, differences=differences)
    differing = {
        name: _first_difference(outcome.get("first_difference"))
        for name, outcome in gate["policies"].items()
        if outcome["state"] != "equal"
    }
    return EqualityFacts(
        state=gate["state"],
        differing=differing,
        withheld=withheld,
        differences=differences,
        streams=gate["streams"],
        dead_path=tuple(name for name in gate["dead_path"] if name in policies and name != _PASSES_ALL),
    )


def _first_difference(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return "no case named"
    return f"case {found['case']}, event {found['event_index']}"


def _process(
    name: str, figures: Mapping[str, Any], files: RunFiles, window: Window | None, blocks: Sequence[Block]
) -> ProcessFacts:
    role = figures["role"]
    counters = files.counters.get(name, {})
    lateness_s, delivered = None, None
    if role == "gen":
        lateness_s, delivered = _p99(counters.get("pacing")), _delivered_share(counters.get("pacing"))
    elif role == "ctx":
        lateness_s = _p99(counters.get("prefill"))
    elif role == LOAD:
        # A ramp that ran late is over before the blocks are measured, if anything is sent during them.
        streams = [s for s in files.streams if "worker" not in s or f"{LOAD}{s['worker']}" == name]
        late = send_lateness_s(streams, window.start_ns if window and blocks else 0)
        late = late if late.size else send_lateness_s(streams)
        lateness_s = quantiles(late, [0.99])[0] if late.size else None
    by_block = role == "orchestrator" and bool(blocks)
    wall_ns = sum(block.wall_ns for block in blocks)
    return ProcessFacts(
        name=name,
        role=role,
        cpu_share=figures["cpu_share"],
        loop_cpu_share=_dearest_arm(blocks) if by_block else figures["loop_cpu_share"],
        run_queue_wait_share=sum(block.run_queue_wait_ns for block in blocks) / wall_ns
        if by_block
        else figures["run_queue_wait_share"],
        shares_cpu=role == "orchestrator" and _orchestrators_share(files),
        throttled_share=figures["throttled_share"],
        late_second_share=_late_seconds(files, name, window) if role == LOAD else None,
        lateness_p99_s=lateness_s,
        delivered_share=delivered,
    )


def _orchestrators_share(files: RunFiles) -> bool:
    """Whether the orchestrator's workers have fewer CPUs than they are."""
    cpus = files.manifest["host"].get("pinning", {}).get("orchestrator", [])
    return 0 < len(cpus) < int(files.manifest.get("orchestrator_workers", 1))


def _p99(record: Mapping[str, Any] | None) -> float | None:
    if record is None or "lateness" not in record:
        return None
    return LogHistogram.from_json(record["lateness"]).quantile_s(0.99)


def _delivered_share(pacing: Mapping[str, Any] | None) -> float | None:
    if pacing is None or not pacing.get("asked_interval_s") or not pacing.get("delivered_interval_s"):
        return None
    return float(pacing["asked_interval_s"] / pacing["delivered_interval_s"])


def _late_seconds(files: RunFiles, name: str, window: Window | None) -> float | None:
    samples = [s for s in samples_by_process(files)[name] if window is None or window.holds(s)]
    wall_s = sum(s["wall_s"] for s in samples)
    # By time, not by number: a stall of five seconds is one sample of five seconds.
    return sum(s["wall_s"] for s in samples if s["lag_max_s"] > LATE_SECOND_S) / wall_s if wall_s else None


def _dearest_arm(blocks: Sequence[Block]) -> float:
    busy: dict[str, tuple[int, int]] = {}
    for block in blocks:
        cpu_ns, wall_ns = busy.get(block.arm, (0, 0))
        busy[block.arm] = (cpu_ns + block.loop_cpu_ns, wall_ns + block.wall_ns)
    return max(cpu_ns / wall_ns for cpu_ns, wall_ns in busy.values())


def _steal(blocks: Sequence[Block], processes: Mapping[str, Mapping[str, Any]]) -> float | None:
    """Machine-wide, so any process's view will do where there are no blocks."""
    if blocks:
        return sum(block.steal_share * block.wall_ns for block in blocks) / sum(block.wall_ns for block in blocks)
    return next((figures["steal_share"] for figures in processes.values()), None)


def _kernel_share(blocks: Sequence[Block], processes: Mapping[str, Mapping[str, Any]]) -> float | None:
    lag_ns = sum(block.lag.sum_ns for block in blocks)
    if lag_ns:
        return sum(block.lag_kernel.sum_ns for block in blocks) / lag_ns
    lags = [figures["loop_lag_s"] for figures in processes.values() if figures["role"] == "orchestrator"]
    return max((lag["kernel_share"] for lag in lags if lag and lag["kernel_share"] is not None), default=None)


def _events_per_read(blocks: Sequence[Block]) -> dict[str, float]:
    """Over every block, the void ones too: a block that missed its rate is the first to batch."""
    sums: dict[str, tuple[int, int]] = {}
    for block in blocks:
        events, reads = sums.get(block.arm, (0, 0))
        sums[block.arm] = (events + block.events, reads + block.reads)
    return {arm: events / reads for arm, (events, reads) in sums.items()}


def _spin_drift(blocks: Sequence[Block]) -> float | None:
    spins = [block.spin_ns for block in blocks if block.spin_ns > 0]
    if len(spins) < _LEAST_SPINS:
        return None
    quarters = [float(np.median(quarter)) for quarter in np.array_split(spins, 4)]
    return max(quarters) / min(quarters) - 1.0


_LEAST_SPINS = 16


def _spin_by_arm(judged: JudgedRounds) -> tuple[dict[str, float], float]:
    """Each arm's median spin over that of all arms, less 1, within the rounds that count; and the standard error."""
    spins = {arm: [round_[arm].spin_ns for round_ in judged.used] for arm in judged.void_by_arm}
    together = np.array([spin for values in spins.values() for spin in values], np.float64)
    if together.size < _LEAST_SPINS or not together.all():
        return {}, 0.0
    middle = float(np.median(together))
    # 1.4826 MAD is the standard deviation, and 1.2533 of it over root n that of a median, for normal noise.
    spread = 1.4826 * float(np.median(np.abs(together - middle))) / middle
    error = 1.2533 * spread / len(judged.used) ** 0.5
    return {arm: float(np.median(values)) / middle - 1.0 for arm, values in spins.items()}, error
