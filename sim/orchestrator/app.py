"""The orchestrator put together: one object per concern, the data port's handler, and its life on the loop.

Read `Orchestrator.complete` and `_begin` for the path of a request: ctx, then gen, then the relay (`flow`, `relay`).
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import Any

from aiohttp import web

from sim.core.bodies import JsonObject
from sim.core.requests import RequestError, read_client_request
from sim.orchestrator.admin import admin_routes
from sim.orchestrator.arms import Arms, PolicyFailedError
from sim.orchestrator.config import OrchestratorOptions
from sim.orchestrator.counters import Counters
from sim.orchestrator.credit import PolicyCredit
from sim.orchestrator.ctx_final import final_answer, final_stream
from sim.orchestrator.failure import RequestFailedError
from sim.orchestrator.flow import ContextFirst
from sim.orchestrator.ledger import BlockRunner, Meter
from sim.orchestrator.metrics import OrchestratorCollector
from sim.orchestrator.readiness import watch_readiness
from sim.orchestrator.relay import StreamRelay
from sim.orchestrator.routing import Pool
from sim.orchestrator.upstream import Upstream
from sim.orchestrator.watch import StallWatch
from sim.service.http_json import ApiError, json_response, read_json_body
from sim.service.openai_app import data_app
from sim.service.server import Runtime, Service

__all__ = ["build_orchestrator"]


Send = Callable[[], Awaitable[web.StreamResponse]]


class Orchestrator:
    """Answers completion requests."""

    def __init__(self, flow: ContextFirst, relay: StreamRelay, arms: Arms, counters: Counters) -> None:
        self._flow = flow
        self._relay = relay
        self._arms = arms
        self._counters = counters

    async def complete(self, request: web.Request, endpoint: str) -> web.StreamResponse:
        """One request, from its body to the last byte of its answer; it is counted under exactly one outcome."""
        self._counters.requests += 1
        try:
            with self._failures_counted():
                send = await self._begin(request, endpoint)
        except RequestFailedError as failure:
            return failure.response()
        return await send()

    async def _begin(self, request: web.Request, endpoint: str) -> Send:
        """All that can still fail with a status of its own, up to gen's answer; then how to send what came."""
        body = await read_json_body(request)
        asked = read_client_request(body, endpoint, count_prompt=False)
        assert isinstance(body, JsonObject)
        answer, handoff = await self._flow.prefill(body, endpoint)
        if not handoff.needs_gen:
            if not asked.stream:
                return partial(self._send_answer, final_answer(answer))
            stream = final_stream(answer, endpoint, include_usage=asked.include_usage)
            return partial(self._relay.finish, request, stream)
        if not asked.stream:
            return partial(self._send_answer, await self._flow.generate(body, handoff, endpoint))
        try:
            policies = self._arms.open(handoff.usage)
        except PolicyFailedError as error:
            raise RequestFailedError(500, "policy_error", str(error)) from None
        exchange = await self._flow.open_stream(body, handoff, endpoint)
        return partial(self._relay.run, request, exchange, policies)

    async def _send_answer(self, answer: Mapping[str, Any]) -> web.StreamResponse:
        self._counters.answers += 1
        return json_response(answer)

    @contextlib.contextmanager
    def _failures_counted(self) -> Iterator[None]:
        failures = self._counters.failures
        try:
            yield
        except RequestFailedError as failure:
            failures[failure.reason] += 1
            raise
        except (ApiError, RequestError):
            failures["bad_request"] += 1
            raise
        except (asyncio.CancelledError, ConnectionError):
            failures[self._counters.cancelled] += 1
            raise
        except Exception:
            failures["internal"] += 1
            raise


def build_orchestrator(options: OrchestratorOptions, runtime: Runtime) -> Service:
    """Everything wired; runs inside the loop that will serve it."""
    settings, arms = options.settings, options.arms
    counters = Counters(arms.counters)
    splice = settings.engine == "splice"
    pools = {
        role: Pool([Upstream(role, url, spliced=role == "gen" and splice) for url in urls], settings.routing)
        for role, urls in (("ctx", options.ctx), ("gen", options.gen))
    }
    upstreams = [upstream for pool in pools.values() for upstream in pool.targets]
    watch = StallWatch(
        runtime.loop,
        first_byte_timeout_s=settings.first_byte_timeout_s,
        stall_timeout_s=settings.stall_timeout_s,
    )
    # Above 2**53, so that an id which passes through a float comes back wrong and is noticed.
    ids = itertools.count(int(runtime.wall_clock() * 1000) << 20)
    flow = ContextFirst(settings, pools["ctx"], pools["gen"], counters, ids)
    relay = StreamRelay(settings, counters, watch)
    meter = Meter(counters, arms, runtime.health)
    credit = PolicyCredit(arms, runtime.health, meter.read)
    runner = BlockRunner(runtime.loop, arms, counters, runtime.health, meter, credit, runtime.clock)

    async def upstreams_open(_app: web.Application) -> AsyncIterator[None]:
        for upstream in upstreams:
            upstream.open()
        polling = asyncio.create_task(watch_readiness(upstreams, lambda: runner.running))
        yield
        polling.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await polling
        for upstream in upstreams:
            await upstream.close()

    def ready() -> bool:
        return all(pool.ready for pool in pools.values())

    def all_counters() -> dict[str, Any]:
        rows = [upstream.to_json() for upstream in upstreams]
        return {**counters.to_json(), "upstreams": rows, "policies": arms.to_json()}

    def stopping() -> None:
        counters.stopping = True
        runner.abort()

    def close() -> None:
        watch.close()
        meter.close()

    data = data_app(Orchestrator(flow, relay, arms, counters).complete, ready, settings.max_body_bytes)
    data.cleanup_ctx.append(upstreams_open)
    return Service(
        data=data,
        counters=all_counters,
        collectors=[OrchestratorCollector(counters, arms, credit, upstreams)],
        ops_routes=admin_routes(arms, credit, runner, runtime.clock),
        ready=ready,
        stopping=stopping,
        close=close,
        idle=(lambda: not counters.live) if settings.gc == "young" else None,
    )
