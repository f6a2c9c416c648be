"""Engine ``stream``: gen's bytes to the client the ordinary way, `iter_any` and `StreamResponse.write`.

A slow client holds the stream up by the awaited write, and through it gen's connection.
"""

from __future__ import annotations

import asyncio

from aiohttp import web

from sim.orchestrator.counters import Counters
from sim.orchestrator.event_path import ClientGoneError, EventPath
from sim.orchestrator.upstream import Exchange

__all__ = ["StreamEngine"]


class StreamEngine:
    """Relays one open stream; what its methods raise of gen's connection is `upstream.BROKEN`."""

    def __init__(self, response: web.StreamResponse, exchange: Exchange, path: EventPath, counters: Counters) -> None:
        self._write = response.write
        self._content = exchange.response.content
        self._connection = exchange.response.connection
        self._path = path
        self._counters = counters
        self._heard_bytes = 0

    def heard(self) -> bool:
        """Whether anything has been received since this was last asked."""
        before, self._heard_bytes = self._heard_bytes, self._content.total_bytes
        return before != self._heard_bytes

    @property
    def closed(self) -> asyncio.Future[None] | None:
        """Done when gen's connection is closed; None if it has been given back already."""
        protocol = None if self._connection is None else self._connection.protocol
        return None if protocol is None else protocol.closed

    @property
    def over(self) -> bool:
        """Whether the body's reader has been told of its end."""
        return self._content.is_eof() or self._content.exception() is not None

    def settle(self) -> None:
        """Every event has been told to the tally."""

    async def relay(self) -> None:
        """Relay until gen's end marker or the end of its body.  StreamEndedError, ClientGoneError."""
        path, take, write, counters = self._path, self._path.take, self._write, self._counters
        async for data in self._content.iter_any():
            payload = take(data)
            if payload:
                counters.cut_bytes_out += len(payload)
                try:
                    await write(payload)
                except ConnectionError as error:
                    # aiohttp raises the same for a broken client and a broken gen: tell them apart here.
                    raise ClientGoneError from error
            if path.done:
                return

    async def next_bytes(self) -> bytes:
        """Further bytes of the body, b"" at its end."""
        return await self._content.readany()

    async def drain(self) -> None:
        """Read what is left of gen's body (the end of its chunked coding), so that the connection can be used again."""
        while not self._content.at_eof():
            await self._content.readany()

    def close(self) -> None:
        """Relay no more."""
