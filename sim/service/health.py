"""Loop health: is the event loop late, and who is to blame, the loop's own callbacks or the kernel.

Theory.  A canary is due every ``tick_ns`` on an absolute schedule.  Its lateness L is how long a callback that
became ready at a random moment would have waited.  The thread's run-queue wait grew by dW since the canary
before: for that long the thread wanted to run and the kernel ran others.  So at most min(L, dW) of L is the
kernel's, and that is what it is charged (it over-charges the kernel when a wait lay before the due time); the
rest is the loop's.  Canaries that fell due *during* a stall are counted too, each with the lateness it had:
one stall of 50 ms is five late canaries, not one, as for any other work of the loop.

Pure accounting: every reading and the clock are arguments.  Who ticks (asyncio, gevent), and what reads
/proc, is not here.
"""

from __future__ import annotations

import gc
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sim.core.histogram import LogHistogram
from sim.service.proc import ProcFacts, steal_share

__all__ = ["LATE_NS", "TICK_NS", "GcPauses", "LagWindow", "LoopHealth"]

TICK_NS = 10_000_000
LATE_NS = 5_000_000
"""A canary later than this is a late tick: well over the 1 ms grain of the loops' timers."""
SAMPLE_NS = 1_000_000_000
KEPT_SAMPLES = 7200


