"""The three things that need more of aiohttp's client than its public interface gives: all of that is here.

`take_over` takes gen's connection out of aiohttp's hands while a stream runs, and gives it back.  aiohttp connects,
pools and reads the answer's head; from then on its client would cost a parser, a buffer, a future and a task
switch a token.  Used: a response handler that keeps the bytes it was given, a connector that makes such handlers
(``_factory``), and the handler's parser when its connection is given back.

`LeanPost` sends a request without aiohttp's building of it, which costs more than the exchange: the same URL,
headers, cookies and timers anew for each, and on Python 3.11 a task for the body.  Used: `BaseConnector.connect`,
`Connection.protocol`, its `set_response_params`, and the constructor and `start` of `ClientResponse`.

`AnswerHandler` closes a connection on which more came than was asked for.  Used: the handler's ``feed_data``, a
message's ``chunked``, a body's ``on_eof``, the parser's ``feed_eof``.

tests/wire/test_inside_aiohttp.py checks whether they are what they were; pyproject.toml says which releases were tried.
"""

from __future__ import annotations

import asyncio
import re
from functools import partial
from typing import Any, TypeVar

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from aiohttp.client_proto import ResponseHandler
from aiohttp.helpers import TimerNoop
from multidict import CIMultiDictProxy
from yarl import URL

from sim.core.http_body import HttpBody

__all__ = ["AnswerHandler", "LeanPost", "TakenOver", "TakeoverHandler", "take_over", "tcp_connector", "unix_connector"]

C = TypeVar("C", bound=aiohttp.BaseConnector)

# Lenient as aiohttp's own parser of answers is: a line may end in LF alone.
_HEAD_END = re.compile(rb"\n\r?\n")
_BLANK_LINES = re.compile(rb"[\r\n]*")
_INFORMATIONAL = re.compile(rb"HTTP/1\.[01] 1[0-9][0-9]\b")


class AnswerHandler(ResponseHandler):
    """aiohttp's handler of a connection; what comes behind an answer is not kept for the next request but closes it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._headed = self._over = True  # head and end of the answer to the latest request are here
        self.chunked = False  # whether aiohttp takes it for chunked

    def set_response_params(self, **params: Any) -> None:
        """A new answer is expected."""
        self._headed = self._over = False
        super().set_response_params(**params)

    def data_received(self, data: bytes) -> None:
        """Do with it what aiohttp does, if anything was asked for."""
        if self._over and data:
            self.close()
            return
        ResponseHandler.data_received(self, data)
        if self._over and self._begins_another():
            self.close()

    def feed_data(self, data: Any, size: int = 0) -> None:
        """The head of an answer is here."""
        message, body = data
        if self._headed:
            self.close()  # a second one in one read
            return
        if not 100 <= message.code <= 199 or message.code == 101:
            self._headed, self.chunked = True, message.chunked
            body.on_eof(self._ended)  # at once, if the body is whole or there is none
        super().feed_data(data, size)

    def _ended(self) -> None:
        self._over = True

    def _begins_another(self) -> bool:
        """Whether part of a head came behind the answer in its last read."""
        if self._parser is None:
            return False
        try:
            return self._parser.feed_eof() is not None
        except Exception:  # noqa: BLE001  whatever it is, it is no end
            return True


class TakeoverHandler(AnswerHandler):
    """The same; it keeps what comes of an answer until somebody has taken it over."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self.kept: list[bytes] | None = None

    def set_response_params(self, **params: Any) -> None:
        """A new answer is expected."""
        self.kept = []
        super().set_response_params(**params)

    def given_back(self) -> None:
        """The answer that was taken over is over."""
        self._parser = None  # it stands inside a body whose rest it has never seen

    def data_received(self, data: bytes) -> None:
        """Keep it, and do with it what aiohttp does."""
        if self.kept is not None:
            self.kept.append(data)
        super().data_received(data)
        if self._over:
            self.kept = None  # it came whole, and aiohttp has it


class TakenOver:
    """A connection whose bytes go to a protocol of ours, past aiohttp; ``early`` is what of the body came before."""

    __slots__ = ("_handler", "_response", "body", "early", "transport")

    def __init__(
        self,
        response: aiohttp.ClientResponse,
        handler: TakeoverHandler,
        transport: asyncio.Transport,
        body: HttpBody,
        early: bytes,
    ) -> None:
        self.transport = transport
        self.early = early
        self.body = body
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
        handler.given_back()
        self._response.content.feed_eof()  # the answer is over: aiohttp puts the connection back into its pool


