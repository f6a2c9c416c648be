"""When does a probe of a rate hold, and whose fault is it if not?  One probe's figures in, its outcome out.  Pure.

A joint objective: every key must hold, nothing may be lost, and what gen writes must come out at the same rate.
Lag and added ITL are about waiting, so they collapse where tok/s would still go on rising, reads merging.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from loadtest.experiment import thresholds as limits
from loadtest.experiment.rounds import RATE_TOLERANCE

__all__ = ["FAIL", "PASS", "UNATTRIBUTABLE", "Outcome", "Slo", "judge_probe", "parse_slo"]

PASS, FAIL, UNATTRIBUTABLE = "pass", "fail", "unattributable"

OTHERS_BUSY = 0.90
"""CPU of gen or of the load, of a core: Locust itself warns there."""
ORCHESTRATOR_BUSY = 0.90
"""CPU of the orchestrator's busiest core from which on a breach is its own, whatever else was late."""

_UNALIGNED_TOKENS = 20
"""Gen and orchestrator are not read in the same instant: so many tokens are no shortfall, however few there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """The limits, ms; what each is held against is in the field's text."""

    lag: float = 50.0
    """Loop lag of the orchestrator, p99, of the worst worker."""
    ttft: float = 1000.0
    """Time to first token of the short requests, p95, from the planned send."""
    itl: float = 100.0
    """Inter-token latency of the standing streams, p99, less their own pace."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """``state`` is pass, fail or unattributable; ``by`` says what broke (slo:KEY) or who gave out."""

    state: str
    by: tuple[str, ...] = ()


def parse_slo(text: str) -> Slo:
    """Read ``lag:50 ttft:1000 itl:100``; keys left out keep their defaults.  ValueError says what is wrong."""
    known = [field.name for field in dataclasses.fields(Slo)]
    chosen: dict[str, float] = {}
    for part in text.split():
        key, colon, value = part.partition(":")
        if not colon or key not in known:
            raise ValueError(f"{part!r} is not KEY:MS with one of the keys {', '.join(known)}")
        if key in chosen:
            raise ValueError(f"{key} is given twice")
        try:
            chosen[key] = float(value)
        except ValueError:
            chosen[key] = math.nan
        if not 0 < chosen[key] < math.inf:
            raise ValueError(f"{part!r}: {value!r} is not a number of ms above 0")
    if not chosen:
        raise ValueError(f"it is empty; give KEY:MS with keys {', '.join(known)}")
    return Slo(**chosen)


def judge_probe(probe: Mapping[str, Any], slo: Slo) -> Outcome:
    """What a record of ``probes.jsonl`` means.

    A breach counts against the orchestrator when its core was busy, or gen, load and machine did their part.
    """
    # A whole engine step more or less may fall into the time of either.
    tolerance = RATE_TOLERANCE + probe["uneven_share"] + _UNALIGNED_TOKENS / max(1, probe["due_tokens"])
    least_share = 1.0 - tolerance
    if probe["gen_due_share"] < least_share:
        return Outcome(UNATTRIBUTABLE, ("generator",))
    breaches = tuple(_breaches(probe, slo, least_share))
    if not breaches:
        return Outcome(PASS)
    if probe["busiest_core_share"] < ORCHESTRATOR_BUSY and (culprits := tuple(_gave_out(probe))):
        return Outcome(UNATTRIBUTABLE, culprits)
    return Outcome(FAIL, breaches)


def _breaches(probe: Mapping[str, Any], slo: Slo, least_share: float) -> Iterator[str]:
    added_itl_s = None if probe["itl_p99_s"] is None else probe["itl_p99_s"] - probe["step_s"]
    for key, value_s in (("lag", probe["lag_p99_s"]), ("itl", added_itl_s), ("ttft", probe["ttft_p95_s"])):
        # No token, or no first token, came in all the time: that is late, not missing.
        if value_s is None or value_s * 1e3 > getattr(slo, key):
            yield f"slo:{key}"
    if probe["relayed_share"] < least_share:
        yield "slo:rate"
    if probe["failed_streams"]:
        yield "slo:loss"


def _gave_out(probe: Mapping[str, Any]) -> Iterator[str]:
    if probe["gen_cpu_share"] > OTHERS_BUSY or probe["gen_late_p99_s"] > limits.LATENESS_SUSPECT_S:
        yield "generator"
    if probe["load_cpu_share"] > OTHERS_BUSY or probe["load_lag_p99_s"] > limits.LATENESS_SUSPECT_S:
        yield "load"
    starved = probe["run_queue_wait_share"] > limits.ORCHESTRATOR_WAIT_VOID and not probe["workers_share_cpu"]
    if starved or probe["steal_share"] > limits.STEAL_VOID:
        yield "machine"
