"""Stalled streams: one sweep over all of them finds those whose upstream has gone silent.

A timer per stream, re-armed on every read, would cost the hot path a microsecond or two per chunk.  The sweep
compares the bytes each upstream body has received with what it saw before; the relay itself does nothing.  A
stream that waits for its *client* (bytes lie in the client's write buffer) is not stalled, whatever gen does.

A connection that is lost without its body's reader being told ends here too: that is what aiohttp does when the
chunked coding is broken.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from aiohttp import ClientResponse, StreamReader

__all__ = ["LONGEST_SWEEP_S", "StallWatch", "Watched"]

LONGEST_SWEEP_S = 5.0
_SWEEPS_PER_TIMEOUT = 4  # so a stall is noticed at most a quarter later than the timeout says


@dataclass(slots=True, eq=False)
class Watched:
    """One live stream: its upstream body, its client's transport, and the timeout to let expire.

    ``lost`` tells, once that has expired, that the upstream's connection broke rather than went silent.
    """

    content: StreamReader
    client: asyncio.Transport | None
    deadline: asyncio.Timeout
    since_s: float
    seen_bytes: int = 0
    lost: bool = False
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

    def enter(self, response: ClientResponse, client: asyncio.Transport | None, deadline: asyncio.Timeout) -> Watched:
        """Watch a stream from now on; give what this returns to `leave`."""
        watched = Watched(response.content, client, deadline, self._loop.time())
        self._streams.add(watched)
        if self._timer is None:
            self._timer = self._loop.call_later(self._sweep_s, self._sweep)
        # A body that came whole with its head has given its connection back already.
        protocol = None if response.connection is None else response.connection.protocol
        if protocol is not None and (closed := protocol.closed) is not None:
            callback = partial(self._connection_closed, watched)
            closed.add_done_callback(callback)
            watched.forget = partial(closed.remove_done_callback, callback)
        return watched

    def leave(self, watched: Watched) -> None:
        """Watch it no more."""
        self._streams.remove(watched)
        watched.forget()

    def _connection_closed(self, watched: Watched, closed: asyncio.Future[None]) -> None:
        if not closed.cancelled():
            closed.exception()  # retrieved, or asyncio complains
        content = watched.content
        if watched in self._streams and not content.is_eof() and content.exception() is None:
            watched.lost = self._expire(watched)

    def close(self) -> None:
        """Sweep no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _sweep(self) -> None:
        now_s = self._loop.time()
        for watched in self._streams:
            received = watched.content.total_bytes
            client_is_slow = watched.client is not None and watched.client.get_write_buffer_size() > 0
            if received != watched.seen_bytes or client_is_slow:
                watched.seen_bytes, watched.since_s = received, now_s
                continue
            limit_s = self._stall_timeout_s if received else self._first_byte_timeout_s
            if now_s - watched.since_s >= limit_s:
                self._expire(watched)
        self._timer = self._loop.call_later(self._sweep_s, self._sweep) if self._streams else None

    def _expire(self, watched: Watched) -> bool:
        """End the stream; False if that is under way already (a stall and a loss may coincide)."""
        if watched.deadline.expired():
            return False
        watched.deadline.reschedule(self._loop.time())
        return True
