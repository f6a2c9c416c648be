"""A worker's part of a distributed load: its share of every copy, sent when the master says, and its reports.

The worker learns from the master what to send.  Its users send nothing themselves: each asks the master for a copy,
which is then split among all workers, and waits until every share of it is over.  What it has counted goes with
Locust's own reports, every 3 s, and at once when a test ends.
"""

from __future__ import annotations

import dataclasses
import io
import itertools
import json
import logging
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gevent
from gevent.event import Event
from locust.runners import WorkerRunner

from loadtest import load_messages as messages
from loadtest.load_arguments import check_limits
from loadtest.machine_clock import MachineClock
from loadtest.plan import LoadPlan
from loadtest.recorder import Recorder, Totals
from loadtest.recorder_state import state_of, totals_json
from loadtest.session import LoadSession
from loadtest.settler import Told
from loadtest.shares import Share
from sim.core.settings import SettingError
from sim.service.health import LoopHealth

__all__ = ["WorkerLoad"]

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Running:
    """A share that is being sent."""

    stopping: Event
    greenlet: Any = None  # None until it is spawned


class WorkerLoad:
    """Made once per worker, when it has reached its master.  It is a `LoadView`.

    ``index`` is the share it wants of every copy (None: in the order of connecting), ``ops`` its operations port's URL.
    """

    def __init__(
        self,
        environment: Any,
        runner: WorkerRunner,
        health: LoopHealth,
        tell: Callable[[Told], None],
        index: int | None,
    ) -> None:
        self.ops: str | None = None
        self._environment = environment
        self._runner = runner
        self._health = health
        self._tell = tell
        self._index = index
        self._clock = MachineClock.here()
        self._session: LoadSession | None = None
        self._nothing = Recorder()
        self._lines = io.StringIO()
        self._reported_ns = 0  # stamp of the newest health sample that was reported
        self._shift_ns = 0  # from this machine's clock to the master's
        self._test = self._settled = -1
        self._shares: dict[int, _Running] = {}
        self._users = itertools.count()
        self._waiting: dict[str, Event] = {}
        for name, listener in (
            (messages.COPY, self._on_copy),
            (messages.STOP, self._on_stop),
            (messages.RELEASE, self._on_release),
        ):
            runner.register_message(name, listener)
        # These take their time.
        runner.register_message(messages.PREPARE, self._on_prepare, concurrent=True)
        runner.register_message(messages.END, self._on_end, concurrent=True)
        environment.events.report_to_master.add_listener(self._add_report)

    @property
    def recorder(self) -> Recorder:
        """What this worker has counted."""
        return self._nothing if self._session is None else self._session.recorder

    def live(self) -> int:
        """Streams of this worker that are not recorded yet."""
        return 0 if self._session is None else self._session.live()

    def totals(self) -> Totals:
        """Tokens and events of this worker's streams."""
        return Totals() if self._session is None else self._session.totals()

    def report(self) -> None:
        """Send Locust's report, with ours in it, now."""
        data: dict[str, Any] = {}
        self._environment.events.report_to_master.fire(client_id=self._runner.client_id, data=data)
        self._runner.send_message("stats", data)

    def carry(self, stopping: Event) -> None:
        """Ask for a copy and wait until no worker has anything to do for it."""
        user = f"{self._runner.client_id}/{next(self._users)}"
        released = self._waiting[user] = Event()
        self._send(messages.ASK, user=user)
        try:
            gevent.wait([stopping, released], count=1)
            if not released.is_set():
                self._send(messages.WITHDRAW, user=user, forced=False)
                released.wait()
        finally:
            del self._waiting[user]
            if not released.is_set():
                self._send(messages.WITHDRAW, user=user, forced=True)

    def close(self) -> None:
        """Close every share and send the last report, if the master has not had it yet."""
        if self._session is not None and not self._session.closed:
            if self._settled != self._test:
                self._end_shares(0.0)
            self._session.close()

    def _on_prepare(self, msg: Any, **_: Any) -> None:
        data = msg.data
        self._test = data["test"]
        try:
            self._prepare(LoadPlan.from_json(data["plan"]), data["users"] / data["workers"])
        except SettingError as error:
            self._send(messages.REFUSED, test=data["test"], message=str(error))
            return
        self._send(messages.PREPARED, test=data["test"])

    def _prepare(self, plan: LoadPlan, copies: float) -> None:
        check_limits(plan.settings, copies)
        if self._session is not None:
            if dataclasses.replace(self._session.plan, host=plan.host) == plan:
                self._session.begin(plan.host)
                return
            self._session.close()
        self._session = LoadSession(plan, self._health, self._tell, self._lines)

    def _on_copy(self, msg: Any, **_: Any) -> None:
        data = msg.data
        if data["test"] != self._test:
            return
        self._shift_ns = self._clock.to(MachineClock.from_json(data["clock"]))
        running = self._shares[data["number"]] = _Running(Event())
        start_ns = data["start_ns"] - self._shift_ns
        share = Share(data["index"], data["of"])
        running.greenlet = gevent.spawn(self._send_share, data["number"], share, start_ns, running.stopping)

    def _send_share(self, number: int, share: Share, start_ns: int, stopping: Event) -> None:
        assert self._session is not None
        test = self._test
        try:
            self._session.run_copy(stopping, number, share, start_ns)
        except SettingError as error:
            self._send(messages.REFUSED, test=test, message=str(error))
        except Exception as error:
            log.exception("copy %d could not be sent", number)
            self._send(messages.REFUSED, test=test, message=f"copy {number} could not be sent: {error!r}")
        finally:
            self._shares.pop(number, None)
            self._send(messages.OVER, test=test, number=number)

    def _on_stop(self, msg: Any, **_: Any) -> None:
        running = self._shares.get(msg.data["number"])
        if running is None or msg.data["test"] != self._test:
            return
        running.stopping.set()
        if msg.data["forced"] and running.greenlet is not None:
            running.greenlet.kill(block=False)

    def _on_release(self, msg: Any, **_: Any) -> None:
        released = self._waiting.get(msg.data["user"])
        if released is not None:
            released.set()

    def _on_end(self, msg: Any, **_: Any) -> None:
        if msg.data["test"] == self._test:
            self._end_shares(msg.data["within_s"])

    def _end_shares(self, within_s: float) -> None:
        """Stop every share, wait a while for live streams, settle what there is, and report."""
        for running in self._shares.values():
            running.stopping.set()
        greenlets = [running.greenlet for running in self._shares.values() if running.greenlet is not None]
        if within_s:
            gevent.joinall(greenlets, timeout=within_s)
        gevent.killall(greenlets)
        if self._session is not None:
            self._session.settle()
        self._settled = self._test
        self.report()

    def _add_report(self, data: dict[str, Any], **_: Any) -> None:
        session = self._session
        lines = self._lines.getvalue()
        self._lines.seek(0)
        self._lines.truncate()
        data[messages.REPORT] = {
            "share": self._index,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "ops": self.ops,
            "start_ns": 0 if session is None or not session.start_ns else session.start_ns + self._shift_ns,
            "cpu_s": 0.0 if session is None else session.cpu_s,
            "counted": None if session is None else state_of(session.recorder),
            "live": self.live(),
            "totals": totals_json(self.totals()),
            "lines": self._on_masters_clock(lines),
            "health": self._new_health(),
            "settled": self._settled,
        }

    def _new_health(self) -> dict[str, Any]:
        """Histograms as they stand, and the samples that no report held yet."""
        health = self._health.to_json()
        fresh = [sample for sample in health["samples"] if sample["t_ns"] > self._reported_ns]
        self._reported_ns = max((sample["t_ns"] for sample in fresh), default=self._reported_ns)
        moved = [{**sample, "t_ns": sample["t_ns"] + self._shift_ns} for sample in fresh]
        return {**health, "samples": moved}

    def _on_masters_clock(self, lines: str) -> str:
        if not self._shift_ns:
            return lines
        moved = []
        for line in lines.splitlines():
            record = json.loads(line)
            for key, value in record.items():
                if key.endswith("_ns") and value is not None:
                    record[key] = value + self._shift_ns
            moved.append(json.dumps(record, separators=(",", ":")) + "\n")
        return "".join(moved)

    def _send(self, name: str, **data: Any) -> None:
        self._runner.send_message(name, data)
