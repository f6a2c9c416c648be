"""Gen's connection taken out of aiohttp's hands while a stream runs, and given back.

aiohttp connects, pools, sends the request and reads the answer's head; from then on its client costs a parser, a
buffer, a future and a task switch a token.  So here, and only here, things of aiohttp's are used that are not its
public interface: a response handler that keeps the bytes it was given, a connector that makes such handlers, and
a handler's state when its connection is given back.  Whether they still are what they were is checked by
`tests/wire/test_takeover.py`, item by item; pyproject.toml says which releases were tried.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from functools import partial
from typing import Any, TypeVar

import aiohttp
from aiohttp.client_proto import ResponseHandler

from sim.core.http_body import HttpBody

__all__ = ["TakenOver", "TakeoverHandler", "take_over", "tcp_connector", "unix_connector"]

C = TypeVar("C", bound=aiohttp.BaseConnector)

# Lenient as aiohttp's own parser of answers is: a line may end in LF alone.
_HEAD_END = re.compile(rb"\n\r?\n")
_INFORMATIONAL = re.compile(rb"HTTP/1\.[01] 1[0-9][0-9]\b")


class TakeoverHandler(ResponseHandler):
    """aiohttp's handler of one connection; it keeps what comes of an answer until somebody has taken it over."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self.kept: list[bytes] | None = None

    def set_response_params(self, **params: Any) -> None:
        """A new answer is expected."""
        self.kept = []
        super().set_response_params(**params)

    def data_received(self, data: bytes) -> None:
        """Keep it, and do with it what aiohttp does."""
        if self.kept is not None:
            self.kept.append(data)
        super().data_received(data)


class TakenOver:
    """A connection whose bytes go to a protocol of ours, past aiohttp; ``early`` is what of the body came before."""

    __slots__ = ("_handler", "_response", "body", "early", "transport")

    def __init__(
        self, response: aiohttp.ClientResponse, handler: TakeoverHandler, transport: asyncio.Transport, early: bytes
    ) -> None:
        self.transport = transport
        self.early = early
        self.body = _body(response.headers)
        self._response = response
        self._handler = handler

    def connect(self, protocol: asyncio.Protocol) -> None:
        """From now on the connection's bytes and its end go to ``protocol``, which passes the end on to `lost`."""
        self.transport.set_protocol(protocol)
        self.transport.resume_reading()  # aiohttp pauses where much has come with the head

    def lost(self, error: Exception | None) -> None:
        """The connection is lost: aiohttp's pool is to know."""
        self._handler.connection_lost(error)

    def pause_writing(self) -> None:
        """A request's body is still under way to gen."""
        self._handler.pause_writing()

    def resume_writing(self) -> None:
        """The other half of `pause_writing`."""
        self._handler.resume_writing()

    def give_back(self) -> None:
        """The body has been received to its end: the connection may carry the next request."""
        handler = self._handler
        self.transport.set_protocol(handler)
        handler._parser = None  # noqa: SLF001  it stands inside a body whose rest it has never seen
        self._response.content.feed_eof()  # the answer is over: aiohttp puts the connection back into its pool


def take_over(response: aiohttp.ClientResponse) -> TakenOver | None:
    """The connection of an answer whose head is here; None if it cannot be had.

    It cannot when the answer came whole with its head (the connection is back in the pool), when it is lost, or
    when the body is encoded, which aiohttp undoes.
    """
    connection = response.connection
    handler = None if connection is None else connection.protocol
    if not isinstance(handler, TakeoverHandler) or handler.kept is None:
        return None
    transport = handler.transport
    if transport is None or transport.is_closing() or handler.exception() is not None:
        return None
    if response.headers.get("Content-Encoding", "identity").lower() != "identity":
        return None
    received = b"".join(handler.kept)
    handler.kept = None
    position = 0
    while True:
        informational = _INFORMATIONAL.match(received, position)
        end = _HEAD_END.search(received, position)
        if end is None:
            return None
        position = end.end()
        if informational is None:
            return TakenOver(response, handler, transport, received[position:])


def tcp_connector(**options: Any) -> aiohttp.TCPConnector:
    """A connector whose connections can be taken over; the arguments are aiohttp's."""
    return _taking_over(aiohttp.TCPConnector(**options))


def unix_connector(path: str, **options: Any) -> aiohttp.UnixConnector:
    """The same over a Unix socket."""
    return _taking_over(aiohttp.UnixConnector(path, **options))


def _taking_over(connector: C) -> C:
    connector._factory = partial(TakeoverHandler, loop=asyncio.get_running_loop())  # type: ignore[assignment]  # noqa: SLF001
    return connector


def _body(headers: Mapping[str, str]) -> HttpBody:
    if headers.get("Transfer-Encoding", "").lower().endswith("chunked"):
        return HttpBody.chunked(lone_lf=True)
    length = headers.get("Content-Length")
    return HttpBody.until_close() if length is None else HttpBody.of_length(int(length))