def take_over(response: aiohttp.ClientResponse) -> TakenOver | None:
    """The connection of an answer whose head is here; None if it cannot be had.

    It cannot when the answer came whole with its head (the connection is back in the pool), when it is lost, when
    the body is encoded, which aiohttp undoes, or when its framing is said in another way than nearly all say it:
    then aiohttp is to make what it can of that.
    """
    connection = response.connection
    handler = None if connection is None else connection.protocol
    if not isinstance(handler, TakeoverHandler) or handler.kept is None:
        return None
    kept, handler.kept = handler.kept, None
    transport = handler.transport
    if transport is None or transport.is_closing() or handler.exception() is not None:
        return None
    if response.headers.get("Content-Encoding", "identity").lower() != "identity":
        return None
    body = _body(response.headers, chunked=handler.chunked)
    if body is None:
        return None
    received = b"".join(kept)
    if response.content.exception() is None:
        response.content.read_nowait()  # aiohttp's own copy of what came early
    position = 0
    while True:
        position = _BLANK_LINES.match(received, position).end()  # type: ignore[union-attr]
        informational = _INFORMATIONAL.match(received, position)
        end = _HEAD_END.search(received, position)
        if end is None:
            return None
        position = end.end()
        if informational is None:
            return TakenOver(response, handler, transport, body, received[position:])


def tcp_connector(*, spliced: bool = True, **options: Any) -> aiohttp.TCPConnector:
    """A connector whose connections can be taken over if ``spliced``; the other arguments are aiohttp's."""
    return _handled(aiohttp.TCPConnector(**options), spliced)


def unix_connector(path: str, *, spliced: bool = True, **options: Any) -> aiohttp.UnixConnector:
    """The same over a Unix socket."""
    return _handled(aiohttp.UnixConnector(path, **options), spliced)


def _handled(connector: C, spliced: bool) -> C:
    handler = TakeoverHandler if spliced else AnswerHandler
    connector._factory = partial(handler, loop=asyncio.get_running_loop())  # type: ignore[assignment]  # noqa: SLF001
    return connector


def _body(headers: CIMultiDictProxy[str], *, chunked: bool) -> HttpBody | None:
    codings = headers.getall("Transfer-Encoding", ())
    if codings:
        plainly = [coding.lower() for coding in codings] == ["chunked"]
        return HttpBody.chunked() if plainly and chunked else None
    length = headers.get("Content-Length")
    return HttpBody.until_close() if length is None else HttpBody.of_length(int(length))


class LeanPost:
    """One URL to post JSON to, over the connections of ``session``."""

    def __init__(self, session: aiohttp.ClientSession, url: URL, headers: dict[str, str]) -> None:
        assert session.connector is not None
        self._session = session
        self._connector = session.connector
        self._url = url
        self._loop = asyncio.get_running_loop()
        # Tells the connector where to connect to; it is never sent.
        self._request = aiohttp.ClientRequest("POST", url, headers=headers, loop=self._loop, session=session)
        lines = [f"{name}: {value}" for name, value in self._request.headers.items() if name != "Content-Length"]
        self._head = "\r\n".join((f"POST {url.raw_path_qs} HTTP/1.1", *lines, "Content-Length: ")).encode()
        self._info = self._request.request_info
        self._timer = TimerNoop()

    async def send(self, body: bytes) -> aiohttp.ClientResponse:
        """The answer, once its head is here.  Raises what `ClientSession.post` does."""
        connection = await self._connector.connect(self._request, [], self._session.timeout)
        try:
            protocol = connection.protocol
            assert protocol is not None
            protocol.set_response_params(timer=self._timer, read_until_eof=True)
            _write(protocol.transport, b"%b%d\r\n\r\n%b" % (self._head, len(body), body))
            response = aiohttp.ClientResponse(
                "POST",
                self._url,
                writer=None,
                continue100=None,
                timer=self._timer,
                request_info=self._info,
                traces=[],
                loop=self._loop,
                session=self._session,
                stream_writer=_SENT,
            )
            try:
                await response.start(connection)
            except BaseException:
                response.close()
                raise
            if protocol.transport is not None and protocol.transport.get_write_buffer_size():
                protocol.force_close()  # answered before it was read: the next request would wait behind it
        except BaseException:
            connection.close()
            raise
        return response


def _write(transport: asyncio.Transport | None, data: bytes) -> None:
    if transport is None or transport.is_closing():  # uvloop would raise a RuntimeError
        raise aiohttp.ClientConnectionResetError("Cannot write to closing transport")
    transport.write(data)


class _Sent:
    """Stands for the writer of a body that has been sent."""

    output_size = 0


_SENT: AbstractStreamWriter = _Sent()  # type: ignore[assignment]
