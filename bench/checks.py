"""Whether anything was lost on the way: what the client saw, held against what gen counted.  Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["lost_in"]

_COUNTED_ALIKE = ("tokens", "chunks", "done_events")
_FOREIGN_TEXT = "wrong_order"
"""The load's word for text that does not count its tokens, as that of a gen server which is not ours never does."""


def lost_in(
    client: Mapping[str, Any] | None, gen: Mapping[str, Any] | None, streams: int, *, our_client: bool = True
) -> str | None:
    """What is amiss, or None.  ``client`` is client.json, ``gen`` a gen server's counters; None where not ours.

    With both, every stream must have passed its checks and the counts must be equal to the unit.  Without gen's
    only the number of streams and their breaks are known; without the client's only that gen kept all streams.
    """
    if client is None:
        return "the client wrote no results" if our_client else None
    seen = client["streams"]
    faults = []
    if seen["started"] != streams:
        faults.append(f"{seen['started']} of {streams} streams started")
    failed = {word: n for word, n in seen["failed"].items() if gen is not None or word != _FOREIGN_TEXT}
    faults += [f"{n} of the streams: {word}" for word, n in failed.items()]
    if gen is not None and seen["aborted"]:
        faults.append(f"{seen['aborted']} of the streams did not end in time")
    elif gen is not None:
        faults += [
            f"{name}: gen {gen[name]}, client {client[name]}" for name in _COUNTED_ALIKE if gen[name] != client[name]
        ]
    return "; ".join(faults) or None
