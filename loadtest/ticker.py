"""The gevent canary that feeds `LoopHealth`: the twin of `sim.service.ticker`, on the hub that reads the streams.

Due times are absolute, taken from CLOCK_MONOTONIC; a hub timer, not a greenlet, so that a tick costs no switch.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import gevent

from sim.service.health import GcPauses, LoopHealth
from sim.service.proc import ProcReader, ThreadCpu

__all__ = ["HubTicker", "start_loop_health"]


class HubTicker:
    """Ticks ``health`` on the current hub until stopped."""

    def __init__(
        self,
        health: LoopHealth,
        thread_cpu: Callable[[], tuple[int, int]],
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._health = health
        self._thread_cpu = thread_cpu
        self._clock = clock
        self._loop = gevent.get_hub().loop
        self._due_ns = clock() + health.tick_ns
        self._start_timer(health.tick_ns / 1e9)

    def stop(self) -> None:
        """No further tick."""
        self._timer.stop()
        self._timer.close()

    def _start_timer(self, delay_s: float) -> None:
        # Not kept alive by the canary alone: ref=False lets the loop end without it.
        self._timer = self._loop.timer(max(0.0, delay_s), ref=False)
        self._timer.start(self._tick)

    def _tick(self) -> None:
        now_ns = self._clock()
        if now_ns >= self._due_ns:
            self._due_ns = self._health.tick(self._due_ns, now_ns, *self._thread_cpu())
        self._timer.close()
        self._start_timer((self._due_ns - self._clock()) / 1e9)


def start_loop_health(clock: Callable[[], int] = time.monotonic_ns) -> tuple[LoopHealth, Callable[[], None]]:
    """Health of the calling thread's hub, ticking from now on, and the function that ends it."""
    thread, process, pauses = ThreadCpu(), ProcReader(), GcPauses(clock)
    cpu_ns, wait_ns = thread.read()
    health = LoopHealth(process.read, pauses, start_ns=clock(), cpu_ns=cpu_ns, wait_ns=wait_ns)
    pauses.install()
    ticker = HubTicker(health, thread.read, clock)

    def stop() -> None:
        ticker.stop()
        pauses.remove()
        thread.close()
        process.close()

    return health, stop
