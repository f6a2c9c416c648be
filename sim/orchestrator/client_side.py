"""The client's connection while its stream is spliced: aiohttp's own protocol, with an ear to its write buffer.

A client that reads slower than gen streams fills its transport's buffer; the transport says so once, and again
when it has drained.  Passing that on to gen's connection costs nothing per token.
"""

from __future__ import annotations

import asyncio
from typing import cast

__all__ = ["ClientSide"]


class ClientSide(asyncio.Protocol):
    """Stands in front of the protocol of ``client``, to which it passes everything on; `close` takes it away again.

    While ``client`` has more unsent than it likes, nothing is read from ``gen``.
    """

    def __init__(self, client: asyncio.Transport, gen: asyncio.Transport) -> None:
        self._client = client
        self._gen = gen
        self._inner = cast("asyncio.Protocol", client.get_protocol())
        self._connected = self._full = False

    def connect(self) -> None:
        """Begin."""
        self._client.set_protocol(self)
        self._connected = True
        if self._client.get_write_buffer_size() > self._client.get_write_buffer_limits()[1]:
            self._hold_up()  # it was told before us

    def close(self) -> None:
        """The stream is over: the transport is aiohttp's alone."""
        if self._connected:
            self._connected = False
            self._client.set_protocol(self._inner)
            self._let_go()

    def pause_writing(self) -> None:
        """The client's buffer is full."""
        self._inner.pause_writing()
        self._hold_up()

    def resume_writing(self) -> None:
        """It has drained."""
        self._inner.resume_writing()
        self._let_go()

    def data_received(self, data: bytes) -> None:
        """A next request, before this one's answer has ended."""
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        """The client sends no more."""
        return self._inner.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone; aiohttp cancels whoever answers it."""
        self._connected = False
        self._inner.connection_lost(exc)

    def _hold_up(self) -> None:
        if not self._full and not self._gen.is_closing():
            self._full = True
            self._gen.pause_reading()

    def _let_go(self) -> None:
        if self._full and not self._gen.is_closing():
            self._full = False
            self._gen.resume_reading()
