"""Can this run be believed?  Valid, suspect or void, with reasons, before any figure.

A rule looks at facts and gives reasons; it never looks at whether a result is welcome.  Rules stand in order of
weight, and so do the reasons of a verdict: void before suspect before notes, then by rule.

Pure.  Gathering the facts is `evidence`, the limits are in `thresholds`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from loadtest.experiment import thresholds as limits
from loadtest.experiment.facts import Facts
from loadtest.experiment.process_rules import process_reasons
from loadtest.experiment.reasons import STATES, Reason, graded, percent

__all__ = ["Verdict", "judge", "verdict_of"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """``state`` is valid, suspect or void; a note does not change it."""

    state: str
    reasons: tuple[Reason, ...]

    def to_json(self) -> dict[str, Any]:
        """As result.json holds it."""
        return {"state": self.state, "reasons": [reason.to_json() for reason in self.reasons]}


def judge(facts: Facts) -> Verdict:
    """Hold the facts against every rule."""
    return verdict_of(reason for rule in RULES for reason in rule(facts))


def verdict_of(found: Iterable[Reason]) -> Verdict:
    """The reasons by weight, and the state that the heaviest gives."""
    reasons = sorted(found, key=lambda reason: STATES.index(reason.state))
    worst = reasons[0].state if reasons else "note"
    return Verdict("valid" if worst == "note" else worst, tuple(reasons))


def _equality(facts: Facts) -> Iterator[Reason]:
    gate = facts.equality
    if gate is None or gate.state == "equal":
        return
    if gate.state == "not_run":
        yield Reason("equality_not_run", "suspect", "the equality gate did not run: differences are withheld")
    else:
        state = "void" if gate.withheld == gate.differences else "suspect"
        for policy, first in gate.differing.items():
            text = f"the output of {policy} differs from the reference: no claim about its speed ({first})"
            yield Reason("equality_differs", state, text)


def _missing(facts: Facts) -> Iterator[Reason]:
    left, streams = facts.evidence, facts.streams
    if not left.client:
        text = "client.json is missing: the load ended before it wrote what it had counted, and what the client saw"
        yield Reason("client_missing", "void", text)
    elif streams is not None and not streams.started:
        yield Reason("no_streams", "void", "no stream was started, so nothing was measured")
    if left.unsampled:
        text = f"no per-second samples of {', '.join(left.unsampled)}: CPU, waits and lag there are not known"
        yield Reason("samples_missing", "suspect", text)
    if left.uncounted:
        text = f"no counters of {', '.join(left.uncounted)}: what was relayed or generated there is not known"
        yield Reason("counters_missing", "suspect", text)
    if left.unreconciled is not None:
        text = f"counters could not be held against one another: {left.unreconciled}"
        yield Reason("not_reconciled", "suspect", text)
    if left.servers_started is not None and left.ended < left.servers_started:
        text = f"only {left.ended:,} of the {left.servers_started:,} streams that the servers started have an outcome"
        yield Reason("streams_without_end", "suspect", text, float(left.servers_started - left.ended))
    if streams is not None and streams.aborted and not facts.interrupted:
        text = f"{streams.aborted:,} streams were aborted before their end, though nobody interrupted the run"
        yield Reason("streams_aborted", "suspect", text, float(streams.aborted))


def _mismatches(facts: Facts) -> Iterator[Reason]:
    if not facts.mismatches:
        return
    rows, gaps, worst = [], [], 0.0
    for found in facts.mismatches:
        low, high = min(found.counts.values()), max(found.counts.values())
        rows.append(f"{found.what} ({', '.join(f'{party} {n:,}' for party, n in found.counts.items())})")
        gaps.append(high - low)
        worst = max(worst, (high - low) / high)
    excused = facts.interrupted or facts.lost_workers
    state = "void" if worst > limits.MISMATCH_VOID and not excused else "suspect"
    yield Reason("counters_differ", state, f"counters are not equal: {'; '.join(rows)}", float(max(gaps)))


def _failed_streams(facts: Facts) -> Iterator[Reason]:
    streams = facts.streams
    if streams is None or not streams.started:
        return
    failed = sum(streams.failed.values())
    reasons = ", ".join(f"{reason} {n:,}" for reason, n in sorted(streams.failed.items(), key=lambda x: -x[1]))
    text = f"{failed:,} of {streams.started:,} streams failed a check: {reasons}"
    yield from graded("streams_failed", failed / streams.started, 0.0, limits.FAILED_STREAMS_VOID, lambda _: text)


def _steal(facts: Facts) -> Iterator[Reason]:
    steal = facts.steal_share
    yield from graded(
        "steal",
        steal,
        limits.STEAL_SUSPECT,
        limits.STEAL_VOID,
        lambda limit: f"the hypervisor took {percent(steal or 0)} of the CPU time away (limit {limit})",
    )


def _control(facts: Facts) -> Iterator[Reason]:
    rounds = facts.rounds
    if rounds is None or rounds.used < 2:
        return
    control = rounds.control
    if control is not None and control.ci999 is not None and not control.ci999[0] <= 0.0 <= control.ci999[1]:
        bias = abs(control.value) / rounds.control_mean_us if rounds.control_mean_us else 0.0
        text = (
            f"A/A control: the same policy against itself differs by {control.value:+.2f} us per chunk, 99.9 % "
            f"interval [{control.ci999[0]:.2f}, {control.ci999[1]:.2f}]: the harness favours an arm"
        )
        yield Reason(
            "control_excludes_zero", "void" if bias > limits.CONTROL_BIAS_VOID else "suspect", text, control.value
        )


def _too_few_rounds(facts: Facts) -> Iterator[Reason]:
    rounds = facts.rounds
    if rounds is None or rounds.used >= limits.ROUNDS_SUSPECT:
        return
    void = rounds.used < limits.ROUNDS_VOID
    limit = limits.ROUNDS_VOID if void else limits.ROUNDS_SUSPECT
    why = ", ".join(f"{reason.replace('_', ' ')} {n}" for reason, n in rounds.void.items())
    text = f"too few rounds: {rounds.used} of {rounds.planned} count (at least {limit} needed)"
    text = f"{text}; void: {why}" if why else text
    yield Reason("too_few_rounds", "void" if void else "suspect", text, float(rounds.used))


def _batching(facts: Facts) -> Iterator[Reason]:
    rounds = facts.rounds
    if rounds is None or not rounds.events_per_read:
        return
    arm, most = max(rounds.events_per_read.items(), key=lambda x: x[1])
    yield from graded(
        "batching",
        most / rounds.events_per_write,
        limits.BATCHING_SUSPECT,
        limits.BATCHING_VOID,
        lambda _: (
            f"overload turned into batching: {most:.2f} events per read under {arm}, where gen writes "
            f"{rounds.events_per_write} at once; a chunk then costs less than it would"
        ),
    )
    least_arm, least = min(rounds.events_per_read.items(), key=lambda x: x[1])
    if most / least - 1.0 > limits.BATCHING_BY_ARM_SUSPECT:
        text = (
            f"events per read differ by arm ({arm} {most:.2f}, {least_arm} {least:.2f}) over all blocks, the void ones "
            "too: the arms did unlike work"
        )
        yield Reason("batching_by_arm", "suspect", text, most / least - 1.0)


def _void_imbalance(facts: Facts) -> Iterator[Reason]:
    rounds = facts.rounds
    begun = 0 if rounds is None else rounds.planned - rounds.void.get("not_run", 0)
    if rounds is None or not begun or len(rounds.void_by_arm) < 2:
        return
    arm, most = max(rounds.void_by_arm.items(), key=lambda x: x[1])
    least_arm, least = min(rounds.void_by_arm.items(), key=lambda x: x[1])
    if most - least >= limits.VOID_GAP_LEAST_BLOCKS and (most - least) / begun > limits.VOID_GAP_SUSPECT:
        text = f"voids are out of balance: {most} blocks of {arm}, {least} of {least_arm}; the rest may favour {arm}"
        yield Reason("void_imbalance", "suspect", text, (most - least) / begun)


def _yardstick(facts: Facts) -> Iterator[Reason]:
    rounds = facts.rounds
    if rounds is None:
        return
    drift = rounds.spin_drift
    yield from graded(
        "spin_drift",
        drift,
        limits.SPIN_DRIFT_SUSPECT,
        limits.SPIN_DRIFT_VOID,
        lambda limit: f"the machine's own speed moved by {percent(drift or 0)} during the run (limit {limit})",
    )
    for arm, gap in rounds.spin_by_arm.items():
        if abs(gap) > max(limits.SPIN_BY_ARM_SUSPECT, limits.SPIN_BY_ARM_LEAST_ERRORS * rounds.spin_error):
            text = f"the machine ran {percent(abs(gap))} {'slower' if gap > 0 else 'faster'} in the blocks of {arm}"
            yield Reason("spin_by_arm", "suspect", text, gap)


def _broken_off(facts: Facts) -> Iterator[Reason]:
    if facts.failure is not None:
        yield Reason("process_failed", "void", f"{facts.failure}; what was measured until then is kept")


def _interrupted(facts: Facts) -> Iterator[Reason]:
    if facts.interrupted:
        yield Reason("interrupted", "suspect", "the run was interrupted; this is what was measured until then")
    for name, state in facts.other_starts.items():
        if state in STATES[:2]:
            yield Reason("other_start", "suspect", f"a further process start, {name}, is {state}")


def _notes(facts: Facts) -> Iterator[Reason]:
    gate = facts.equality
    for policy in () if gate is None else gate.dead_path:
        text = (
            f"dead path: over the equality gate's {gate.streams if gate else 0} complete streams {policy}'s rewrite "
            "changed 0 events, so the policy sits on a dead path: what it costs is paid for nothing"
        )
        yield Reason("dead_path", "note", text, 0.0)
    share = facts.kernel_lag_share
    if share is not None and share > limits.KERNEL_LAG_NOTE:
        text = f"{percent(share)} of the loop's lateness was the kernel's: read lag as the machine's, not the code's"
        yield Reason("kernel_lag", "note", text, share)
    for sentence in facts.notes:
        yield Reason("note", "note", sentence)


RULES: tuple[Callable[[Facts], Iterator[Reason]], ...] = (
    _broken_off,
    _missing,
    _equality,
    process_reasons,
    _steal,
    _mismatches,
    _failed_streams,
    _control,
    _too_few_rounds,
    _batching,
    _void_imbalance,
    _yardstick,
    _interrupted,
    _notes,
)
