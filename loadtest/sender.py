"""The sending of one copy of the load: each request when it is due, whatever became of those before it.

Where a cap on concurrency holds a request back, it keeps its planned time, so its latency holds the wait for a slot;
`ready_ns` is when it had both its time and its slot, and what it was late by after that is the sender's own doing.
In a closed loop a request is planned for the moment in which a slot is free, so none is ever held back.
What is sent is in `workload`, what comes back in `pump`.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from itertools import chain
from typing import Protocol

import gevent
from gevent.event import Event

from loadtest.lengths import Lengths
from loadtest.plan import LoadPlan
from loadtest.recorder import Recorder
from loadtest.shares import SEQS_PER_COPY, Share
from loadtest.slots import slots_of
from loadtest.traces.rows import TraceRow
from loadtest.workload import PlannedRequest, iter_requests

__all__ = ["Sender"]

READS_WAIT_NS = 2_000_000
"""How long requests that are late already may keep the hub from reading; to give way at each would make them later."""


class _Session(Protocol):
    plan: LoadPlan
    recorder: Recorder
    trace: Sequence[TraceRow]
    lengths: Lengths
    closed: bool

    def written(self, request: PlannedRequest) -> bytes: ...

    def send(self, request: PlannedRequest, data: bytes, planned_ns: int, ready_ns: int) -> None: ...


class Sender:
    """Sends ``share`` of copy ``number`` until ``stopping`` is set.  SettingError if its share has no slot."""

    def __init__(self, session: _Session, number: int, share: Share, stopping: Event) -> None:
        self.seqs = range(number * SEQS_PER_COPY, (number + 1) * SEQS_PER_COPY)
        self._session = session
        settings = self._settings = session.plan.settings
        self._closed_loop = settings.arrivals == "closed"
        self._slots = slots_of(settings, share)
        self._requests = (
            dataclasses.replace(request, seq=self.seqs.start + request.seq)
            for request in iter_requests(settings, settings.seed + number, session.trace, session.lengths)
            if share.holds(request.seq)
        )
        self._stopping = stopping
        self._live = 0
        self._idle = Event()
        self._idle.set()
        self._end_ns: int | None = None
        self._gave_way_ns = 0

    def run(self, start_ns: int) -> None:
        """Send, then wait for the replies; the copy's time begins at ``start_ns``."""
        settings = self._settings
        if settings.end_s is not None:
            self._end_ns = start_ns + int((settings.end_s + settings.stop_timeout_s) * 1e9)
        self._send_all(start_ns)
        self._idle.wait(self._left_s())

    def ended(self, end_ns: int) -> None:
        """One of its streams is over."""
        self._live -= 1
        if self._slots is not None:
            self._slots.give_back(end_ns)
        if not self._live:
            self._idle.set()

    def _send_all(self, start_ns: int) -> None:
        request: PlannedRequest | None = None
        try:
            for request in self._requests:
                if not self._send_in_turn(request, start_ns):
                    return
            request = None
        finally:  # also when the greenlet is killed while it waits
            if request is not None:
                self._count_unsent(request, start_ns)

    def _send_in_turn(self, request: PlannedRequest, start_ns: int) -> bool:
        """Send ``request`` when it has its time and its slot; False if the sending is over before that."""
        data = self._session.written(request)
        planned_ns = start_ns + request.due_ns
        if not self._wait_until(planned_ns):
            return False
        free_ns = self._wait_for_slot()
        if free_ns is None or self._session.closed:
            return False
        ready_ns = max(planned_ns, free_ns)
        if self._closed_loop:
            planned_ns = ready_ns
            if self._settings.end_s is not None and planned_ns >= start_ns + int(self._settings.end_s * 1e9):
                return False
        self._session.recorder.planned += 1
        self._live += 1
        self._idle.clear()
        self._session.send(request, data, planned_ns, ready_ns)
        return True

    def _wait_until(self, due_ns: int) -> bool:
        """Sleep until ``due_ns``; False if ``stopping`` came first."""
        now_ns = time.monotonic_ns()
        if due_ns <= now_ns and now_ns - self._gave_way_ns > READS_WAIT_NS:
            gevent.sleep(0)  # late already: let the hub read before the next send
            self._gave_way_ns = time.monotonic_ns()
        while (left_ns := due_ns - time.monotonic_ns()) > 0:
            if self._stopping.wait(left_ns / 1e9):
                return False
        return not self._stopping.is_set()

    def _wait_for_slot(self) -> int | None:
        """Take a slot; since when it was free, or None if ``stopping`` or the copy's end came first."""
        if self._slots is None:
            return 0
        while not self._stopping.is_set() and (left_s := self._left_s()) != 0.0:
            since_ns = self._slots.take()
            if since_ns is not None:
                return since_ns
            gevent.wait((self._slots.freed, self._stopping), left_s, 1)
        return None

    def _left_s(self) -> float | None:
        """Time until everything is to be over, s; None when there is no end."""
        return None if self._end_ns is None else max(0.0, (self._end_ns - time.monotonic_ns()) / 1e9)

    def _count_unsent(self, first: PlannedRequest, start_ns: int) -> None:
        """Count ``first`` and those after it that are due by now, and will not be sent any more."""
        if self._closed_loop:
            return  # without a slot none was due
        passed_ns = time.monotonic_ns() - start_ns
        for request in chain([first], self._requests):
            if request.due_ns > passed_ns:
                break
            self._session.recorder.leave_unsent()
