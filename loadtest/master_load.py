"""The master's part of a distributed load: it numbers copies, splits each among all workers, and writes the results.

A test's workers are those that are there when its first copy is asked for; one that comes later waits for the next
test.  A worker that is not heard of any more is gone: its shares are closed, copies that begin later are split among
the others, and what it should have reported is counted as lost.  Nothing is sent twice.
"""

from __future__ import annotations

import dataclasses
import logging
import sys
import time
from typing import Any

import gevent
from gevent.event import Event
from gevent.queue import Queue
from locust.runners import STATE_MISSING

from loadtest import load_messages as messages
from loadtest.copies import Copies
from loadtest.local_load import end_test
from loadtest.lost_streams import GivenCopy
from loadtest.machine_clock import MachineClock
from loadtest.master_results import MasterResults
from loadtest.plan import LoadPlan
from loadtest.recorder import Recorder, Totals
from sim.core.settings import SettingError
from sim.service.health import LoopHealth

__all__ = ["MasterLoad"]

LEAD_NS = 1_000_000_000
"""From the giving out of a copy to its first due time: for the message, the schedule, and the first requests."""
HELLO_S = 10.0
"""What workers that Locust knows get to make themselves known to us."""
SETTLE_S = 30.0
"""What workers get to report once a test has ended, over Locust's own stop timeout."""
WATCH_S = 0.5

log = logging.getLogger(__name__)


