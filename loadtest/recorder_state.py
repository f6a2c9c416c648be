"""A recorder's counts and histograms as a message, and several of them added up.

Every attribute of `Recorder` that counts is taken by its type, none by its name: what is added there is merged too.
Histograms are added bucket by bucket, so that percentiles are read from the sum and never averaged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from loadtest.recorder import Recorder, Totals
from sim.core.histogram import LogHistogram

__all__ = ["add_state", "add_totals", "counting", "state_of", "totals_json"]


def state_of(recorder: Recorder) -> dict[str, Any]:
    """All that it has counted so far, as JSON."""
    return {name: _to_json(value) for name, value in counting(recorder).items()}


def add_state(recorder: Recorder, state: Mapping[str, Any]) -> None:
    """Add what `state_of` gave of another process's recorder.  KeyError if the two do not count the same things."""
    for name, value in counting(recorder).items():
        added = state[name]
        if isinstance(value, int):
            setattr(recorder, name, value + added)
        elif isinstance(value, Counter):
            value.update(added)
        elif isinstance(value, Totals):
            add_totals(value, added)
        else:
            _histogram(value).merge(LogHistogram.from_json(added))


def totals_json(totals: Totals) -> dict[str, Any]:
    """Sums over replies, as JSON."""
    return {"tokens": totals.tokens, "events": totals.events, "bytes": totals.bytes, "by_kind": dict(totals.by_kind)}


def add_totals(totals: Totals, added: Mapping[str, Any]) -> None:
    """Add what `totals_json` gave."""
    totals.tokens += added["tokens"]
    totals.events += added["events"]
    totals.bytes += added["bytes"]
    for kind, count in added["by_kind"].items():
        totals.by_kind[kind] += count


def counting(recorder: Recorder) -> dict[str, Any]:
    """Attributes that count; private ones are the recorder's own business."""
    return {name: value for name, value in vars(recorder).items() if not name.startswith("_")}


def _to_json(value: Any) -> Any:
    if isinstance(value, int):
        return value
    if isinstance(value, Counter):
        return dict(value)
    if isinstance(value, Totals):
        return totals_json(value)
    return _histogram(value).to_json()


def _histogram(value: Any) -> LogHistogram:
    """The histogram, or that of a log of times."""
    histogram = value if isinstance(value, LogHistogram) else value.histogram
    assert isinstance(histogram, LogHistogram)
    return histogram
