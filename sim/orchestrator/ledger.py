"""Blocks as they run: switches on time, a reading at either end, everything else between blocks.

At a boundary one callback reads the old block's end, writes its record, moves the index and runs the yardstick;
after the settling another one takes the new block's start reading.  Both are timers on the relay's own loop, so
no request is half-way through an event when the policy changes.  Timers are asked for 1 ms at least and checked
against CLOCK_MONOTONIC (uvloop's ``loop.time`` is cached and coarse); records hold the times that really were.

A block's arithmetic is `blocks`; what a policy's totals look like outside blocks is `credit`.
"""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Callable
from typing import Any

from sim.orchestrator.arms import Arms
from sim.orchestrator.blocks import BlockSchedule, Reading, block_record
from sim.orchestrator.counters import Counters
from sim.orchestrator.credit import PolicyCredit
from sim.orchestrator.policies import BUILTIN
from sim.service.health import LagWindow, LoopHealth
from sim.service.proc import CpuThrottle, MachineCpu, ThreadCpu

__all__ = ["BlockRunner", "Meter", "ScheduleRunningError", "spin_ns"]

_SHORTEST_DELAY_S = 0.001
_SPIN_ROUNDS = 28_000  # about 1 ms


class ScheduleRunningError(RuntimeError):
    """The policy is not to be changed now: a block schedule is running."""


def spin_ns() -> int:
    """The yardstick: CPU ns of the same fixed work each time; when it drifts, so does every other figure."""
    start_ns = time.thread_time_ns()
    total = 0
    for number in range(_SPIN_ROUNDS):
        total += number & 7
    return time.thread_time_ns() - start_ns


class Meter:
    """Takes readings; made and used on the loop's thread, whose CPU and waiting it reads."""

    def __init__(self, counters: Counters, arms: Arms, health: LoopHealth) -> None:
        self._counters = counters
        self._arms = arms
        self._health = health
        self._thread = ThreadCpu()
        self._throttle = CpuThrottle()
        self._machine = MachineCpu()

    def read(self) -> Reading:
        """Everything as of now; about 30 us."""
        # The clocks come first and together.  CPU is read from the CPU clocks: schedstat's own figure is
        # brought up to date only at a scheduler tick, its waiting time is exact.
        t_ns, cpu_ns, loop_cpu_ns = time.monotonic_ns(), time.process_time_ns(), time.thread_time_ns()
        _, wait_ns = self._thread.read()
        usage = resource.getrusage(resource.RUSAGE_SELF)
        counters, policy = self._counters, self._arms.counters[self._arms.active]
        return Reading(
            t_ns=t_ns,
            cpu_ns=cpu_ns,
            loop_cpu_ns=loop_cpu_ns,
            run_queue_wait_ns=wait_ns,
            user_s=usage.ru_utime,
            sys_s=usage.ru_stime,
            machine_ticks=self._machine.read(),
            throttled_us=self._throttle.read_us(),
            gc_pause_ns=self._health.gc.total_ns,
            chunks=counters.chunks,
            events=counters.events,
            reads=counters.reads,
            requests=counters.requests,
            bytes_in=counters.bytes_in,
            bytes_out=counters.bytes_out,
            unchanged=policy.unchanged,
            changed=policy.changed,
            parsed=policy.parsed if self._arms.policy in BUILTIN else None,
        )

    def close(self) -> None:
        """Let the files go."""
        self._thread.close()
        self._throttle.close()
        self._machine.close()


class BlockRunner:
    """Runs one schedule at a time; ``state`` is idle, running, done or aborted, ``records`` the last one's blocks."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        arms: Arms,
        counters: Counters,
        health: LoopHealth,
        meter: Meter,
        credit: PolicyCredit,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.state = "idle"
        self.records: list[dict[str, Any]] = []
        self._loop = loop
        self._arms = arms
        self._counters = counters
        self._health = health
        self._meter = meter
        self._credit = credit
        self._clock = clock
        self._timer: asyncio.TimerHandle | None = None
        self._schedule: BlockSchedule | None = None
        self._resume_with = 0
        self._spin_ns = 0
        self._before: Reading | None = None
        self._window: LagWindow | None = None

    @property
    def running(self) -> bool:
        """True from a schedule's acceptance to its end."""
        return self.state == "running"

    def start(self, schedule: BlockSchedule) -> None:
        """Begin ``schedule`` at its own time.  ScheduleRunningError if one is running."""
        if self.running:
            raise ScheduleRunningError("a block schedule is already running; DELETE /admin/blocks aborts it")
        self._schedule = schedule
        self._resume_with = self._arms.active
        self.records = []
        self.state = "running"
        self._at(schedule.switches_ns[0], self._boundary, 0)

    def abort(self) -> None:
        """End a running schedule now: the unfinished block is dropped, the finished ones stay."""
        if self.running:
            self._end("aborted")

    def _at(self, due_ns: int, callback: Callable[[int, int], None], block: int) -> None:
        delay_s = max(_SHORTEST_DELAY_S, (due_ns - self._clock()) / 1e9)
        self._timer = self._loop.call_later(delay_s, callback, due_ns, block)

    def _boundary(self, due_ns: int, block: int) -> None:
        """The end of the block before ``block``, and the switch to it (or the schedule's end)."""
        if self._clock() < due_ns:
            self._at(due_ns, self._boundary, block)
            return
        assert self._schedule is not None
        if self._before is not None:
            self._close_block(self._schedule, block - 1)
        elif block == 0:
            self._credit.pause()
        if block == len(self._schedule.blocks):
            self._end("done")
            return
        self._arms.active = self._schedule.blocks[block].index
        switched_ns = self._clock()
        self._spin_ns = spin_ns()
        # From the switch that really was: a late one settles as long as any other.
        self._at(switched_ns + self._schedule.settle_ns, self._settled, block)

    def _settled(self, due_ns: int, block: int) -> None:
        """The measured part of ``block`` begins."""
        if self._clock() < due_ns:
            self._at(due_ns, self._settled, block)
            return
        assert self._schedule is not None
        self._at(self._schedule.switches_ns[block + 1], self._boundary, block + 1)
        self._window = self._health.open_window()
        self._before = self._meter.read()

    def _close_block(self, schedule: BlockSchedule, block: int) -> None:
        after = self._meter.read()
        assert self._before is not None
        assert self._window is not None
        self._health.close_window(self._window)
        live = self._counters.live
        done = schedule.blocks[block]
        self.records.append(
            block_record(done, self._before, after, self._window, spin_ns=self._spin_ns, live_streams=live)
        )
        self._credit.add(done.index, self._before, after, self._window)
        self._before = self._window = None

    def _end(self, state: str) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._window is not None:
            self._health.close_window(self._window)
        self._before = self._window = None
        self._arms.active = self._resume_with
        self.state = state
        self._credit.resume()
