"""The load of one Locust process: sends each user's copy of the schedule on time, and writes the results at the end.

Rule: a request is sent when it is due, whatever became of those before it, unless a cap on concurrency is set.
Locust itself (its runner, its command line) is not known here: `users` and `locustfile` are its side.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TextIO

import gevent
from gevent.event import Event

from loadtest.connections import Connections
from loadtest.goodput import GoodputLimits
from loadtest.lengths import Lengths, OfRows
from loadtest.load_files import lengths_of, trace_of
from loadtest.outcomes import ABORTED
from loadtest.plan import LoadPlan, Target
from loadtest.prompts import Prompts
from loadtest.pump import Exchange, Pump
from loadtest.recorder import Recorder, Totals, write_json
from loadtest.sender import Sender
from loadtest.settler import Settler, Told
from loadtest.shares import SEQS_PER_COPY, Share
from loadtest.stamped_reader import StampedReader
from loadtest.stream_reader import StreamReader
from loadtest.traces.rows import TraceRow
from loadtest.workload import PlannedRequest, request_bytes
from sim.core.settings import SettingError
from sim.service.health import LoopHealth

__all__ = ["LoadSession"]

LEAD_NS = 50_000_000
"""From a user's start to its first due time: enough to make the first request, so that it is not late."""
SWEEP_S = 1.0
FOLD_S = 0.1
"""Between two foldings of the times of tokens: 4,500 at 45,000 tokens a second, 2 ms of a read's delay at the most."""
WHOLE = Share()


