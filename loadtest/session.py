"""The load of one Locust process: sends each user's copy of the schedule on time, and writes the results at the end.

Rule: a request is sent when it is due, whatever became of those before it.
Locust itself (its runner, its command line) is not known here: `users` and `locustfile` are its side.
"""

from __future__ import annotations

import dataclasses
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gevent
from gevent.event import Event

from loadtest.azure_trace import TraceRow, read_azure_csv
from loadtest.connections import Connections
from loadtest.outcomes import ABORTED
from loadtest.plan import LoadPlan, Target
from loadtest.pump import Exchange, Pump
from loadtest.recorder import Recorder, write_json
from loadtest.settler import Settler, Told
from loadtest.stamped_reader import StampedReader
from loadtest.stream_reader import StreamReader
from loadtest.workload import Prompts, plan_requests, request_bytes
from sim.core.settings import SettingError
from sim.service.health import LoopHealth

__all__ = ["LoadSession"]

LEAD_NS = 50_000_000
"""From a user's start to its first due time: enough to make the first request, so that it is not late."""
SWEEP_S = 1.0
FOLD_S = 0.1
"""Between two foldings of the times of tokens: 4,500 at 45,000 tokens a second, 2 ms of a read's delay at the most."""
COPIES_PER_PROCESS = 10_000


