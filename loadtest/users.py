"""The Locust user: one user is one copy of the scenario's load.

A user is no single client here: it sends its copy's whole schedule, open loop, and its streams are read by the
session's pump.  So ``-u 1`` is the scenario as written and ``-u 3`` three times that.  Each copy has its own seed, so
what is drawn (Poisson arrivals, azure-* lengths) differs from copy to copy; what is not (staggered and constant
arrivals, fixed lengths, a replayed trace) is the same in all of them.  When a user's copy is over it leaves; when all
have, the test ends by itself.
"""

from __future__ import annotations

from typing import Any, ClassVar

import gevent
from gevent.event import Event
from locust import User, task
from locust.exception import StopUser
from locust.runners import LocalRunner

from loadtest.session import LoadSession

__all__ = ["StreamUser"]


class StreamUser(User):
    """Sends one copy of the load of ``session``, which the locustfile sets."""

    session: ClassVar[LoadSession | None] = None
    over: ClassVar[int] = 0  # copies that have ended by themselves in this test

    def __init__(self, environment: Any) -> None:
        super().__init__(environment)
        self._stopping = Event()

    def stop(self, force: bool = False) -> bool:
        """Locust asks the user to stop: send nothing more; unless forced, live streams may finish."""
        self._stopping.set()
        return bool(super().stop(force))

    @task
    def send_schedule(self) -> None:
        """The user's whole life."""
        assert self.session is not None
        self.session.run_copy(self._stopping)
        if not self._stopping.is_set():
            StreamUser.over += 1
            self._end_test_after_the_last()
        raise StopUser

    def _end_test_after_the_last(self) -> None:
        runner = self.environment.runner
        # A worker's test is ended by its master.
        if isinstance(runner, LocalRunner) and StreamUser.over >= runner.target_user_count:
            options = self.environment.parsed_options
            headless = options is not None and options.headless
            gevent.spawn(runner.quit if headless else runner.stop)
