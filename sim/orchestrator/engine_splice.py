"""Engine ``splice``: gen's bytes from its connection's callback through the policy to the client's transport.

Theory of operation.  No coroutine runs per token.  In nearly every read the data is one HTTP chunk that holds one
event of one line, and the policy leaves it alone; then the very bytes that were read are written.  `data_received`
recognises such a read by its length (`frames`: what this server's reads of so many bytes begin and end with) and by
there being no line ending inside.  Every other read (several events, half of one, trailers, a changed event,
another framing) goes the full way, `HttpBody` and `EventPath`, with the same result.

The coroutine that answers the request sleeps meanwhile and is woken when the stream is over.  A client that does
not read pauses gen's connection from its own transport's callback.
"""

from __future__ import annotations

import asyncio

from aiohttp import web

from sim.core.http_body import BadBodyError
from sim.orchestrator.arms import differs
from sim.orchestrator.client_side import ClientSide
from sim.orchestrator.counters import Counters
from sim.orchestrator.event_path import ClientGoneError, EventPath, StreamEndedError
from sim.orchestrator.frames import Frames
from sim.orchestrator.inside_aiohttp import TakenOver

__all__ = ["SpliceEngine"]

_LF, _CR = b"\n\r"
_AFTER_DONE_BYTES = 16


