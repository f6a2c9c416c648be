"""Engine ``stream``: gen's bytes to the client the ordinary way, `iter_any` and `StreamResponse.write`.

The rules.  Each read's complete events go through the active policy and out in *one* write (events that arrived
together stay together; nothing waits for more).  The bytes of an unfinished event are never sent.  A slow
client holds the stream up by the awaited write, and through it gen's connection.  The client is told how its
stream ended: ``[DONE]`` is gen's own, passed on; whatever else ends a stream becomes an error event and no
``[DONE]``.  The client's hang-up cancels the handler, and that closes gen's connection at once.

How the stream came to be open is `flow`; what a policy does is `policies`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from aiohttp import StreamReader, web

from sim.core.settings import OrchestratorSettings
from sim.core.sse import LINE_ENDINGS, EventTooLongError, SseDecoder
from sim.orchestrator.arms import PolicyFailedError, StreamPolicies
from sim.orchestrator.counters import Counters
from sim.orchestrator.failure import error_event
from sim.orchestrator.tally import LONGEST_HELD, EventTally
from sim.orchestrator.upstream import BROKEN, Exchange
from sim.orchestrator.watch import StallWatch

__all__ = ["SSE_HEADERS", "StreamRelay"]

SSE_HEADERS = {"Content-Type": "text/event-stream", "Cache-Control": "no-cache"}

log = logging.getLogger(__name__)

_LINGER_S = 0.25
"""How long to wait for the end of gen's body after its [DONE]; past it the connection is given up instead."""

Write = Callable[[bytes], Awaitable[None]]


class _ClientGoneError(Exception):
    """The client's connection broke under a write."""


class _EndedError(Exception):
    """The stream cannot be completed: the reason, what to tell the client, and what is to be sent before that."""

    def __init__(self, reason: str, message: str, unsent: bytes = b"") -> None:
        super().__init__(message)
        self.reason = reason
        self.unsent = unsent


class StreamRelay:
    """Relays open gen streams to their clients and counts what passes."""

    def __init__(self, settings: OrchestratorSettings, counters: Counters, watch: StallWatch) -> None:
        self._settings = settings
        self._counters = counters
        self._watch = watch

    async def run(self, request: web.Request, exchange: Exchange, policies: StreamPolicies) -> web.StreamResponse:
        """Answer ``request`` with the stream of ``exchange``, which is closed in every case."""
        response = web.StreamResponse(headers=SSE_HEADERS)
        counters = self._counters
        counters.started += 1
        counters.live += 1
        ended = None
        tally = EventTally(counters)
        with contextlib.closing(exchange):
            try:
                ended = await self._deliver(request, response, exchange, policies, tally)
            finally:
                counters.live -= 1
                counters.ended[ended or counters.cancelled] += 1
                tally.close()
            if ended == "complete":
                await _linger(exchange.response.content)
        return response

    async def _deliver(
        self,
        request: web.Request,
        response: web.StreamResponse,
        exchange: Exchange,
        policies: StreamPolicies,
        tally: EventTally,
    ) -> str | None:
        """The whole answer, to the last byte; why it ended, or None when the client's connection broke."""
        reason = "complete"
        try:
            await response.prepare(request)
            try:
                await self._pump(request, response, exchange, policies, tally)
            except _EndedError as error:
                reason = error.reason
                event = error.unsent + error_event(reason, str(error))
                await response.write(event)
                self._counters.bytes_out += len(event)
            await response.write_eof()
        except (_ClientGoneError, ConnectionError):
            return None  # aiohttp finds the connection closed, too, and lets the answer go
        return reason

    async def _pump(
        self,
        request: web.Request,
        response: web.StreamResponse,
        exchange: Exchange,
        policies: StreamPolicies,
        tally: EventTally,
    ) -> None:
        """Relay until gen's end marker; _EndedError for every other end."""
        decoder = SseDecoder(self._settings.max_event_bytes)
        content, write = exchange.response.content, response.write
        lost = False
        try:
            async with asyncio.timeout(None) as deadline:
                watched = self._watch.enter(exchange.response, request.transport, deadline)
                try:
                    unsent = await self._relay_reads(content, decoder, policies, write, tally)
                finally:
                    lost = watched.lost
                    self._watch.leave(watched)
        except TimeoutError:
            if lost:
                raise _EndedError("upstream_cut", "gen server broke the stream off") from None
            raise _EndedError("stall_timeout", "gen server sent nothing for too long") from None
        except PolicyFailedError as error:
            tally.add(error.sent)
            raise _EndedError("policy_error", str(error), b"".join(error.sent)) from None
        except BROKEN as error:
            log.debug("gen server %s broke a stream off: %r", exchange.upstream.url, error)
            raise _EndedError("upstream_cut", "gen server broke the stream off") from None
        if policies.done or tally.done:
            unsent += await self._line_end(content, decoder, tally)
            if unsent:
                self._counters.bytes_out += len(unsent)
                await write(unsent)
            return
        if decoder.finish().strip(LINE_ENDINGS):
            raise _EndedError("upstream_cut", "gen server broke the stream off inside an event")
        raise _EndedError("no_done", "gen server ended the stream without [DONE]")

    async def _relay_reads(
        self,
        content: StreamReader,
        decoder: SseDecoder,
        policies: StreamPolicies,
        write: Write,
        tally: EventTally,
    ) -> bytes:
        """The hot loop; returns at the end marker or when the body ends, with what is still to be sent."""
        counters, feed, apply, hold = self._counters, decoder.feed, policies.apply, tally.latest.append
        steady = False
        try:
            async for data in content.iter_any():
                counters.reads += 1
                counters.bytes_in += len(data)
                events = feed(data)
                if not events:
                    continue
                payload = apply(events)
                if steady:  # what `EventTally.add` comes to, without its call
                    counters.events += len(events)
                    for event in events:
                        hold(event if len(event) <= LONGEST_HELD else None)
                else:
                    tally.add(events)
                    steady = tally.steady
                if payload:
                    counters.bytes_out += len(payload)
                    try:
                        await write(payload)
                    except ConnectionError as error:
                        # aiohttp raises the same for a broken client and a broken gen: tell them apart here.
                        raise _ClientGoneError from error
                if policies.done:
                    break
        except EventTooLongError as error:
            payload = apply(error.events)
            tally.add(error.events)
            if policies.done:
                return payload
            raise _EndedError("event_too_long", f"gen server's event is too long: {error}", payload) from None
        return b""

    async def _line_end(self, content: StreamReader, decoder: SseDecoder, tally: EventTally) -> bytes:
        """The line endings after the end marker: a CRLF that a read has cut is to arrive whole."""
        last = tally.latest[-1]
        # A sender that ends its lines with CR alone has no LF to wait for.
        if last is not None and last.endswith(b"\r") and b"\n" in last and not decoder.pending:
            with contextlib.suppress(TimeoutError, *BROKEN):
                async with asyncio.timeout(_LINGER_S):
                    if (await content.readany()).startswith(b"\n"):
                        self._counters.bytes_in += 1
                        return b"\n"
        tail = decoder.finish()
        return b"" if tail.strip(LINE_ENDINGS) else tail


async def _linger(content: StreamReader) -> None:
    """Read what is left of gen's body (the end of its chunked coding), so that the connection can be used again."""
    try:
        async with asyncio.timeout(_LINGER_S):
            while not content.at_eof():
                await content.readany()
    except (TimeoutError, *BROKEN):
        pass
