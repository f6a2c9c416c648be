"""Which server gets the next request: round robin or least outstanding, among those that are ready.

Pure choice over what is given; sending and readiness polls are not here.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Generic, Protocol, TypeVar

__all__ = ["Pool", "Target"]


class Target(Protocol):
    """What a choice looks at."""

    outstanding: int
    ready: bool


T = TypeVar("T", bound=Target)


class Pool(Generic[T]):
    """The servers of one role, in the order given at start."""

    def __init__(self, targets: Sequence[T], routing: str) -> None:
        if routing not in ("round_robin", "least_outstanding"):
            raise ValueError(f"routing {routing!r} is not one of round_robin, least_outstanding")
        self.targets = tuple(targets)
        self._least = routing == "least_outstanding"
        self._next = 0

    @property
    def ready(self) -> bool:
        """True if this role can serve at all."""
        return any(target.ready for target in self.targets)

    def choose(self, tried: Collection[T] = ()) -> T | None:
        """The next ready server, one that was not ``tried`` if there is any; None when no server is ready.

        Least outstanding breaks ties by round robin, so that idle servers share the load.
        """
        count = len(self.targets)
        if count == 1:  # the usual case, twice a request
            only = self.targets[0]
            return only if only.ready else None
        order = [(self._next + step) % count for step in range(count)]
        ready = [i for i in order if self.targets[i].ready]
        fresh = [i for i in ready if self.targets[i] not in tried] or ready
        if not fresh:
            return None
        index = min(fresh, key=lambda i: self.targets[i].outstanding) if self._least else fresh[0]
        self._next = (index + 1) % count
        return self.targets[index]
