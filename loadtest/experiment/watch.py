"""Doing one thing while watching for two others: a child that dies, and Ctrl-C."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

from loadtest.experiment.processes import ChildFailedError, ChildProcess

__all__ = ["InterruptedRunError", "Watch"]

CHILD_END_S = 0.5  # between a connection that breaks and the end of the process behind it

T = TypeVar("T")


class InterruptedRunError(Exception):
    """The user asked the run to end (SIGINT or SIGTERM)."""


class Watch:
    """Runs coroutines until they end, a watched child ends, or the user interrupts, whichever is first.

    After the first Ctrl-C what was measured is being kept; a second one kills the children, so that nothing waits
    for one that does not answer.  ``children`` are the servers; ``load`` is the load once it was started,
    and ``load_may_end`` says that its end is no failure.
    """

    def __init__(self) -> None:
        self.children: list[ChildProcess] = []
        self.load: ChildProcess | None = None
        self.load_may_end = False
        self._interrupt = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._interrupted)

    def _interrupted(self) -> None:
        if self._interrupt.is_set():
            for child in [*self.children, *([self.load] if self.load else [])]:
                child.kill()
        self._interrupt.set()

    def _watched(self) -> list[ChildProcess]:
        return self.children if self.load is None or self.load_may_end else [*self.children, self.load]

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of ``work``.  InterruptedRunError on Ctrl-C, ChildFailedError when a child ends first."""
        task = asyncio.ensure_future(work)
        interrupted = asyncio.ensure_future(self._interrupt.wait())
        ends = {asyncio.ensure_future(child.process.wait()): child for child in self._watched()}
        try:
            await asyncio.wait([task, interrupted, *ends], return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return await self._result_of(task)
            if interrupted.done():
                raise InterruptedRunError
            raise next(child for end, child in ends.items() if end.done()).failure()
        finally:
            leftovers = [waiter for waiter in (task, interrupted, *ends) if not waiter.done()]
            for waiter in leftovers:
                waiter.cancel()
            await asyncio.gather(*leftovers, return_exceptions=True)

    async def _result_of(self, task: asyncio.Future[T]) -> T:
        """The task's result; if a child's end made it fail, that is the better error."""
        try:
            return task.result()
        except ChildFailedError:
            children = self._watched()
            if children:
                ends = [asyncio.ensure_future(child.process.wait()) for child in children]
                await asyncio.wait(ends, timeout=CHILD_END_S, return_when=asyncio.FIRST_COMPLETED)
                for end in ends:
                    end.cancel()
            dead = next((child for child in children if child.process.returncode is not None), None)
            if dead is not None:
                raise dead.failure() from None
            raise
