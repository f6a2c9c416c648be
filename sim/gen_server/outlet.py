"""Where a stream's bytes leave: one HTTP chunk per write, straight to the connection's transport.

aiohttp reads the request, sends the headers with the first write and ends the body; the writes between go past
it, framed here, since a `StreamResponse.write` per token costs twice what the kernel's send does.  As long as
nothing waits in the transport, whole chunks go past that too, straight to the socket: uvloop would keep them until
the end of the loop's turn, behind all other streams' tokens, and what the clock said of them before would be wrong
by as much.  Writes may be
cut in two at an offset, to test relays; the rest of a cut write follows a little later, because two sends in a
row reach a reader as one.

Which bytes to write, and when, is not here.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable

from aiohttp import web

from sim.service.wheel import TimerWheel

__all__ = ["Outlet"]

_APART_NS = 2_000_000
"""Between two writes that must reach the reader in two reads: longer than its wake-up takes."""


class Outlet:
    """The way out of one stream.

    Until the connection is attached, writes wait; ``first_write`` is done when there is one.  A hang-up makes
    further writes vanish: ``gone`` says so, and the handler's cancellation does the rest.
    """

    __slots__ = (
        "_chunked", "_clock", "_early", "_fd", "_is_closing", "_later", "_next_ns", "_on_end", "_split_at",
        "_transport", "_wheel", "first_write", "gone",
    )  # fmt: skip

    def __init__(
        self, first_write: asyncio.Future[None], wheel: TimerWheel, clock: Callable[[], int], split_at: int
    ) -> None:
        self.first_write = first_write
        self.gone = False
        self._wheel = wheel
        self._clock = clock
        self._split_at = split_at
        self._transport: asyncio.WriteTransport | None = None
        self._is_closing: Callable[[], bool] = bool
        self._fd = -1  # of the socket, when a write is one whole chunk
        self._chunked = True
        self._early: list[bytes] = []
        self._later: deque[bytes] = deque()
        self._next_ns = 0
        self._on_end: Callable[[], None] | None = None

    async def attach(self, request: web.Request, response: web.StreamResponse) -> None:
        """Send headers and what has been written so far; from here on writes go out as they come.

        ConnectionError if the client is gone.
        """
        await response.prepare(request)
        # HTTP/1.0 has no chunks: there the end of the connection ends the body.
        self._chunked = response.headers.get("Transfer-Encoding") == "chunked"
        await response.write(self._early.pop(0))
        transport = request.transport
        if transport is None:
            raise ConnectionResetError("the client hung up")
        self._transport = transport
        for data in self._early:
            self._put(data)
        self._early.clear()
        if self._chunked and not self._split_at:
            self._is_closing = transport.is_closing
            self._fd = transport.get_extra_info("socket").fileno()

    def clear(self) -> bool:
        """Whether `send` may be used: writes are whole chunks, and none waits."""
        transport = self._transport
        return transport is not None and self._fd >= 0 and not (self._later or transport.get_write_buffer_size())

    def send(self, chunk: bytes) -> bool:
        """Give ``chunk``, an HTTP chunk with its frame, to the socket at once; False if the way is no longer clear.

        Only while it is (`clear`).  What the socket does not take waits in the transport as any write does.
        """
        # A transport that closes gives its descriptor back, and the next connection may get the same one.
        if self._is_closing():
            self.gone = True
            return False
        try:
            taken = os.write(self._fd, chunk)
        except BlockingIOError:
            taken = 0
        except OSError:
            self.gone = True
            return False
        if taken == len(chunk):
            return True
        assert self._transport is not None
        self._transport.write(chunk[taken:])
        return False

    def backlog(self) -> int:
        """Bytes written that the client's socket has not taken yet."""
        if self._transport is None:
            return sum(map(len, self._early))
        return self._transport.get_write_buffer_size()

    def write(self, data: bytes) -> int:
        """Write ``data``, now (what still waited goes out before it); the backlog that leaves, bytes."""
        if self._later:
            self._flush()
        if 0 < self._split_at < len(data):
            self._put(data[: self._split_at])
            self._queue(data[self._split_at :])
        else:
            self._put(data)
        return self.backlog()

    def write_apart(self, data: bytes) -> None:
        """Write ``data`` so that the reader gets it in a read of its own."""
        if 0 < self._split_at < len(data):
            self._queue(data[: self._split_at])
            data = data[self._split_at :]
        self._queue(data)

    def end(self, on_end: Callable[[], None]) -> None:
        """Run ``on_end`` once everything is written; never, if the client is gone."""
        if self._later:
            self._on_end = on_end
        elif not self.gone:
            on_end()

    def close(self) -> None:
        """Write nothing more."""
        self.gone = True
        self._flush()
        self._on_end = None
        self._transport, self._fd = None, -1

    def _queue(self, data: bytes) -> None:
        if not self._later:
            self._next_ns = self._clock() + _APART_NS
            self._wheel.schedule(self._next_ns, self._write_next)
        self._later.append(data)

    def _flush(self) -> None:
        if self._later:
            self._wheel.cancel(self._next_ns, self._write_next)
        while self._later:
            self._put(self._later.popleft())

    def _write_next(self, _due_ns: int, now_ns: int) -> None:
        self._put(self._later.popleft())
        if self._later:
            self._next_ns = now_ns + _APART_NS
            self._wheel.schedule(self._next_ns, self._write_next)
        elif self._on_end is not None and not self.gone:
            on_end, self._on_end = self._on_end, None
            on_end()

    def _put(self, data: bytes) -> None:
        if self.gone:
            return
        transport = self._transport
        if transport is None:
            self._early.append(data)
            if not self.first_write.done():
                self.first_write.set_result(None)
            return
        try:
            transport.write(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)
        except RuntimeError:  # uvloop, of a closed transport
            self.gone = True
