"""The sending of one copy of the load: each request when it is due, whatever became of those before it.

Where a cap on concurrency holds a request back, it is late by that: its latency counts from when it was due.
What is sent is in `workload`, what comes back in `pump`.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import Protocol

import gevent
from gevent.event import Event

from loadtest.lengths import Lengths
from loadtest.plan import LoadPlan
from loadtest.recorder import Recorder
from loadtest.shares import Share
from loadtest.traces.rows import TraceRow
from loadtest.workload import PlannedRequest, plan_requests

__all__ = ["SEQS_PER_COPY", "Sender"]

SEQS_PER_COPY = 10_000_000
"""Numbers of requests that a copy has for itself, so that all shares of all copies number alike."""


class _Session(Protocol):
    plan: LoadPlan
    recorder: Recorder
    trace: Sequence[TraceRow]
    lengths: Lengths
    closed: bool

    def written(self, request: PlannedRequest) -> bytes: ...

    def send(self, request: PlannedRequest, data: bytes, due_ns: int) -> None: ...


class Sender:
    """Sends ``share`` of copy ``number`` until ``stopping`` is set."""

    def __init__(self, session: _Session, number: int, share: Share, stopping: Event) -> None:
        self.seqs = range(number * SEQS_PER_COPY, (number + 1) * SEQS_PER_COPY)
        self._session = session
        settings = session.plan.settings
        schedule = plan_requests(settings, settings.seed + number, session.trace, session.lengths)
        self._requests = [
            dataclasses.replace(request, seq=self.seqs.start + request.seq)
            for request in schedule
            if share.holds(request.seq)
        ]
        session.recorder.planned += len(self._requests)
        self._stopping = stopping
        self._live = 0
        self._idle = Event()
        self._idle.set()

    def run(self, start_ns: int) -> None:
        """Send, then wait for the replies; the copy's time begins at ``start_ns``."""
        session, settings = self._session, self._session.plan.settings
        for request in self._requests:
            data = session.written(request)
            due_ns = start_ns + request.due_ns
            if not self._wait_until(due_ns) or session.closed:
                break
            self._live += 1
            self._idle.clear()
            session.send(request, data, due_ns)
        left_s = None
        if settings.end_s is not None:
            end_ns = start_ns + int((settings.end_s + settings.stop_timeout_s) * 1e9)
            left_s = max(0.0, (end_ns - time.monotonic_ns()) / 1e9)
        self._idle.wait(left_s)

    def ended(self) -> None:
        """One of its streams is over."""
        self._live -= 1
        if not self._live:
            self._idle.set()

    def _wait_until(self, due_ns: int) -> bool:
        """Sleep until ``due_ns``; False if ``stopping`` came first."""
        if due_ns <= time.monotonic_ns():
            gevent.sleep(0)  # late already: let the hub read before the next send
        while (left_ns := due_ns - time.monotonic_ns()) > 0:
            if self._stopping.wait(left_ns / 1e9):
                return False
        return not self._stopping.is_set()
