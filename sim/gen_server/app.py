"""The generation server: takes a hand-off, waits for its KV, then streams every token, the first one included.

A request with ``request_type: generation_only`` must bring a hand-off that names its prefill; a plain request is
served as if its prefill had been done here.  ``usage`` is what real generation servers report, every prompt token
cached since all KV came by transfer, unless ctx's own numbers were handed over (``ctx_usage``).

When tokens are due is `pacer`'s business, their bytes `stream`'s.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from aiohttp import web

from sim.core.chunks import ChunkShape, StreamWriter, full_answer
from sim.core.handoff import check_generation_only, ctx_usage_of, is_generation_only
from sim.core.latency import transfer_s
from sim.core.requests import ClientRequest, RequestError, read_client_request
from sim.core.settings import GenSettings, SettingError
from sim.core.tokens import token_text
from sim.core.usage import Usage
from sim.gen_server.counters import GenCollector, GenCounters, Lives
from sim.gen_server.live_rate import pace_json, read_pace
from sim.gen_server.outlet import Outlet
from sim.gen_server.pacer import make_pacer
from sim.gen_server.stream import TokenStream, WholeReply
from sim.service.http_json import ApiError, json_response, read_json
from sim.service.openai_app import data_app
from sim.service.server import Runtime, Service
from sim.service.wheel import TimerWheel

__all__ = ["build"]

_STREAM_HEADERS = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}


def build(runtime: Runtime, settings: GenSettings) -> Service:
    """The service of one generation server."""
    server = _GenServer(runtime, settings)
    return Service(
        data=data_app(server.complete, ready=lambda: True),
        counters=server.counters.to_json,
        collectors=[GenCollector(server.counters, settings, server.busy_slots)],
        ops_routes=[
            web.post("/admin/drain", server.drain),
            web.get("/admin/rate", server.get_rate),
            web.post("/admin/rate", server.set_rate),
        ],
        stopping=server.stop,
        close=server.wheel.close,
        idle=lambda: not server.counters.replies,
    )


@dataclass(frozen=True, slots=True)
class _Order:
    """One accepted request: what to send, in which shape, and what to say of it."""

    client: ClientRequest
    settings: GenSettings
    usage: Usage
    id: str
    created: int
    arrived_ns: int


class _GenServer:
    def __init__(self, runtime: Runtime, settings: GenSettings) -> None:
        self.wheel = TimerWheel(runtime.loop, runtime.clock)
        self.pacer = make_pacer(settings, self.wheel, runtime.clock)
        self.counters = GenCounters()
        self._runtime = runtime
        self._settings = settings
        self._stopping = False
        self._paced_apart = 0
        self._request_ids = itertools.count(1)

    async def complete(self, request: web.Request, endpoint: str) -> web.StreamResponse:
        """Serve one completion; whatever happens, the request is counted under one outcome."""
        arrived_ns = self._runtime.clock()
        self.counters.requests += 1
        refused = "client_gone"
        try:
            order = self._accept(await read_json(request), endpoint, arrived_ns)
            refused = ""
        except (ApiError, RequestError) as error:
            refused = "no_slot" if isinstance(error, ApiError) and error.status == 429 else "bad_request"
            raise
        except Exception:
            refused = "failed"
            raise
        finally:
            if refused:
                self.counters.refused[refused] += 1
        return await (self._stream(request, order) if order.client.stream else self._answer(order))

    def busy_slots(self) -> int:
        """Replies that hold a slot: those with a pace of their own as well."""
        return len(self.pacer) + self._paced_apart

    async def drain(self, _request: web.Request) -> web.StreamResponse:
        """POST /admin/drain: every live reply ends with its next token."""
        return json_response({"streams": sum(reply.drain() for reply in self.counters.replies)})

    async def get_rate(self, _request: web.Request) -> web.StreamResponse:
        """GET /admin/rate: the pace of one stream."""
        return json_response(pace_json(self._settings))

    async def set_rate(self, request: web.Request) -> web.StreamResponse:
        """POST /admin/rate: live streams and those to come go on at this pace; scripts with their own keep it."""
        try:
            settings = read_pace(await read_json(request), self._settings)
        except SettingError as error:
            raise ApiError(400, str(error), code="bad_rate") from None
        self._settings = settings
        streams = self.pacer.change_pace(settings, self._runtime.clock())
        return json_response({**pace_json(settings), "streams": streams})

    def stop(self) -> None:
        """The process ends: replies that are cut from now on were stopped, not left by their clients."""
        self._stopping = True

    def _accept(self, body: object, endpoint: str, arrived_ns: int) -> _Order:
        client = read_client_request(body, endpoint, self._settings.dialect)
        assert isinstance(body, Mapping)
        params = body.get("disaggregated_params")
        if is_generation_only(body):
            check_generation_only(body)
        elif params is not None:
            raise RequestError(
                "disaggregated_params must be an object with request_type generation_only", "disaggregated_params"
            )
        usage = ctx_usage_of(body)
        if self.busy_slots() >= self._settings.slots:
            message = f"all {self._settings.slots} slots are busy"
            raise ApiError(429, message, kind="rate_limit_error", code="no_slot")
        settings, prompt_tokens = self._settings, client.prompt_tokens
        if client.script is not None:
            settings = client.script.apply(settings)
            prompt_tokens = client.script.prompt_tokens or prompt_tokens
        if usage is None or not settings.apply_ctx_usage:
            usage = Usage(prompt_tokens, prompt_tokens)
        number = next(self._request_ids)
        return _Order(
            client=client,
            settings=settings,
            usage=usage,
            id=f"{'chatcmpl' if endpoint == 'chat' else 'cmpl'}-{number:010d}",
            created=int(self._runtime.wall_clock()),
            arrived_ns=arrived_ns,
        )

    async def _stream(self, request: web.Request, order: _Order) -> web.StreamResponse:
        create_future = self._runtime.loop.create_future
        response = web.StreamResponse(headers=_STREAM_HEADERS)
        ended = create_future()
        outlet = Outlet(create_future(), self.wheel, self._runtime.clock, order.settings.split_at)
        stream = TokenStream(
            self.counters,
            order.settings,
            order.client.max_tokens,
            partial(_set, ended),
            writer=_writer(order),
            outlet=outlet,
            wheel=self.wheel,
        )
        with self._running(stream, order, self.counters.streams):
            try:
                await outlet.first_write
                await outlet.attach(request, response)
                await ended
                await response.write_eof()
            finally:
                stream.close()
        return response

    async def _answer(self, order: _Order) -> web.StreamResponse:
        client = order.client
        ended = self._runtime.loop.create_future()
        reply = WholeReply(self.counters, client.max_tokens, partial(_set, ended))
        with self._running(reply, order, self.counters.answers):
            await ended
        texts = client.script.texts if client.script is not None else None
        return json_response(
            full_answer(
                client.endpoint,
                id=order.id,
                created=order.created,
                model=client.model,
                text="".join(texts[: reply.total] if texts is not None else map(token_text, range(reply.total))),
                usage=replace(order.usage, completion_tokens=reply.total),
            )
        )

    @contextmanager
    def _running(self, reply: TokenStream | WholeReply, order: _Order, lives: Lives) -> Iterator[None]:
        """Let ``reply`` have its tokens while the context lasts; then its slot is free and its outcome counted."""
        lives.started += 1
        self.counters.replies.add(reply)
        transfer_ns = round(transfer_s(order.settings, order.client.prompt_tokens) * 1e9)
        apart = order.client.script is not None and order.client.script.paces
        pacer = make_pacer(order.settings, self.wheel, self._runtime.clock) if apart else self.pacer
        self._paced_apart += apart
        pacer.join(reply, order.arrived_ns + transfer_ns)
        failed = False
        try:
            yield
        except ConnectionError:
            raise
        except Exception:
            failed = True
            raise
        finally:
            pacer.leave(reply)
            self._paced_apart -= apart
            self.counters.retire(reply)
            if reply.finished:
                outcome = "drained" if reply.drained else "complete"
            else:
                outcome = "failed" if failed else "stopped" if self._stopping else "client_gone"
            lives.ended[outcome] += 1


def _writer(order: _Order) -> StreamWriter:
    client = order.client
    texts = client.script.texts if client.script is not None else None
    return StreamWriter(
        ChunkShape.from_settings(order.settings),
        endpoint=client.endpoint,
        id=order.id,
        created=order.created,
        model=client.model,
        usage=order.usage,
        include_usage=client.include_usage,
        texts=texts,
        continuous=client.continuous_usage,
    )


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():  # its handler may have been cancelled in this very turn
        future.set_result(None)
