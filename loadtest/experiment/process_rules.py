"""What can be wrong with a process of the run: lost, starved, throttled, saturated, late, short of its rate.

Each reason names the process, so that a verdict says *whose* fault it is.  The limits are in `thresholds`.
"""

from __future__ import annotations

from collections.abc import Iterator

from loadtest.experiment import thresholds as limits
from loadtest.experiment.facts import Facts, ProcessFacts
from loadtest.experiment.number_formats import duration
from loadtest.experiment.reasons import Reason, graded, percent

__all__ = ["process_reasons"]


def process_reasons(facts: Facts) -> Iterator[Reason]:
    """Every process held against its limits, the orchestrator first."""
    for worker, (lost, planned) in facts.lost_workers.items():
        text = f"the load's worker {worker} was lost: {lost:,} of the {planned:,} streams of its share have no outcome"
        yield Reason("worker_lost", "suspect", text, float(lost))
    order = ("orchestrator", "gen", "load", "ctx")
    for process in sorted(facts.processes, key=lambda process: order.index(process.role)):
        yield from _starved(process)
        if process.role == "orchestrator":
            yield from _saturated(process)
        else:
            yield from _too_slow(process)


def _starved(process: ProcessFacts) -> Iterator[Reason]:
    role, who = process.role, _who(process)
    own = role == "orchestrator" and not process.shares_cpu  # workers on one CPU wait for one another by design
    suspect = limits.ORCHESTRATOR_WAIT_SUSPECT if own else limits.OTHERS_WAIT_SUSPECT
    void = limits.ORCHESTRATOR_WAIT_VOID if own else limits.OTHERS_WAIT_VOID
    wait, throttled = process.run_queue_wait_share, process.throttled_share
    yield from graded(
        f"{role}_cpu_starvation",
        wait,
        suspect,
        void,
        lambda limit: (
            f"CPU starvation: {who} was ready to run, and was not running, {percent(wait or 0)} of the time "
            f"(limit {limit})"
        ),
    )
    yield from graded(
        f"{role}_throttled",
        throttled,
        limits.THROTTLED_SUSPECT,
        limits.THROTTLED_VOID,
        lambda limit: f"a CPU quota held {who} back {percent(throttled or 0)} of the time (limit {limit})",
    )


def _saturated(process: ProcessFacts) -> Iterator[Reason]:
    share = process.loop_cpu_share
    yield from graded(
        "orchestrator_saturated",
        share,
        limits.SATURATED_SUSPECT,
        limits.SATURATED_VOID,
        lambda limit: (
            f"{_who(process)}'s core is saturated: its loop ran {percent(share or 0)} of the time in its dearest "
            f"arm (limit {limit}), so queues and not policies set the cost"
        ),
    )


_PLANNED = {"gen": "tokens", "load": "requests", "ctx": "prefill answers"}


def _too_slow(process: ProcessFacts) -> Iterator[Reason]:
    role, who = process.role, _who(process)
    if process.delivered_share is not None:
        delivered = process.delivered_share
        yield from graded(
            f"{role}_rate",
            1.0 - delivered,
            limits.GEN_SHORTFALL_SUSPECT,
            limits.GEN_SHORTFALL_VOID,
            lambda _: f"{who} could not hold its rate: it delivered {percent(delivered)} of the asked token rate",
        )
    cpu, late_seconds, lateness_s = process.cpu_share, process.late_second_share, process.lateness_p99_s
    yield from graded(
        f"{role}_cpu",
        cpu,
        limits.OTHERS_CPU_SUSPECT,
        limits.OTHERS_CPU_VOID,
        lambda limit: f"{who} used {percent(cpu or 0)} of a core (limit {limit}) and may be what limits the run",
    )
    if lateness_s is not None and lateness_s > limits.LATENESS_SUSPECT_S:
        state = "void" if lateness_s > limits.LATENESS_VOID_S else "suspect"
        text = (
            f"{who} was late: {_PLANNED[role]} went out {duration(lateness_s)} after their time at p99 "
            f"(limit {limits.LATENESS_SUSPECT_S * 1e3:g} ms; over the whole run)"
        )
        yield Reason(f"{role}_lateness", state, text, lateness_s)
    yield from graded(
        f"{role}_loop_lag",
        late_seconds,
        limits.LATE_SECONDS_SUSPECT,
        limits.LATE_SECONDS_VOID,
        lambda limit: (
            f"the loop of {who} was more than {limits.LATE_SECOND_S * 1e3:g} ms late in "
            f"{percent(late_seconds or 0)} of the seconds (limit {limit}), so its time stamps are late too"
        ),
    )


def _who(process: ProcessFacts) -> str:
    match process.role:
        case "orchestrator":
            return "the orchestrator" if process.name == "orchestrator" else f"the orchestrator's worker {process.name}"
        case "load":
            worker = "" if process.name == process.role else f", worker {process.name}"
            return f"the load generator (Locust{worker})"
        case role:
            return f"the {role} server {process.name}"
