"""One pump for many sockets: requests out, replies in, all from the gevent hub's own callbacks.

A greenlet per stream would be switched to at every token, twice the cost of reading it.  So no greenlet waits for
a socket here: the hub calls `Exchange` when one is readable, it reads once, feeds the stream's reader and returns.
A callback never blocks (plain non-blocking sockets, bodies sent piece by piece) and never raises.

When to send is in `session`, what came in `stream_reader`, connections in `connections`.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable
from typing import Any

import gevent

from loadtest.connections import Connections
from loadtest.outcomes import ABORTED, CANCELLED
from loadtest.stream_reader import ENDED, FIRST_TOKEN, MORE, READ_BYTES, StreamReader
from loadtest.workload import PlannedRequest

__all__ = ["Exchange", "Pump"]

_READ, _WRITE = 1, 2
_NOTHING = memoryview(b"")

log = logging.getLogger(__name__)


class Exchange:
    """One request and its reply.  Times are CLOCK_MONOTONIC ns; ``end_ns`` is 0 while it is live.

    ``ready_ns``: when the load was free to send it, after ``planned_ns`` where a cap on concurrency held it back.
    """

    __slots__ = (
        "_connecting", "_fd", "_pump", "_read_watcher", "_reusable", "_socket", "_unsent", "_write_watcher", "end_ns",
        "planned_ns", "reader", "ready_ns", "request", "sent_ns",
    )  # fmt: skip

    def __init__(
        self,
        pump: Pump,
        reader: StreamReader,
        data: bytes,
        planned_ns: int,
        request: PlannedRequest,
        ready_ns: int = 0,
    ) -> None:
        self.reader = reader
        self.request = request
        self.planned_ns = planned_ns
        self.ready_ns = max(planned_ns, ready_ns)
        self.sent_ns = 0
        self.end_ns = 0
        self._pump = pump
        self._unsent = memoryview(data)
        self._connecting = False
        self._reusable = True
        self._socket: socket.socket | None = None
        self._fd = -1
        self._read_watcher: Any = None
        self._write_watcher: Any = None

    def start(self) -> None:
        """Connect, or take a kept connection, and begin to send."""
        self.sent_ns = time.monotonic_ns()
        try:
            self._socket, self._connecting = self._pump.connections.take()
        except OSError as error:
            self._fail("refused_connect", _words(error))
            return
        self._fd = self._socket.fileno()
        if not self._connecting:
            self._start_reading()
            self._send()
        if self._unsent and not self.end_ns:
            self._write_watcher = self._pump.loop.io(self._fd, _WRITE)
            self._write_watcher.start(self._writable)

    def close(self, reason: str, detail: str = "") -> None:
        """End it from this side."""
        if not self.end_ns:
            self._fail(reason, detail)

    def fail_ours(self, error: Exception) -> None:
        """End it for a fault of the load's own."""
        log.error("a fault of the load's own ends one stream", exc_info=error)
        if not self.end_ns:
            self._fail("client_error", repr(error))

    def _start_reading(self) -> None:
        self._read_watcher = self._pump.loop.io(self._fd, _READ)
        self._read_watcher.start(self._readable)

    def _readable(self) -> None:
        reader = self.reader
        try:
            data = os.read(self._fd, reader.read_size)  # a socket's recv costs twice as much to call
        except BlockingIOError:
            return
        except OSError as error:
            self._broken(error)
            return
        try:
            if not reader.took(data, time.monotonic_ns()):
                self._take(data)
        except Exception as error:  # noqa: BLE001  one stream's trouble must not end the pump
            self.fail_ours(error)

    def _take(self, data: bytes) -> None:
        """Take a read that is not just the next token."""
        reader = self.reader
        if not data:
            reader.eof()
            self._tell(ENDED)
            return
        if len(data) == reader.read_size:
            data += self._read_rest()
        news = reader.feed(data, time.monotonic_ns())
        if news != MORE:
            self._tell(news)
        if reader.stop_after and reader.tokens >= reader.stop_after:
            self.close(CANCELLED)

    def _read_rest(self) -> bytes:
        """What more there is to read at once, up to READ_BYTES; an end of it is left to the next read."""
        try:
            return os.read(self._fd, READ_BYTES)
        except BlockingIOError:
            return b""
        except OSError as error:  # told once only: after what came before it
            self._pump.loop.run_callback(self._broken, error)
            return b""

    def _broken(self, error: OSError) -> None:
        if not self.end_ns:
            self.reader.lost(_words(error))
            self._end()

    def _writable(self) -> None:
        try:
            if self._connecting:
                assert self._socket is not None
                number = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if number:
                    self._fail("refused_connect", os.strerror(number))
                    return
                self._connecting = False
                self._start_reading()
            self._send()
        except Exception as error:  # noqa: BLE001  as above
            self.fail_ours(error)

    def _send(self) -> None:
        assert self._socket is not None
        try:
            sent = self._socket.send(self._unsent)
        except BlockingIOError:
            return
        except OSError:
            # The server no longer listens; what it has answered before (a refusal) is still to be read.
            self._reusable = False
            sent = len(self._unsent)
        self._unsent = self._unsent[sent:]
        if not self._unsent:
            self._unsent = _NOTHING  # a view of nothing would still hold the body's memory
            self._stop_writing()

    def _tell(self, news: int) -> None:
        if news & FIRST_TOKEN:
            self._pump.on_first_token(self)
        if news & ENDED:
            self._end()

    def _fail(self, reason: str, detail: str) -> None:
        self.reader.fail(reason, detail)
        self._end()

    def _stop_writing(self) -> None:
        if self._write_watcher is not None:
            self._write_watcher.stop()
            self._write_watcher.close()
            self._write_watcher = None

    def _end(self) -> None:
        self.end_ns = time.monotonic_ns()
        self._stop_writing()
        if self._read_watcher is not None:
            self._read_watcher.stop()
            self._read_watcher.close()
            self._read_watcher = None
        if self._socket is not None:
            http = self.reader.http
            keep = self._reusable and http.complete and http.reusable and not self._unsent
            self._pump.connections.release(self._socket, keep=keep)
            self._socket = None
            self._fd = -1  # may be another stream's from here on
        self._pump.ended(self)


