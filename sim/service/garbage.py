"""When the garbage collector may walk everything that is old: a pause that grows with every live stream.

CPython does so whenever the young survivors are a quarter of the old: seldom, but with thousands of streams for
hundreds of milliseconds (0.56 s in an orchestrator with 9,000), in which no token moves.  Cycles that die young are
collected as ever; the old ones can wait until nobody does.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable

__all__ = ["FULL_EVERY_S", "OldCollector", "collect_old_when"]

CHECK_EVERY_S = 1.0
FULL_EVERY_S = 600.0
"""Longest time without a full collection: what is never idle must not grow without end either."""
_NEVER = 1 << 30
_WORTH = 10  # collections of the middle generation since the last full one: CPython's own threshold


class OldCollector:
    """Says when a full collection is due: ``idle`` and worth it, or FULL_EVERY_S after the last."""

    def __init__(self, now_s: float, idle: Callable[[], bool]) -> None:
        self._idle = idle
        self._last_s = now_s

    def due(self, now_s: float, middle_collections: int) -> bool:
        """Whether to collect now; the answer yes is taken as done."""
        overdue = now_s - self._last_s >= FULL_EVERY_S
        if not overdue and not (middle_collections >= _WORTH and self._idle()):
            return False
        self._last_s = now_s
        return True


def collect_old_when(loop: asyncio.AbstractEventLoop, idle: Callable[[], bool]) -> None:
    """From now to the end of the process, full collections happen as `OldCollector` says."""
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, _NEVER)
    collector = OldCollector(loop.time(), idle)

    def check() -> None:
        loop.call_later(CHECK_EVERY_S, check)
        if collector.due(loop.time(), gc.get_count()[2]):
            gc.collect()

    check()