class LoadSession:
    """Made once per process, on its hub.  ``tell`` gets every figure for Locust's tables.

    ``lines`` takes a line per stream where the plan names no directory for results.
    SettingError if the target's name cannot be resolved, a trace or lengths cannot be read, or the results' directory
    cannot be written.
    """

    def __init__(
        self, plan: LoadPlan, health: LoopHealth, tell: Callable[[Told], None], lines: TextIO | None = None
    ) -> None:
        self.plan = plan
        self.health = health
        self.closed = False
        self._target = Target.parse(plan.host)
        self.trace: Sequence[TraceRow] = trace_of(plan.settings).rows
        self.lengths: Lengths = OfRows(self.trace) if self.trace else lengths_of(plan.settings)
        self._prompts = Prompts(plan.settings.seed)
        self._copies_begun = 0
        self._senders: dict[int, Sender] = {}
        self._start_ns = self._start_cpu_ns = 0
        self._out = None if plan.out is None else Path(plan.out)
        self._lines = lines
        if self._out is not None:
            try:
                self._lines = (self._out / "streams.jsonl").open("w")
            except OSError as error:
                raise SettingError(f"out: cannot write to {self._out}: {error.strerror}") from None
        self.recorder = Recorder(self._lines, GoodputLimits.of(plan.settings))
        self._settler = Settler(plan, self.recorder, tell)
        self.pump = Pump(Connections(*_resolve(self._target)), self._settler.first_token, self._on_end)
        self._sweeper = gevent.spawn(self._sweep)
        self._folder = gevent.spawn(self._fold)

    def begin(self, host: str) -> None:
        """A test starts, perhaps not the first: copies have the same seeds again, and go to ``host``.

        What an earlier test has left live is closed as aborted.  SettingError if ``host`` is no target.
        """
        target = Target.parse(host)
        connections = None if target == self._target else Connections(*_resolve(target))
        self.pump.abort()
        self._copies_begun = 0
        self._senders.clear()
        if connections is not None:
            self.pump.connections.close()
            self.pump.connections = connections
            self._target = target

    def live(self) -> int:
        """Number of streams that are not recorded yet."""
        return len(self._live_readers())

    def totals(self) -> Totals:
        """Tokens and events of the streams that have ended and of those that have not."""
        return self.recorder.totals(self._live_readers())

    def _live_readers(self) -> list[StreamReader]:
        return [*(exchange.reader for exchange in self.pump.live), *self._settler.unsettled()]

    def settle(self) -> None:
        """Close what is still live as aborted, and judge and record every stream that has ended."""
        self.pump.abort()
        self._settler.settle_all()

    def run_copy(
        self, stopping: Event, number: int | None = None, share: Share = WHOLE, start_ns: int | None = None
    ) -> None:
        """Send this process's share of one copy of the load and wait for the replies; blocks the calling greenlet.

        ``number`` is the copy's among all of the test (default: the next of this process): copy n has seed + n.
        ``start_ns`` is when its time begins (default: now), CLOCK_MONOTONIC.
        ``stopping`` ends the sending; live streams may then finish.  When the greenlet is killed, or the plan's
        end has passed, they are closed as aborted.
        """
        number = self._copies_begun if number is None else number
        self._copies_begun = max(self._copies_begun, number + 1)
        sender = Sender(self, number, share, stopping)
        self._senders[number] = sender
        start_ns = start_ns or time.monotonic_ns() + LEAD_NS
        if not self._start_ns:
            self._start_ns, self._start_cpu_ns = start_ns, time.process_time_ns()
        try:
            sender.run(start_ns)
        finally:
            for exchange in [live for live in self.pump.live if live.request.seq in sender.seqs]:
                exchange.close(ABORTED)

    def written(self, request: PlannedRequest) -> bytes:
        """The bytes of one request, to be made before it is due."""
        prompt = self._prompts.make(request.seq, request.prompt_tokens, request.prefix)
        return request_bytes(self._target, self.plan.settings, prompt, request.output_tokens)

    def send(self, request: PlannedRequest, data: bytes, planned_ns: int, ready_ns: int) -> None:
        """Send one request now; its reply comes by callbacks."""
        reader = self._reader(keep=self._settler.keeps(request.seq), stop_after=request.cancel_after)
        exchange = self.pump.send(reader, data, planned_ns, request, ready_ns)
        self.recorder.start(planned_ns, ready_ns, exchange.sent_ns)

    def close(self) -> None:
        """End every live stream, judge what is left, and write the results.  OSError if they cannot be written."""
        if self.closed:
            return
        self.closed = True
        gevent.killall([self._sweeper, self._folder], block=False)
        self.pump.close()
        self._settler.settle_all()
        if self._out is not None and self._lines is not None:
            self._lines.close()
            write_json(self._out / "client.json", self._results())

    @property
    def start_ns(self) -> int:
        """When the first copy's time began, CLOCK_MONOTONIC; 0 before that."""
        return self._start_ns

    @property
    def cpu_s(self) -> float:
        """CPU time of the process since then."""
        return (time.process_time_ns() - self._start_cpu_ns) / 1e9 if self._start_ns else 0.0

    def _results(self) -> dict[str, Any]:
        now_ns = time.monotonic_ns()
        health = self.health.to_json()
        samples = health.pop("samples")
        return {
            **self.recorder.to_json(),
            **health,
            "health": samples,
            "cpu_s": self.cpu_s,
            "wall_s": (now_ns - self._start_ns) / 1e9 if self._start_ns else 0.0,
            "start_ns": self._start_ns or now_ns,
            "end_ns": now_ns,
        }

    def _reader(self, *, keep: bool, stop_after: int) -> StreamReader:
        if self.plan.gen is not None and self.plan.gen.stamp_sent:
            return StampedReader(self.recorder.token_gaps, self.recorder.transits, keep=keep, stop_after=stop_after)
        return StreamReader(self.recorder.token_gaps, keep=keep, stop_after=stop_after)

    def _on_end(self, exchange: Exchange) -> None:
        sender = self._senders.get(exchange.request.seq // SEQS_PER_COPY)
        if sender is not None:
            sender.ended(exchange.end_ns)
        self._settler.ended(exchange)

    def _fold(self) -> None:
        while True:
            gevent.sleep(FOLD_S)
            self.recorder.fold()

    def _sweep(self) -> None:
        while True:
            gevent.sleep(SWEEP_S)
            self.pump.sweep(int(self.plan.settings.timeout_s * 1e9))


def _resolve(target: Target) -> tuple[int, Any]:
    """Address family and address, IPv4 first: "localhost" is both, and servers often listen on that one alone."""
    try:
        found = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise SettingError(f"host: {target.host!r} cannot be resolved: {error.strerror}") from None
    family, _, _, _, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    return family, address
