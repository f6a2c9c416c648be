"""The asyncio canary that feeds `LoopHealth`; the load generator has its own for gevent.

Due times are absolute, taken from CLOCK_MONOTONIC and not from ``loop.time()``, which uvloop caches in whole
milliseconds.  The accounting is not here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from sim.service.health import TICK_NS, GcPauses, LoopHealth
from sim.service.proc import ProcReader, ThreadCpu

__all__ = ["LoopTicker", "start_loop_health"]

_SHORTEST_DELAY_S = 0.001
"""uvloop runs a timer of less than 0.5 ms at once: asking for less than its grain would spin."""


class LoopTicker:
    """Ticks ``health`` on ``loop`` until stopped; made and run on the loop's own thread."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        health: LoopHealth,
        thread_cpu: Callable[[], tuple[int, int]],
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._loop = loop
        self._health = health
        self._thread_cpu = thread_cpu
        self._clock = clock
        self._due_ns = clock() + health.tick_ns
        self._handle = loop.call_later(health.tick_ns / 1e9, self._tick)

    def stop(self) -> None:
        """No further tick."""
        self._handle.cancel()

    def _tick(self) -> None:
        now_ns = self._clock()
        if now_ns >= self._due_ns:
            self._due_ns = self._health.tick(self._due_ns, now_ns, *self._thread_cpu())
        delay_s = (self._due_ns - now_ns) / 1e9
        self._handle = self._loop.call_later(max(_SHORTEST_DELAY_S, delay_s), self._tick)


def start_loop_health(
    loop: asyncio.AbstractEventLoop, clock: Callable[[], int] = time.monotonic_ns, *, tick_ns: int = TICK_NS
) -> tuple[LoopHealth, Callable[[], None]]:
    """Health of the calling thread's loop, ticking from now on, and the function that ends it."""
    thread, process, pauses = ThreadCpu(), ProcReader(), GcPauses(clock)
    cpu_ns, wait_ns = thread.read()
    health = LoopHealth(process.read, pauses, start_ns=clock(), cpu_ns=cpu_ns, wait_ns=wait_ns, tick_ns=tick_ns)
    pauses.install()
    ticker = LoopTicker(loop, health, thread.read, clock)

    def stop() -> None:
        ticker.stop()
        pauses.remove()
        thread.close()
        process.close()

    return health, stop
