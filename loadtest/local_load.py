"""The load of a Locust process that works alone: its users' copies are sent here, whole."""

from __future__ import annotations

from typing import Any

import gevent
from gevent.event import Event
from locust.exception import StopTest
from locust.runners import LocalRunner

from loadtest.copies import Copies
from loadtest.session import LoadSession
from sim.core.settings import SettingError

__all__ = ["LocalLoad", "end_test"]


class LocalLoad:
    """Numbers copies, sends them, and ends the test when all are over, unless a LoadTestShape does."""

    def __init__(self, environment: Any, runner: LocalRunner, session: LoadSession) -> None:
        self._environment = environment
        self._runner = runner
        self._session = session
        self._copies = Copies()
        environment.events.test_start.add_listener(self._begin)

    def _begin(self, environment: Any, **_: Any) -> None:
        """A test begins anew, with the host that the web UI's form may have changed."""
        self._copies = Copies()
        try:
            self._session.begin(environment.host)
        except SettingError as error:
            raise StopTest(str(error)) from None

    def carry(self, stopping: Event) -> None:
        """Send one copy, if another one is wanted."""
        copies = self._copies
        number = copies.ask(self._runner.target_user_count)
        if number is None:
            return
        over = False
        try:
            self._session.run_copy(stopping, number)
            over = not stopping.is_set()
        finally:
            if not over:
                copies.stop(number)
            copies.end(number)
        shaped = self._environment.shape_class is not None
        if over and not shaped and copies.all_over(self._runner.target_user_count):
            gevent.spawn(end_test, self._environment, self._runner)

    def close(self) -> None:
        """Write the results.  OSError if they cannot be written."""
        self._session.close()


def end_test(environment: Any, runner: Any) -> None:
    """End a headless Locust; with its web UI, stop the test and stay."""
    options = environment.parsed_options
    if options is not None and options.headless:
        runner.quit()
    else:
        runner.stop()
