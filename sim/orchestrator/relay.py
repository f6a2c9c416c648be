"""The life of a relayed stream, from the answer's head to its end: both engines, every end by its name.

The rules, whatever the engine.  Each read's complete events go through the active policy and out in *one* write
(events that arrived together stay together; nothing waits for more).  The bytes of an unfinished event are never
sent.  A slow client holds up gen, not memory.  The client is told how its stream ended: ``[DONE]`` is gen's own,
passed on; whatever else ends a stream becomes an error event and no ``[DONE]``.  The client's hang-up cancels the
handler, and that closes gen's connection at once.

How bytes get from one connection to the other is `engine_splice` or `engine_stream`; what becomes of an event is
`event_path`; how the stream came to be open is `flow`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging

from aiohttp import HttpVersion11, web

from sim.core.settings import OrchestratorSettings
from sim.orchestrator.arms import StreamPolicies
from sim.orchestrator.counters import Counters
from sim.orchestrator.engine_splice import SpliceEngine
from sim.orchestrator.engine_stream import StreamEngine
from sim.orchestrator.event_path import ClientGoneError, EventPath, StreamEndedError
from sim.orchestrator.failure import error_event
from sim.orchestrator.inside_aiohttp import take_over
from sim.orchestrator.tally import EventTally
from sim.orchestrator.upstream import BROKEN, Exchange
from sim.orchestrator.watch import ClientStalledError, StallWatch

__all__ = ["SSE_HEADERS", "StreamRelay"]

SSE_HEADERS = {"Content-Type": "text/event-stream", "Cache-Control": "no-cache"}

log = logging.getLogger(__name__)

_LINGER_S = 0.25
"""How long to wait for the end of gen's body after its [DONE]; past it the connection is given up instead."""

Engine = SpliceEngine | StreamEngine


class StreamRelay:
    """Relays open gen streams to their clients and counts what passes."""

    def __init__(self, settings: OrchestratorSettings, counters: Counters, watch: StallWatch) -> None:
        self._settings = settings
        self._counters = counters
        self._watch = watch

    async def run(self, request: web.Request, exchange: Exchange, policies: StreamPolicies) -> web.StreamResponse:
        """Answer ``request`` with the stream of ``exchange``, which is closed in every case."""
        response = _response(request)
        counters = self._counters
        counters.started += 1
        counters.live += 1
        ended = engine = None
        tally = EventTally(counters)
        path = EventPath(counters, policies, tally, self._settings.max_event_bytes)
        with contextlib.closing(exchange), contextlib.ExitStack() as engines:
            try:
                await response.prepare(request)
                engine = engines.enter_context(contextlib.closing(self._engine(request, response, exchange, path)))
                ended = await self._deliver(request, response, exchange, engine, path)
            except ClientStalledError:
                ended = "client_stalled"
                _cut_off(request)
            except (ClientGoneError, ConnectionError):
                pass  # aiohttp finds the connection closed, too, and lets the answer go
            finally:
                counters.live -= 1
                counters.ended[ended or counters.cancelled] += 1
                if engine is not None:
                    engine.settle()
                tally.close()
            if ended == "complete" and engine is not None:
                # What is left of gen's body is the end of its framing; then its connection can be used again.
                with contextlib.suppress(TimeoutError, *BROKEN):
                    async with asyncio.timeout(_LINGER_S):
                        await engine.drain()
        return response

    async def finish(self, request: web.Request, stream: bytes) -> web.StreamResponse:
        """Answer ``request`` with a ``stream`` that is all here, since the reply was finished at ctx."""
        response = _response(request)
        counters = self._counters
        counters.started += 1
        counters.live += 1
        ended = None
        try:
            await response.prepare(request)
            await self._watch.while_read(request.transport, response.write_eof(stream))
            ended = "finished_at_ctx"
        except ClientStalledError:
            ended = "client_stalled"
            _cut_off(request)
        except ConnectionError:
            pass  # the client is gone: counted below
        finally:
            counters.live -= 1
            counters.ended[ended or counters.cancelled] += 1
        return response

    def _engine(
        self, request: web.Request, response: web.StreamResponse, exchange: Exchange, path: EventPath
    ) -> Engine:
        """The engine of the settings; `StreamEngine` where gen's connection cannot be taken over."""
        if self._settings.engine == "splice" and (taken := take_over(exchange.response)) is not None:
            return SpliceEngine(request, response, taken, path, self._counters, exchange.upstream.frames)
        return StreamEngine(response, exchange, path, self._counters)

    async def _deliver(
        self,
        request: web.Request,
        response: web.StreamResponse,
        exchange: Exchange,
        engine: Engine,
        path: EventPath,
    ) -> str:
        """The whole answer, to the last byte; why it ended."""
        reason = "complete"
        try:
            await self._relay(request, exchange, engine, path)
            last = await self._line_end(engine, path)
        except StreamEndedError as error:
            reason = error.reason
            last = error.unsent + error_event(reason, str(error))
        self._counters.cut_bytes_out += len(last)
        await self._watch.while_read(request.transport, response.write_eof(last))
        return reason

    async def _relay(self, request: web.Request, exchange: Exchange, engine: Engine, path: EventPath) -> None:
        """Relay until gen's end marker; StreamEndedError for every other end."""
        lost = False
        try:
            async with asyncio.timeout(None) as deadline:
                watched = self._watch.enter(engine, request.transport, deadline)
                try:
                    await engine.relay()
                finally:
                    lost = watched.lost
                    self._watch.leave(watched)
        except TimeoutError:
            if watched.client_stalled:
                raise ClientStalledError from None
            if lost:
                raise StreamEndedError("upstream_cut", "gen server broke the stream off") from None
            raise StreamEndedError("stall_timeout", "gen server sent nothing for too long") from None
        except BROKEN as error:
            log.debug("gen server %s broke a stream off: %r", exchange.upstream.url, error)
            raise StreamEndedError("upstream_cut", "gen server broke the stream off") from None
        path.check_end()

    async def _line_end(self, engine: Engine, path: EventPath) -> bytes:
        """The line endings after the end marker: a CRLF that a read has cut is to arrive whole."""
        if path.lf_may_follow:
            with contextlib.suppress(TimeoutError, *BROKEN):
                async with asyncio.timeout(_LINGER_S):
                    if (await engine.next_bytes()).startswith(b"\n"):
                        self._counters.cut_bytes_in += 1
                        return b"\n"
        return path.line_endings()


def _response(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers=SSE_HEADERS)
    if request.version < HttpVersion11:
        response.force_close()  # without chunks only the connection's end ends the body; aiohttp would keep it open
    return response


def _cut_off(request: web.Request) -> None:
    """Drop what the client has not read: it never will."""
    if request.transport is not None:
        request.transport.abort()