class GcPauses:
    """Garbage-collection pauses of this process: how often, how long in all, the longest."""

    __slots__ = ("_clock", "_started_ns", "count", "max_ns", "total_ns")

    def __init__(self, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._clock = clock
        self._started_ns = 0
        self.count = [0, 0, 0]
        self.total_ns = 0
        self.max_ns = 0

    def install(self) -> None:
        """Begin to be told of collections."""
        gc.callbacks.append(self.on_gc)

    def remove(self) -> None:
        """Stop being told."""
        if self.on_gc in gc.callbacks:
            gc.callbacks.remove(self.on_gc)

    def on_gc(self, phase: str, info: dict[str, int]) -> None:
        """One end of a collection; the interpreter calls it."""
        if phase == "start":
            self._started_ns = self._clock()
            return
        pause_ns = self._clock() - self._started_ns
        self.count[info["generation"]] += 1
        self.total_ns += pause_ns
        self.max_ns = max(self.max_ns, pause_ns)


class LagWindow:
    """Lag of one stretch of time, such as a block of an experiment; `LoopHealth.open_window` makes it."""

    __slots__ = ("lag", "lag_kernel", "lag_loop", "late_ticks", "late_ticks_kernel")

    def __init__(self) -> None:
        self.lag = LogHistogram()
        self.lag_loop = LogHistogram()
        self.lag_kernel = LogHistogram()
        self.late_ticks = 0
        self.late_ticks_kernel = 0

    def record(self, late_ns: int, kernel_ns: int) -> None:
        """One canary, ``kernel_ns`` of its ``late_ns`` being the kernel's."""
        self.lag.record_ns(late_ns)
        self.lag_loop.record_ns(late_ns - kernel_ns)
        self.lag_kernel.record_ns(kernel_ns)
        if late_ns > LATE_NS:
            self.late_ticks += 1
            self.late_ticks_kernel += 2 * kernel_ns > late_ns


class LoopHealth:
    """Totals, histograms and one sample per second, fed by a ticker.

    ``facts`` reads the process's slow-moving numbers, once a second.  All times are CLOCK_MONOTONIC ns.
    """

    def __init__(
        self,
        facts: Callable[[], ProcFacts],
        gc_pauses: GcPauses,
        *,
        start_ns: int,
        cpu_ns: int,
        wait_ns: int,
        tick_ns: int = TICK_NS,
        sample_ns: int = SAMPLE_NS,
        kept_samples: int = KEPT_SAMPLES,
    ) -> None:
        self.tick_ns = tick_ns
        self.gc = gc_pauses
        self.total = LagWindow()
        self.samples: deque[dict[str, float]] = deque(maxlen=kept_samples)
        self.facts = facts()
        self.utilization = 0.0
        self.loop_cpu_ns = cpu_ns
        self.run_queue_wait_ns = wait_ns
        self._read_facts = facts
        self._windows: list[LagWindow] = [self.total]
        self._sample_ns = sample_ns
        self._second_lags_ns: list[int] = []
        self._second = _SecondStart(start_ns, cpu_ns, wait_ns, 0, 0, 0)

    def tick(self, due_ns: int, now_ns: int, cpu_ns: int, wait_ns: int) -> int:
        """Account the canary due at ``due_ns`` and those that fell due since; the next one's due time.

        ``cpu_ns`` and ``wait_ns`` are the loop thread's totals (`ThreadCpu.read`).
        """
        waited_ns = wait_ns - self.run_queue_wait_ns
        self.loop_cpu_ns = cpu_ns
        self.run_queue_wait_ns = wait_ns
        while True:
            late_ns = max(0, now_ns - due_ns)
            kernel_ns = min(late_ns, waited_ns)
            for window in self._windows:
                window.record(late_ns, kernel_ns)
            self._second_lags_ns.append(late_ns)
            due_ns += self.tick_ns
            if due_ns > now_ns:
                break
        if now_ns - self._second.t_ns >= self._sample_ns:
            self._close_second(now_ns)
        return due_ns

    def open_window(self) -> LagWindow:
        """A window that sees every canary from now until it is closed."""
        window = LagWindow()
        self._windows.append(window)
        return window

    def close_window(self, window: LagWindow) -> None:
        """The window sees no more; ValueError if it is not open."""
        self._windows.remove(window)

    def to_json(self) -> dict[str, Any]:
        """Samples and cumulative histograms, as every process serves them at /admin/samples."""
        total = self.total
        return {
            "samples": list(self.samples),
            "lag": total.lag.to_json(),
            "lag_loop": total.lag_loop.to_json(),
            "lag_kernel": total.lag_kernel.to_json(),
            "late_ticks": total.late_ticks,
            "late_ticks_kernel": total.late_ticks_kernel,
        }

    def _close_second(self, now_ns: int) -> None:
        facts, before, second = self._read_facts(), self.facts, self._second
        lags_ns = sorted(self._second_lags_ns)
        wall_ns = now_ns - second.t_ns
        self.utilization = (self.loop_cpu_ns - second.cpu_ns) / wall_ns
        self.samples.append(
            {
                "t_ns": now_ns,
                "wall_s": wall_ns / 1e9,
                "cpu_s": (facts.process_cpu_ns - before.process_cpu_ns) / 1e9,
                "loop_cpu_s": (self.loop_cpu_ns - second.cpu_ns) / 1e9,
                "run_queue_wait_s": (self.run_queue_wait_ns - second.wait_ns) / 1e9,
                "lag_max_s": lags_ns[-1] / 1e9,
                "lag_p99_s": lags_ns[(99 * len(lags_ns) - 1) // 100] / 1e9,
                "ticks": len(lags_ns),
                "late_ticks": self.total.late_ticks - second.late_ticks,
                "late_ticks_kernel": self.total.late_ticks_kernel - second.late_ticks_kernel,
                "gc_pause_s": (self.gc.total_ns - second.gc_ns) / 1e9,
                "throttled_s": (facts.throttled_us - before.throttled_us) / 1e6,
                "steal_share": steal_share(before.machine_ticks, facts.machine_ticks),
                "rss_bytes": facts.rss_bytes,
            }
        )
        self.facts = facts
        self._second_lags_ns.clear()
        self._second = _SecondStart(
            now_ns,
            self.loop_cpu_ns,
            self.run_queue_wait_ns,
            self.total.late_ticks,
            self.total.late_ticks_kernel,
            self.gc.total_ns,
        )


@dataclass(frozen=True, slots=True)
class _SecondStart:
    """Totals at the moment the current sample began."""

    t_ns: int
    cpu_ns: int
    wait_ns: int
    late_ticks: int
    late_ticks_kernel: int
    gc_ns: int
