"""Can a capacity run be believed, and what could this machine not certify?  Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from loadtest.experiment import thresholds as limits_of
from loadtest.experiment.reasons import Reason, graded, percent

__all__ = ["capacity_reasons", "not_certified"]

_LEAST_TRIALS = 12
"""Attributable probes of a limit with an interval: the search takes about 9, a round of repeats 4."""


def capacity_reasons(
    manifest: Mapping[str, Any],
    probes: Sequence[Mapping[str, Any]],
    limits: Mapping[str, Mapping[str, Any]],
    places: Mapping[str, Mapping[str, Any]],
) -> Iterator[Reason]:
    """Why the limits are not simply to be believed."""
    if manifest.get("failure"):
        yield Reason("failure", "suspect", f"it ended before its time: {manifest['failure']}")
    if manifest.get("interrupted"):
        yield Reason("interrupted", "suspect", "it was interrupted; what was measured until then is shown")
    for name, place in places.items():
        yield from _place_reasons(name, place)
    if not any(limit["limit_tok_s"] or limit["at_least_tok_s"] or limit["below_tok_s"] for limit in limits.values()):
        text = "nothing could be attributed to the orchestrator: no probe held, and none failed by its doing"
        yield Reason("nothing_attributable", "void", text)
        return
    for name, limit in limits.items():
        yield from _limit_reasons(name, limit)
    steal = float(np.median([probe["steal_share"] for probe in probes])) if probes else 0.0
    yield from graded(
        "steal",
        steal,
        limits_of.STEAL_SUSPECT,
        limits_of.STEAL_VOID,
        lambda limit: f"the hypervisor took away {percent(steal)} of the CPU in half of the probes (limit {limit})",
    )


def _place_reasons(name: str, place: Mapping[str, Any]) -> Iterator[Reason]:
    if place["equality"] == "differs":
        text = f"{name}: the policies' outputs differ (see equality.json), so nothing was measured"
        yield Reason("equality_differs", "void", text)
    if place["reconciliation"]["state"] == "differs":
        text = f"{name}: gen, orchestrator and clients do not count alike: {_unequal(place['reconciliation']['rows'])}"
        cut = (place["streams"] or {}).get("aborted", 0)
        if cut:
            text += f"; {cut} short requests were cut off at the end, and each party had seen another part of them"
        yield Reason("counters_differ", "note" if cut else "suspect", text)
    failed = sum((place["streams"] or {}).get("failed", {}).values())
    if failed:
        yield Reason("streams_failed", "suspect", f"{name}: {failed:,} streams failed a check", float(failed))


def _unequal(rows: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(row["what"] for row in rows if not row["equal"])


def _limit_reasons(name: str, limit: Mapping[str, Any]) -> Iterator[Reason]:
    if limit["stopped_by"] in (None, "time") or not limit["bracketed"]:
        yield Reason("no_time", "suspect", f"{name}: the time was over before its limit was found (--max-minutes)")
    if limit["stopped_by"] == "machine":
        text = f"{name}: the machine gave out first: others had the orchestrator's CPU, or the hypervisor took it"
        yield Reason("machine_gave_out", "suspect", text)
    trials = limit["probes"]["pass"] + limit["probes"]["fail"]
    if limit["limit_tok_s"] and trials < _LEAST_TRIALS:
        text = f"{name}: {trials} probes are few for an interval (at least {_LEAST_TRIALS})"
        yield Reason("few_probes", "suspect", text, float(trials))


_WHO = {"generator": "the generator gave out", "load": "the load gave out", "machine": "the machine gave out"}


def not_certified(manifest: Mapping[str, Any], limits: Mapping[str, Mapping[str, Any]]) -> list[dict[str, str]]:
    """Figures that this machine cannot certify, each with the reason."""
    pinning = manifest["host"].get("pinning", {})
    own, others = pinning.get("orchestrator", []), pinning.get("others", [])
    rows = []
    if not own:
        rows.append({"figure": "every limit", "why": "the orchestrator had no CPU of its own"})
    for workers in manifest["workers"]:
        cpus = len(manifest["cpus_by_workers"].get(str(workers), []))
        if workers > 1 and 0 < cpus < workers:
            why = (
                f"they share {cpus} CPU{'s' if cpus > 1 else ''} and wait for one another; with one each, and one for "
                f"gen and load, it takes {workers + 1} CPUs"
            )
            rows.append({"figure": f"limit, lag and scaling of {workers} workers", "why": why})
    if len(others) == 1:
        why = "ctx, gen and both loads share 1 CPU; where they give out first, a limit is only a lower bound"
        rows.append({"figure": "rates that gen and load cannot keep", "why": why})
    for name, limit in limits.items():
        if limit["at_least_tok_s"]:
            who = _WHO.get(limit["stopped_by"], "nothing higher was probed")
            rows.append({"figure": f"{name}: above {limit['at_least_tok_s']:,.0f} tok/s", "why": who})
    return rows
