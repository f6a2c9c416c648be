"""The Locust user: one user is one copy of the scenario's load.

A user is no single client here: it stands for one copy, whose whole schedule is sent open loop and whose streams are
read by the session's pump.  So ``-u 1`` is the scenario as written and ``-u 3`` three times that.  Each copy has its
own seed, so what is drawn (Poisson arrivals, azure-* lengths) differs from copy to copy; what is not (staggered and
constant arrivals, fixed lengths, a replayed trace) is the same in all of them.  When a copy is over its user leaves;
when all have, the test ends by itself.

Who sends the copy is `LocalLoad`'s business or, with a master, `WorkerLoad`'s.
"""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

from gevent.event import Event
from locust import User, task
from locust.exception import StopUser

__all__ = ["Load", "StreamUser"]


class Load(Protocol):
    """What sends the copies."""

    def carry(self, stopping: Event) -> None:
        """Send one copy; returns when it is over.  ``stopping`` ends the sending, a kill the streams too."""


class StreamUser(User):
    """One copy of the load of ``load``, which the locustfile sets."""

    load: ClassVar[Load | None] = None

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
        assert self.load is not None
        self.load.carry(self._stopping)
        raise StopUser
