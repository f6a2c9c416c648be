"""Doing one thing while watching for two others: a child that dies, and Ctrl-C."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

from loadtest.experiment.processes import ChildProcess

__all__ = ["InterruptedRunError", "Watch"]

T = TypeVar("T")


class InterruptedRunError(Exception):
    """The user asked the run to end (SIGINT or SIGTERM)."""


class Watch:
    """Runs coroutines until they end, a watched child ends, or the user interrupts, whichever is first.

    A second Ctrl-C within the same step ends nothing more: what was measured is being kept.
    """

    def __init__(self) -> None:
        self.children: list[ChildProcess] = []
        self._interrupt = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._interrupt.set)

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of ``work``.  InterruptedRunError on Ctrl-C, ChildFailedError when a child ends first."""
        task = asyncio.ensure_future(work)
        interrupted = asyncio.ensure_future(self._interrupt.wait())
        ends = {asyncio.ensure_future(child.process.wait()): child for child in self.children}
        try:
            await asyncio.wait([task, interrupted, *ends], return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            if interrupted.done():
                raise InterruptedRunError
            raise next(child for end, child in ends.items() if end.done()).failure()
        finally:
            leftovers = [waiter for waiter in (task, interrupted, *ends) if not waiter.done()]
            for waiter in leftovers:
                waiter.cancel()
            await asyncio.gather(*leftovers, return_exceptions=True)