class LoadSession:
    """Made once per process, on its hub.  ``tell`` gets every figure for Locust's tables.

    SettingError if the target's name cannot be resolved, the trace cannot be read, or the results' directory
    cannot be written.
    """

    def __init__(self, plan: LoadPlan, health: LoopHealth, tell: Callable[[Told], None]) -> None:
        self.plan = plan
        self.health = health
        self.closed = False
        self._target = Target.parse(plan.host)
        self._trace: Sequence[TraceRow] = ()
        if plan.settings.arrivals == "trace":
            self._trace = read_azure_csv(Path(plan.settings.trace))
        self._prompts = Prompts(plan.settings.seed)
        self._copies: list[_Copy] = []
        self._start_ns = self._start_cpu_ns = 0
        self._out = None if plan.out is None else Path(plan.out)
        self._lines = None
        if self._out is not None:
            try:
                self._lines = (self._out / "streams.jsonl").open("w")
            except OSError as error:
                raise SettingError(f"out: cannot write to {self._out}: {error.strerror}") from None
        self.recorder = Recorder(self._lines)
        self._settler = Settler(plan, self.recorder, tell)
        self._pump = Pump(Connections(*_resolve(self._target)), self._settler.first_token, self._on_end)
        self._sweeper = gevent.spawn(self._sweep)
        self._folder = gevent.spawn(self._fold)

    def begin(self, host: str) -> None:
        """A test starts, perhaps not the first: copies have the same seeds again, and go to ``host``.

        What an earlier test has left live is closed as aborted.  SettingError if ``host`` is no target.
        """
        target = Target.parse(host)
        connections = None if target == self._target else Connections(*_resolve(target))
        self._pump.abort()
        self._copies.clear()
        if connections is not None:
            self._pump.connections.close()
            self._pump.connections = connections
            self._target = target

    def live_readers(self) -> list[StreamReader]:
        """Readers of the streams that are not recorded yet."""
        return [*(exchange.reader for exchange in self._pump.live), *self._settler.unsettled()]

    def run_copy(self, stopping: Event, process: int = 0) -> None:
        """Send one copy of the schedule and wait for its replies; blocks the calling greenlet until it is over.

        ``process`` numbers the load's processes, where there are several: every copy of every one has its own seed.
        ``stopping`` ends the sending; live streams may then finish.  When the greenlet is killed, or the plan's
        end has passed, they are closed as aborted.
        """
        settings = self.plan.settings
        seed = settings.seed + process * COPIES_PER_PROCESS + len(self._copies)
        schedule = plan_requests(settings, seed, self._trace)
        first_seq = self._copies[-1].seqs.stop if self._copies else 0
        self.recorder.planned += len(schedule)
        copy = _Copy(range(first_seq, first_seq + len(schedule)))
        self._copies.append(copy)
        start_ns = time.monotonic_ns() + LEAD_NS
        if not self._start_ns:
            self._start_ns, self._start_cpu_ns = start_ns, time.process_time_ns()
        try:
            for planned in schedule:
                request = dataclasses.replace(planned, seq=first_seq + planned.seq)
                prompt = self._prompts.make(request.seq, request.prompt_tokens)
                data = request_bytes(self._target, settings, prompt, request.output_tokens)
                due_ns = start_ns + request.due_ns
                if not _wait_until(due_ns, stopping) or self.closed:
                    break
                copy.sent()
                reader = self._reader(keep=self._settler.keeps(request.seq))
                exchange = self._pump.send(reader, data, due_ns, request)
                self.recorder.start(due_ns, exchange.sent_ns)
            left_s = None
            if settings.end_s is not None:
                end_ns = start_ns + int((settings.end_s + settings.stop_timeout_s) * 1e9)
                left_s = max(0.0, (end_ns - time.monotonic_ns()) / 1e9)
            copy.idle.wait(left_s)
        finally:
            for exchange in [exchange for exchange in self._pump.live if exchange.request.seq in copy.seqs]:
                exchange.close(ABORTED)

    def close(self) -> None:
        """End every live stream, judge what is left, and write the results.  OSError if they cannot be written."""
        if self.closed:
            return
        self.closed = True
        self._pump.close()
        self._settler.settle_all()
        if self._out is not None and self._lines is not None:
            self._lines.close()
            write_json(self._out / "client.json", self._results())

    def _results(self) -> dict[str, Any]:
        now_ns = time.monotonic_ns()
        health = self.health.to_json()
        samples = health.pop("samples")
        return {
            **self.recorder.to_json(),
            **health,
            "health": samples,
            "cpu_s": (time.process_time_ns() - self._start_cpu_ns) / 1e9 if self._start_ns else 0.0,
            "wall_s": (now_ns - self._start_ns) / 1e9 if self._start_ns else 0.0,
            "start_ns": self._start_ns or now_ns,
            "end_ns": now_ns,
        }

    def _reader(self, *, keep: bool) -> StreamReader:
        if self.plan.gen is not None and self.plan.gen.stamp_sent:
            return StampedReader(self.recorder.gaps, self.recorder.transits, keep=keep)
        return StreamReader(self.recorder.gaps, keep=keep)

    def _on_end(self, exchange: Exchange) -> None:
        for copy in self._copies:
            if exchange.request.seq in copy.seqs:
                copy.ended()
        self._settler.ended(exchange)

    def _fold(self) -> None:
        while True:
            gevent.sleep(FOLD_S)
            self.recorder.fold()

    def _sweep(self) -> None:
        while True:
            gevent.sleep(SWEEP_S)
            self._pump.sweep(int(self.plan.settings.timeout_s * 1e9))


class _Copy:
    """One user's copy of the load: its stream numbers, how many are live, and whether none is."""

    def __init__(self, seqs: range) -> None:
        self.seqs = seqs
        self.idle = Event()
        self.idle.set()
        self._live = 0

    def sent(self) -> None:
        self._live += 1
        self.idle.clear()

    def ended(self) -> None:
        self._live -= 1
        if not self._live:
            self.idle.set()


def _wait_until(due_ns: int, stopping: Event) -> bool:
    """Sleep until ``due_ns``; False if ``stopping`` came first."""
    if due_ns <= time.monotonic_ns():
        gevent.sleep(0)  # late already: let the hub read before the next send
    while (left_ns := due_ns - time.monotonic_ns()) > 0:
        if stopping.wait(left_ns / 1e9):
            return False
    return not stopping.is_set()


def _resolve(target: Target) -> tuple[int, Any]:
    """Address family and address, IPv4 first: "localhost" is both, and servers often listen on that one alone."""
    try:
        found = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise SettingError(f"host: {target.host!r} cannot be resolved: {error.strerror}") from None
    family, _, _, _, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    return family, address