class SpliceEngine(asyncio.Protocol):
    """Relays one open stream; raises what `StreamEngine` does.  ``frames`` is what is known of the server's."""

    closed = None  # `connection_lost` tells

    __slots__ = (
        "_after_done", "_arms", "_at_frame", "_body", "_callables", "_client", "_client_side", "_counters", "_error",
        "_framed", "_frames", "_gone", "_heard", "_known", "_news", "_passed", "_path", "_taken", "over",
    )  # fmt: skip

    def __init__(
        self,
        request: web.Request,
        response: web.StreamResponse,
        taken: TakenOver,
        path: EventPath,
        counters: Counters,
        frames: Frames,
    ) -> None:
        client = request.transport
        if client is None:
            raise ClientGoneError
        self.over = False  # no more is to come from gen's connection, or none of it is wanted
        self._at_frame = False  # whether the next byte begins a chunk and an event, so that a read may simply pass
        self._heard = self._passed = False
        self._frames = frames
        self._known = frames.by_size
        self._client = client
        # HTTP/1.0 has no chunks: there the end of the connection ends the body.
        self._framed = response.headers.get("Transfer-Encoding") == "chunked"
        self._taken = taken
        self._body = taken.body
        self._client_side = ClientSide(client, taken.transport)
        self._path = path
        self._arms = path.policies.arms
        self._callables = path.policies.callables
        self._counters = counters
        self._gone = False
        self._error: StreamEndedError | None = None
        self._after_done = b""
        self._news: asyncio.Future[None] | None = None

    # The coroutine's side.

    async def relay(self) -> None:
        """Relay until gen's end marker or the end of its body.  StreamEndedError, ClientGoneError, ConnectionError."""
        self._taken.connect(self)
        self._client_side.connect()
        early, self._taken.early = self._taken.early, b""
        if early:
            self.data_received(early)
        while not self.over and not self._path.done:
            await self._wait()
        if self._gone:
            raise ClientGoneError
        if self._error is not None:
            raise self._error
        if not self._path.done and not self._body.complete:
            raise ConnectionResetError("the connection ended inside the answer")

    async def next_bytes(self) -> bytes:
        """Bytes that came behind the end marker, b"" if none do."""
        while not self._after_done and not self.over:
            await self._wait()
        return self._after_done

    async def drain(self) -> None:
        """Wait for the end of the body and give the connection back; if it has been lost, nothing happens."""
        while not self.over:
            await self._wait()
        # What comes behind an answer that is complete belongs to nothing: such a connection is not used again.
        if self._body.complete and not self._body.surplus and not self._taken.transport.is_closing():
            self._client_side.close()
            self._taken.give_back()

    def close(self) -> None:
        """Relay no more."""
        self._stop()
        self._client_side.close()

    def heard(self) -> bool:
        """Whether anything has been received since this was last asked."""
        self.settle()
        heard, self._heard = self._heard, False
        return heard

    def settle(self) -> None:
        """Tell the tally of chunks that have passed."""
        if self._passed:
            self._passed, self._heard = False, True
            self._path.tally.followed_by_chunk()

    async def _wait(self) -> None:
        self._news = asyncio.get_running_loop().create_future()
        await self._news

    # The connection's side.

    def data_received(self, data: bytes) -> None:
        """Gen's connection has been read."""
        # Written for few instructions: CPython takes a known prefix or suffix off a bytes object for half of what
        # a call of its `find` or `startswith` costs, and a byte is sought cheapest as an integer.
        # Nor is anything of the stream's touched that need not be: thousands of streams do not fit into a CPU's cache.
        try:
            size_line, tail, front_bytes, event_bytes = self._known[len(data)]
        except KeyError:
            self._take(data)
            return
        event = data.removesuffix(b"\r\n").removeprefix(size_line)
        front = event.removesuffix(tail)
        if len(front) != front_bytes or _LF in front or _CR in front or not self._at_frame:
            self._take(data)
            return
        arms = self._arms
        active = arms.active
        try:
            policy = self._callables[active]
            out = policy(event)
            changed = out is not event and differs(out, event)
        except (Exception, SystemExit) as error:  # noqa: BLE001  a user's code may raise anything
            self._error = self._path.failed(event, error)
            self._stop()
            return
        self._passed = True
        if changed:
            self._path.changed(event)
            if out:
                self._send(out)
            return
        counts = arms.counters[active]
        counts.passed += 1
        counts.passed_bytes += event_bytes
        try:
            self._client.write(data)
        except RuntimeError:  # uvloop, of a closed transport
            self._client_gone()

    def eof_received(self) -> None:
        """Gen sends no more; the transport closes, and `connection_lost` judges."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Gen's connection is closed."""
        self._taken.lost(exc)
        if not self.over:
            self._body.eof()
            self._stop()

    def pause_writing(self) -> None:
        """The request is still being sent."""
        self._taken.pause_writing()

    def resume_writing(self) -> None:
        """The request goes on."""
        self._taken.resume_writing()

    def _take(self, data: bytes) -> None:
        """The full way of a read."""
        if self.over:
            if self._body.complete:
                self._body.feed(data)  # into its surplus
            return
        self.settle()
        self._heard = True
        if self._at_frame and self._take_frames(data):
            return
        begins_chunk, broken = self._body.between_chunks, False
        try:
            body = self._body.feed(data)
        except BadBodyError as error:
            body, broken = error.body, True
        if self._path.done:
            self._after_done += body[:_AFTER_DONE_BYTES]
        elif body:
            self._relay(body)
        if broken or self._body.complete or self._error is not None:
            self._stop()
            return
        self._at_frame = self._framed and not self.over and self._body.between_chunks and self._path.at_event
        if self._at_frame and begins_chunk:
            self._frames.learn(data, body)
        if self._path.done:
            self._wake()

    def _take_frames(self, data: bytes) -> bool:
        """Relay a read of several chunks of known size, each one event of one line; False if it is none."""
        events = self._frames.cut(data)
        if events is None:
            return False
        counts = self._arms.counters[self._arms.active]
        changed = counts.changed
        try:
            payload = self._path.take_events(events)
        except StreamEndedError as error:
            self._error = error
            self._stop()
            return True
        if counts.changed == changed:
            self._counters.cut_bytes_out += len(payload)
            self._write_out(data)
        elif payload:
            self._send(payload)
        return True

    def _relay(self, body: bytes) -> None:
        try:
            payload = body if self._path.pass_whole(body) else self._path.take(body)
        except StreamEndedError as error:
            self._error = error
            return
        if payload:
            self._send(payload)

    def _send(self, payload: bytes) -> None:
        self._counters.cut_bytes_out += len(payload)
        self._write_out(b"%x\r\n%b\r\n" % (len(payload), payload) if self._framed else payload)

    def _write_out(self, data: bytes) -> None:
        try:
            self._client.write(data)
        except RuntimeError:  # uvloop, of a closed transport
            self._client_gone()

    def _client_gone(self) -> None:
        self._gone = True
        self._stop()

    def _stop(self) -> None:
        """Nothing more is relayed; whoever answers the request is to see to the rest."""
        self.over = True
        self._at_frame = False
        self._wake()

    def _wake(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)