class MasterLoad:
    """Made once per master.  It is a `LoadView` of all workers together.

    SettingError if the trace cannot be read or the results' directory cannot be written.
    """

    def __init__(self, environment: Any, runner: Any, plan: LoadPlan, health: LoopHealth) -> None:
        self._environment = environment
        self._runner = runner
        self._plan = plan
        self._clock = MachineClock.here()
        self._results = MasterResults(plan, health)
        self._reports = self._results.reports
        self._reported = Event()
        self._asks: Queue[tuple[str, str]] = Queue()
        self._test = -1
        self._earlier: list[GivenCopy] = []  # reports count from a worker's start, so lost streams do too
        self._running = False
        self._closed = False
        self._begin()
        for name, listener in (
            (messages.ASK, self._on_ask),
            (messages.WITHDRAW, self._on_withdraw),
            (messages.PREPARED, self._on_prepared),
            (messages.REFUSED, self._on_refused),
            (messages.OVER, self._on_over),
        ):
            runner.register_message(name, listener)
        environment.events.worker_report.add_listener(self._on_report)
        environment.events.test_start.add_listener(self._on_test_start)
        environment.events.test_stopping.add_listener(self._on_test_stopping)
        gevent.spawn(self._give_out)
        gevent.spawn(self._watch)

    @property
    def recorder(self) -> Recorder:
        """What all workers have counted."""
        return self._reports.recorder

    def live(self) -> int:
        """Live streams of all workers."""
        return self._reports.live()

    def totals(self) -> Totals:
        """Tokens and events of all workers' streams."""
        return self._reports.totals()

    def close(self) -> None:
        """Have the workers settle, and write the results.  OSError if they cannot be written."""
        if self._closed:
            return
        self._end()
        self._closed = True
        self._results.close()

    def _begin(self) -> None:
        self._test += 1
        self._copies = Copies()
        self._given: dict[int, GivenCopy] = {}
        self._withdrawn: set[str] = set()
        self._workers: list[str] = []
        self._prepared: set[str] = set()
        self._refused = False
        self._gone: set[str] = set()

    def _on_test_start(self, **_: Any) -> None:
        self._begin()
        self._running = True

    def _on_test_stopping(self, **_: Any) -> None:
        self._end()

    def _on_ask(self, msg: Any, **_: Any) -> None:
        self._asks.put((msg.node_id, msg.data["user"]))

    def _give_out(self) -> None:
        for worker, user in self._asks:
            if not self._running or user in self._withdrawn:
                continue
            if not self._workers:
                self._prepare()
            if self._running and not self._refused:
                self._give(worker, user)

    def _prepare(self) -> None:
        """Have every worker make itself ready for this test's load."""
        deadline = time.monotonic() + HELLO_S
        while set(self._heard()) - set(self._reports.workers) and time.monotonic() < deadline:
            gevent.sleep(0.02)  # another process's first words: Locust has no event for them
        found = [worker for worker in self._heard() if worker in self._reports.workers]
        self._workers = sorted(found, key=self._place)
        for index, worker in enumerate(self._workers):
            self._reports.workers[worker].index = index
        try:
            plan = dataclasses.replace(self._plan, host=self._environment.host or self._plan.host, out=None, ops=None)
        except SettingError as error:
            self._refuse(str(error))
            return
        users = self._runner.target_user_count
        for worker in self._workers:
            self._send(worker, messages.PREPARE, plan=plan.to_json(), users=users, workers=len(self._workers))
        while self._running and not self._refused and set(self._present()) - self._prepared:
            gevent.sleep(0.01)

    def _place(self, worker: str) -> tuple[int, int]:
        wanted = self._reports.workers[worker].newest["share"]
        return (sys.maxsize if wanted is None else wanted, self._runner.get_worker_index(worker))

    def _give(self, worker: str, user: str) -> None:
        number = self._copies.ask(self._runner.target_user_count)
        if number is None:
            self._send(worker, messages.RELEASE, user=user)
            return
        sharing = self._present()
        copy = GivenCopy(number, time.monotonic_ns() + LEAD_NS, (worker, user), sharing, open=set(sharing))
        self._given[number] = copy
        common = {"number": number, "start_ns": copy.start_ns, "clock": self._clock.to_json(), "of": len(sharing)}
        for index, one in enumerate(sharing):
            self._send(one, messages.COPY, index=index, **common)

    def _on_withdraw(self, msg: Any, **_: Any) -> None:
        user, forced = msg.data["user"], msg.data["forced"]
        self._withdrawn.add(user)
        if all(copy.owner[1] != user for copy in self._given.values()):
            self._send(msg.node_id, messages.RELEASE, user=user)  # it got no copy, and will get none
        for copy in self._given.values():
            if copy.owner[1] == user and copy.open and self._running:
                self._copies.stop(copy.number)
                copy.stopped_ns = copy.stopped_ns or time.monotonic_ns()
                for worker in copy.open:
                    self._send(worker, messages.STOP, number=copy.number, forced=forced)

    def _on_prepared(self, msg: Any, **_: Any) -> None:
        if msg.data["test"] == self._test:
            self._prepared.add(msg.node_id)

    def _on_refused(self, msg: Any, **_: Any) -> None:
        if msg.data["test"] == self._test and not self._refused:
            self._refuse(f"{self._reports.workers[msg.node_id].name} ({msg.node_id}): {msg.data['message']}")

    def _refuse(self, message: str) -> None:
        """End the test: this load cannot be sent."""
        self._refused = True
        print(f"locust: {message}", file=sys.stderr, flush=True)
        if self._environment.parsed_options.headless:
            self._environment.process_exit_code = 2
        gevent.spawn(end_test, self._environment, self._runner)

    def _on_over(self, msg: Any, **_: Any) -> None:
        copy = self._given.get(msg.data["number"])
        if copy is not None and msg.data["test"] == self._test:
            self._close_share(copy, msg.node_id)

    def _close_share(self, copy: GivenCopy, worker: str) -> None:
        if worker not in copy.open:
            return
        copy.open.discard(worker)
        if copy.open:
            return
        self._copies.end(copy.number)
        self._send(copy.owner[0], messages.RELEASE, user=copy.owner[1])
        self._end_if_over()

    def _end_if_over(self) -> None:
        shaped = self._environment.shape_class is not None
        if self._running and not shaped and self._copies.all_over(self._runner.target_user_count):
            gevent.spawn(end_test, self._environment, self._runner)

    def _on_report(self, client_id: str, data: dict[str, Any], **_: Any) -> None:
        if messages.REPORT not in data:
            return
        self._results.take(client_id, data[messages.REPORT])
        self._reported.set()

    def _heard(self) -> list[str]:
        """Workers that Locust hears of."""
        return [worker.id for worker in self._runner.clients.all if worker.state != STATE_MISSING]

    def _present(self) -> list[str]:
        """Workers of this test that are not gone, in their order."""
        return [worker for worker in self._workers if worker not in self._gone]

    def _watch(self) -> None:
        while True:
            gevent.sleep(WATCH_S)
            if not self._running:
                continue
            heard = self._heard()
            for worker in self._gone.intersection(heard):
                log.warning("%s (%s) is back", self._reports.workers[worker].name, worker)
                self._gone.discard(worker)
            for worker in self._present():
                if worker not in heard:
                    self._lose(worker)
            if self._workers and not self._present():
                end_test(self._environment, self._runner)

    def _lose(self, worker: str) -> None:
        """A worker is gone: nobody waits for it, and what it had asked for and not got the others have to ask for."""
        self._gone.add(worker)
        log.error("%s (%s) is gone; its share is lost", self._reports.workers[worker].name, worker)
        for copy in list(self._given.values()):
            self._close_share(copy, worker)
        wanted = self._runner.target_user_count
        shaped = self._environment.shape_class is not None
        if self._present() and self._runner.spawning_completed and not shaped and self._copies.missing(wanted):
            gevent.spawn(self._runner.start, wanted, self._runner.spawn_rate)

    def _end(self) -> None:
        """Have every worker close its shares and report, and count what the others lost.  Once per test."""
        if not self._running:
            return
        self._running = False
        ended_ns = time.monotonic_ns()
        for copy in self._given.values():
            if copy.open:
                copy.stopped_ns = copy.stopped_ns or ended_ns
        within_s = float(self._environment.stop_timeout or 0.0)
        for worker in self._present():
            self._send(worker, messages.END, within_s=within_s)
        deadline = time.monotonic() + within_s + SETTLE_S
        while self._unsettled() and time.monotonic() < deadline:
            self._reported.clear()
            self._reported.wait(WATCH_S)
        self._earlier += self._given.values()
        self._results.lose({*self._gone, *self._unsettled(heard=False)}, self._earlier)

    def _unsettled(self, *, heard: bool = True) -> list[str]:
        """Workers that have not sent this test's last report; with ``heard`` only those that still may."""
        may = set(self._heard()) if heard else set(self._workers)
        workers = self._reports.workers
        return [one for one in self._present() if one in may and workers[one].newest["settled"] != self._test]

    def _send(self, worker: str, name: str, **data: Any) -> None:
        self._runner.send_message(name, {"test": self._test, **data}, client_id=worker)