class Pump:
    """All exchanges with one server."""

    def __init__(
        self,
        connections: Connections,
        on_first_token: Callable[[Exchange], None],
        on_end: Callable[[Exchange], None],
    ) -> None:
        self.loop = gevent.get_hub().loop
        self.connections = connections
        self.live: set[Exchange] = set()
        self.on_first_token = on_first_token
        self._on_end = on_end

    def send(
        self, reader: StreamReader, data: bytes, planned_ns: int, request: PlannedRequest, ready_ns: int = 0
    ) -> Exchange:
        """Set a request out; the reply comes by callbacks.  What fails, even of our own, ends the exchange."""
        exchange = Exchange(self, reader, data, planned_ns, request, ready_ns)
        self.live.add(exchange)
        try:
            exchange.start()
        except Exception as error:  # noqa: BLE001  its slot must come free, and the next request be sent
            exchange.fail_ours(error)
        return exchange

    def sweep(self, timeout_ns: int) -> None:
        """End every exchange that has been silent for longer than ``timeout_ns``."""
        now_ns = time.monotonic_ns()
        for exchange in list(self.live):
            silent_ns = now_ns - max(exchange.reader.heard_ns, exchange.sent_ns)
            if silent_ns > timeout_ns:
                exchange.close("timeout", f"silent for {silent_ns / 1e9:.1f} s")

    def abort(self) -> None:
        """End every exchange as aborted."""
        for exchange in list(self.live):
            exchange.close(ABORTED)

    def close(self) -> None:
        """End every exchange as aborted and drop the kept connections."""
        self.abort()
        self.connections.close()

    def ended(self, exchange: Exchange) -> None:
        """An exchange is over."""
        self.live.discard(exchange)
        self._on_end(exchange)


def _words(error: OSError) -> str:
    return error.strerror or str(error)
