"""One timer for everything that is due on a loop: entries with absolute due times, kept in narrow slots.

The rule: an entry never runs early, and one that is scheduled again is scheduled from its *due* time, so
lateness cannot add up.  All entries of the slots that have passed share one wake-up; that is what makes
thousands of token streams cheap, and it costs up to a millisecond of lateness, the grain of the loop's timers.

uvloop sets two traps that this file steps round: ``loop.time()`` is cached and 1 ms coarse, so "is it due" is
asked of CLOCK_MONOTONIC; and a timer of less than its grain fires at once, so a wheel that asks for one spins.

What an entry does, how late it was and when it is due next, is its owner's business.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Callable
from typing import Protocol

__all__ = ["SLOT_NS", "Due", "TimerWheel", "Timers"]

_SLOT_BITS = 18
SLOT_NS = 1 << _SLOT_BITS
"""About a quarter of a millisecond; a power of two, since finding the slot is done for every token."""

_GRAIN_NS = 1_000_000
_TURN_NS = 5_000_000
"""A wake-up that lasts longer lets the loop read, accept and see signals before it goes on."""

Due = Callable[[int, int], int | None]
"""Runs when its time has come, with (due_ns, now_ns), and says when it is due again, if at all.  It must not block."""


class Timers(Protocol):
    """The part of an event loop that a wheel needs."""

    def call_later(self, delay: float, callback: Callable[[], object], /) -> asyncio.Handle:
        """Run ``callback`` after ``delay`` seconds."""

    def call_soon(self, callback: Callable[[], object], /) -> asyncio.Handle:
        """Run ``callback`` in the loop's next turn."""


class TimerWheel:
    """Runs callbacks at absolute times (CLOCK_MONOTONIC ns)."""

    def __init__(self, loop: Timers, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._loop = loop
        self._clock = clock
        self._slots: dict[int, list[tuple[int, Due]]] = {}
        self._order: list[int] = []
        self._firing: list[tuple[int, Due]] = []
        self._awake = False
        self._timer: asyncio.Handle | None = None

    def schedule(self, due_ns: int, callback: Due) -> None:
        """Run ``callback(due_ns, now_ns)`` when ``due_ns`` has passed; if it has already, at the next chance."""
        slot = (due_ns >> _SLOT_BITS) + 1
        entries = self._slots.get(slot)
        if entries is not None:
            entries.append((due_ns, callback))
            return
        self._slots[slot] = [(due_ns, callback)]
        heapq.heappush(self._order, slot)
        if self._order[0] == slot and not self._awake:
            self._arm()

    def cancel(self, due_ns: int, callback: Due) -> bool:
        """Take back what was scheduled with these very arguments; False if it is not waiting (any more)."""
        entry = (due_ns, callback)
        for entries in (self._slots.get((due_ns >> _SLOT_BITS) + 1, []), self._firing):
            if entry in entries:
                entries.remove(entry)
                return True
        return False

    def close(self) -> None:
        """Forget all entries and the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._slots.clear()
        self._order.clear()
        self._firing.clear()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        delay_ns = max(_GRAIN_NS, (self._order[0] << _SLOT_BITS) - self._clock())
        self._timer = self._loop.call_later(delay_ns / 1e9, self._wake)

    def _wake(self) -> None:
        self._timer = None
        self._awake = True
        clock, order, slots = self._clock, self._order, self._slots
        turn_over_ns = clock() + _TURN_NS
        try:
            # What becomes due while this runs (an entry that is behind its schedule) runs in the same wake-up:
            # waiting a grain for each would hold a late stream to one token per millisecond.
            while order and order[0] << _SLOT_BITS <= (now_ns := clock()):
                if now_ns > turn_over_ns:
                    self._timer = self._loop.call_soon(self._wake)
                    return
                firing = self._firing = slots.pop(heapq.heappop(order))
                firing.reverse()
                while firing:
                    due_ns, callback = firing.pop()
                    due_ns = callback(due_ns, clock())  # type: ignore[assignment]
                    if due_ns:  # `schedule`, written out: nearly every token comes through here
                        slot = (due_ns >> _SLOT_BITS) + 1
                        entries = slots.get(slot)
                        if entries is None:
                            slots[slot] = [(due_ns, callback)]
                            heapq.heappush(order, slot)
                        else:
                            entries.append((due_ns, callback))
        finally:
            self._awake = False
            while self._firing:  # a callback raised: the others of its slot keep their turn
                self.schedule(*self._firing.pop())
            if order and self._timer is None:
                self._arm()
