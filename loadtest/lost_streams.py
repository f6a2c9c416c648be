"""Which streams a worker should have reported: its shares of the copies that were given out.

Pure; `master_load` asks this when a worker is gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from loadtest.lengths import Lengths
from loadtest.load_settings import LoadSettings
from loadtest.shares import Share
from loadtest.traces.rows import TraceRow
from loadtest.workload import iter_requests

__all__ = ["GivenCopy", "streams_due"]


@dataclass(slots=True)
class GivenCopy:
    """Copy ``number``, begun at ``start_ns`` for ``owner`` (worker and user), split among ``workers`` in that order.

    ``open`` are those that still send or read, ``stopped_ns`` is when it was told to end before its time (0: never).
    """

    number: int
    start_ns: int
    owner: tuple[str, str]
    workers: Sequence[str]
    stopped_ns: int = 0
    open: set[str] = field(default_factory=set)

    def share_of(self, worker: str) -> Share | None:
        """The worker's share; None if it has none."""
        return Share(self.workers.index(worker), len(self.workers)) if worker in self.workers else None


def streams_due(
    settings: LoadSettings,
    trace: Sequence[TraceRow],
    copies: Sequence[GivenCopy],
    worker: str,
    lengths: Lengths | None = None,
) -> int | None:
    """How many streams of ``worker``'s shares should have an outcome; None in a closed loop, which plans none."""
    if settings.arrivals == "closed":
        return None
    due = 0
    for copy in copies:
        share = copy.share_of(worker)
        if share is not None:
            end_ns = copy.stopped_ns - copy.start_ns if copy.stopped_ns else None
            due += sum(
                share.holds(request.seq) and (end_ns is None or request.due_ns < end_ns)
                for request in iter_requests(settings, settings.seed + copy.number, trace, lengths)
            )
    return due
