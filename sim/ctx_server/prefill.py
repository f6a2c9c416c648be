"""Who is being prefilled and who waits: slots, a FIFO queue, and the time each prefill takes.

The rule: a prefill that waited starts when its predecessor was *due* to end, not when a timer happened to say
so, so the timing errors of a busy server do not add up.  The clock's reading is an argument.  HTTP is not here.
"""

from __future__ import annotations

from collections.abc import Callable

from sim.core.histogram import LogHistogram
from sim.core.latency import Jitter, prefill_s
from sim.core.settings import CtxSettings
from sim.service.wheel import TimerWheel

__all__ = ["Prefill", "PrefillQueue", "QueueFullError"]


class QueueFullError(Exception):
    """Every slot is busy and the queue is at its limit."""


class Prefill:
    """One prefill: when it came, started and is due (ns); ``on_end`` runs when it is done."""

    __slots__ = ("arrived_ns", "due_ns", "on_end", "queue", "start_ns", "uncached_tokens")

    def __init__(self, queue: PrefillQueue, uncached_tokens: int, on_end: Callable[[], None]) -> None:
        self.queue = queue
        self.uncached_tokens = uncached_tokens
        self.on_end = on_end
        self.arrived_ns = self.start_ns = self.due_ns = 0

    def on_due(self, _due_ns: int, now_ns: int) -> None:
        """Its time has come."""
        self.queue.finish(self, now_ns)


class PrefillQueue:
    """Slots and queue of one server; what it asked for and what it got, in ns over all prefills done."""

    def __init__(self, settings: CtxSettings, wheel: TimerWheel) -> None:
        self.settings = settings
        self.asked_ns = 0
        self.delivered_ns = 0
        self.lateness = LogHistogram()
        self.waited = LogHistogram()
        self._wheel = wheel
        self._jitter = Jitter(settings.jitter, settings.seed)
        # Dicts as ordered sets: who hangs up leaves from the middle of a queue of 100,000 at once.
        self._running: dict[Prefill, None] = {}
        self._queue: dict[Prefill, None] = {}

    @property
    def running(self) -> int:
        """Slots in use."""
        return len(self._running)

    @property
    def queued(self) -> int:
        """Prefills that wait for a slot."""
        return len(self._queue)

    def arrive(self, prefill: Prefill, now_ns: int) -> None:
        """Start ``prefill`` or let it wait.  QueueFullError if it can do neither."""
        prefill.arrived_ns = now_ns
        if len(self._running) < self.settings.slots:
            self._start(prefill, now_ns)
        elif len(self._queue) < self.settings.queue_limit:
            self._queue[prefill] = None
        else:
            raise QueueFullError

    def finish(self, prefill: Prefill, now_ns: int) -> None:
        """End a prefill that was due by now; the next in line starts at that due time."""
        del self._running[prefill]
        self.asked_ns += prefill.due_ns - prefill.start_ns
        self.delivered_ns += now_ns - prefill.start_ns
        self.lateness.record_ns(now_ns - prefill.due_ns)
        self._start_next(prefill.due_ns)
        prefill.on_end()

    def leave(self, prefill: Prefill, now_ns: int) -> None:
        """Drop a prefill whose client is gone, wherever it is; nothing happens if it is done."""
        if prefill in self._queue:
            del self._queue[prefill]
        elif prefill in self._running:
            del self._running[prefill]
            self._wheel.cancel(prefill.due_ns, prefill.on_due)
            self._start_next(now_ns)

    def _start_next(self, free_ns: int) -> None:
        if self._queue:
            prefill = next(iter(self._queue))
            del self._queue[prefill]
            # The slot may have been due to be free before this one even came.
            self._start(prefill, max(free_ns, prefill.arrived_ns))

    def _start(self, prefill: Prefill, start_ns: int) -> None:
        self._running[prefill] = None
        busy_share = len(self._running) / self.settings.slots
        asked_s = prefill_s(self.settings, prefill.uncached_tokens, busy_share) * self._jitter.draw()
        prefill.start_ns = start_ns
        prefill.due_ns = start_ns + round(asked_s * 1e9)
        self.waited.record_ns(start_ns - prefill.arrived_ns)
        self._wheel.schedule(prefill.due_ns, prefill.on_due)
