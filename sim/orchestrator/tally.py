"""One stream's events counted by kind, without looking at the tokens in the middle.

Roles are counted as a stream opens.  After that the latest events wait, held: which of them are a finish, a
usage or the end marker shows only when the stream has ended, and whatever newer events push out is a chunk.
So nothing that was counted as a chunk is ever taken back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import takewhile

from sim.core.sse import is_done
from sim.orchestrator.counters import Counters
from sim.orchestrator.kinds import CLOSING_EVENTS, kind_of

__all__ = ["LONGEST_HELD", "EventTally"]

LONGEST_HELD = 4096
"""Bytes; a longer event is a chunk by definition.  So what a live stream keeps alive is 12 KiB at most."""


class EventTally:
    """Counts into ``counters``; `close` it when the stream ends.

    Once the tally is ``steady`` the relay may let chunks pass without `add`, if it says so by `followed_by_chunk`.
    """

    __slots__ = ("_counters", "_opening", "latest")

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._opening = True
        self.latest: deque[bytes | None] = deque(maxlen=CLOSING_EVENTS)

    @property
    def steady(self) -> bool:
        """True once an event comes in for each that leaves, so that the number of held ones stays."""
        return len(self.latest) == CLOSING_EVENTS

    @property
    def done(self) -> bool:
        """Whether the end marker is among the latest events."""
        return any(event is not None and is_done(event) for event in self.latest)

    def add(self, events: Sequence[bytes]) -> None:
        """Count what was relayed."""
        counters, latest = self._counters, self.latest
        counters.cut_events += len(events)
        roles = self._count_roles(events) if self._opening else 0
        before = len(latest)
        latest.extend(event if len(event) <= LONGEST_HELD else None for event in events[roles:])
        counters.held_events += len(latest) - before

    def followed_by_chunk(self) -> None:
        """Chunks have passed by: what is held is chunks too, for nothing that closes a stream stands before one."""
        self.latest.extend([None] * len(self.latest))

    def close(self) -> None:
        """The stream has ended: count the held events by kind."""
        counters = self._counters
        counters.held_events -= len(self.latest)
        kinds = ["chunk" if event is None else kind_of(event) for event in self.latest]
        kinds = list(takewhile(lambda kind: kind != "chunk", reversed(kinds)))
        counters.finish_events += kinds.count("finish")
        counters.usage_events += kinds.count("usage")
        counters.done_events += kinds.count("done")
        self.latest.clear()

    def _count_roles(self, events: Sequence[bytes]) -> int:
        """How many role events ``events`` begins with; the first other one ends the opening."""
        roles = list(takewhile(lambda event: kind_of(event) == "role", events))
        self._opening = len(roles) == len(events)
        self._counters.role_events += len(roles)
        return len(roles)
