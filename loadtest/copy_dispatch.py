"""How Locust's master deals users out: as ever, but none is moved while it runs.

A user stands for a copy of the load, and moving it would break that copy off and begin another.
"""

from __future__ import annotations

import sys

from locust import runners
from locust.dispatch import UsersDispatcher
from locust.runners import WorkerNode

__all__ = ["CopyDispatcher", "keep_missing_workers"]


class CopyDispatcher(UsersDispatcher):
    """A worker that comes while a test runs gets no users in it."""

    def add_worker(self, worker_node: WorkerNode) -> None:
        """Locust would deal all users out anew here, and stop some."""


def keep_missing_workers() -> None:
    """Keep a worker that went missing in the master's list.

    Locust removes it after a minute and then deals all users out from zero, which stops those that run.
    """
    runners.HEARTBEAT_DEAD_INTERNAL = -sys.maxsize
