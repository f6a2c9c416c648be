"""Stalled streams: one sweep over all of them finds those whose upstream has gone silent.

A timer per stream, re-armed on every read, would cost the hot path a microsecond or two per chunk.  The sweep
asks each stream whether anything was heard of its upstream since the sweep before.  A
stream that waits for its *client* (bytes lie in the client's write buffer) is not stalled, whatever gen does; but
a client that takes none of them for as long has stalled, and is told from one that is slow by the buffer's size.

A connection that is lost without its body's reader being told ends here too: that is what aiohttp does when the
chunked coding is broken.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

__all__ = ["LONGEST_SWEEP_S", "ClientStalledError", "StallWatch", "UpstreamBody", "Watched"]

LONGEST_SWEEP_S = 5.0
_SWEEPS_PER_TIMEOUT = 4  # so a stall is noticed at most a quarter later than the timeout says


class ClientStalledError(Exception):
    """The client has not read for as long as the stall timeout."""


class UpstreamBody(Protocol):
    """What the watch must know of a body that is being received."""

    def heard(self) -> bool:
        """Whether anything has been received since this was last asked."""

    @property
    def closed(self) -> asyncio.Future[None] | None:
        """Done when the connection is closed; None if the body's reader learns of that by itself."""

    @property
    def over(self) -> bool:
        """Whether the body's reader knows that it has ended, well or badly."""


class _NothingMore:
    """The body of which nothing more is to come."""

    closed = None
    over = True

    def heard(self) -> bool:
        return False


_NOTHING_MORE = _NothingMore()


@dataclass(slots=True, eq=False)
class Watched:
    """One live stream: its upstream body, its client's transport, and the timeout to let expire.

    ``lost`` tells, once that has expired, that the upstream's connection broke rather than went silent, and
    ``client_stalled`` that it was the client who did.
    """

    body: UpstreamBody
    client: asyncio.Transport | None
    deadline: asyncio.Timeout
    since_s: float
    begun: bool = False
    unsent_bytes: int = 0
    lost: bool = False
    client_stalled: bool = False
    forget: Callable[[], object] = field(default=lambda: None)


class StallWatch:
    """Ends streams that got no first byte, or no further one, for as long as the settings say."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, first_byte_timeout_s: float, stall_timeout_s: float) -> None:
        self._loop = loop
        self._first_byte_timeout_s = first_byte_timeout_s
        self._stall_timeout_s = stall_timeout_s
        shortest_s = min(first_byte_timeout_s, stall_timeout_s)
        self._sweep_s = min(LONGEST_SWEEP_S, shortest_s / _SWEEPS_PER_TIMEOUT)
        self._streams: set[Watched] = set()
        self._timer: asyncio.TimerHandle | None = None

    def enter(self, body: UpstreamBody, client: asyncio.Transport | None, deadline: asyncio.Timeout) -> Watched:
        """Watch a stream from now on; give what this returns to `leave`."""
        watched = Watched(body, client, deadline, self._loop.time())
        self._streams.add(watched)
        if self._timer is None:
            self._timer = self._loop.call_later(self._sweep_s, self._sweep)
        if (closed := body.closed) is not None:
            callback = partial(self._connection_closed, watched)
            closed.add_done_callback(callback)
            watched.forget = partial(closed.remove_done_callback, callback)
        return watched

    def leave(self, watched: Watched) -> None:
        """Watch it no more."""
        self._streams.remove(watched)
        watched.forget()

    async def while_read(self, client: asyncio.Transport | None, sending: Awaitable[None]) -> None:
        """Await ``sending`` for as long as ``client`` takes some of it now and then.  ClientStalledError."""
        try:
            async with asyncio.timeout(None) as deadline:
                watched = self.enter(_NOTHING_MORE, client, deadline)
                watched.begun = True
                try:
                    await sending
                finally:
                    self.leave(watched)
        except TimeoutError:
            raise ClientStalledError from None

    def _connection_closed(self, watched: Watched, closed: asyncio.Future[None]) -> None:
        if not closed.cancelled():
            closed.exception()  # retrieved, or asyncio complains
        if watched in self._streams and not watched.body.over:
            watched.lost = self._expire(watched)

    def close(self) -> None:
        """Sweep no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _sweep(self) -> None:
        now_s = self._loop.time()
        for watched in self._streams:
            heard = watched.body.heard()
            before, watched.unsent_bytes = watched.unsent_bytes, _unsent(watched.client)
            if heard or watched.unsent_bytes != before:
                watched.begun, watched.since_s = watched.begun or heard, now_s
                continue
            limit_s = self._stall_timeout_s if watched.begun else self._first_byte_timeout_s
            if now_s - watched.since_s >= limit_s:
                watched.client_stalled = watched.unsent_bytes > 0
                self._expire(watched)
        self._timer = self._loop.call_later(self._sweep_s, self._sweep) if self._streams else None

    def _expire(self, watched: Watched) -> bool:
        """End the stream; False if that is under way already (a stall and a loss may coincide)."""
        if watched.deadline.expired():
            return False
        watched.deadline.reschedule(self._loop.time())
        return True


def _unsent(client: asyncio.Transport | None) -> int:
    return 0 if client is None else client.get_write_buffer_size()
