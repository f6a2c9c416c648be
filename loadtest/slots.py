"""The cap on concurrency: so many slots, each held by one request from its send to its end.

A queue of one line: whoever waits first gets the slot that is free first, so the request's place in the line and the
times at which slots became free say when it could have been sent.
"""

from __future__ import annotations

from collections import deque

from gevent.event import Event

from loadtest.load_settings import LoadSettings
from loadtest.shares import Share
from sim.core.settings import SettingError

__all__ = ["Slots", "slots_of"]


class Slots:
    """``total`` slots, all free since ever.  ``freed`` is set while one is free."""

    __slots__ = ("_free_since_ns", "freed")

    def __init__(self, total: int) -> None:
        self._free_since_ns = deque([0] * total)
        self.freed = Event()
        self.freed.set()

    def take(self) -> int | None:
        """Take the slot that has been free for longest; since when it was, CLOCK_MONOTONIC ns, or None without one."""
        if not self._free_since_ns:
            return None
        since_ns = self._free_since_ns.popleft()
        if not self._free_since_ns:
            self.freed.clear()
        return since_ns

    def give_back(self, now_ns: int) -> None:
        """A request that held one has ended."""
        self._free_since_ns.append(now_ns)
        self.freed.set()


def slots_of(settings: LoadSettings, share: Share) -> Slots | None:
    """A share's part of the cap, None without a cap.  SettingError if its part is no slot at all."""
    if not settings.max_concurrency:
        return None
    total = share.slots(settings.max_concurrency)
    if not total:
        raise SettingError(
            f"max_concurrency: {settings.max_concurrency} cannot be shared by {share.of} processes; "
            f"allowed: {share.of} or more, or fewer processes"
        )
    return Slots(total)
