"""Context-first flow: prefill at ctx, its hand-off to gen, each with its own retries.

A try that failed may be made again as long as the client has seen no byte: on a connection error or a 5xx, at
another server if there is one.  A 4xx is final, since it is the request's fault, and so is a timeout.  Retries
are per hop: when gen fails, the prefill is not done again (its KV still waits at ctx), or one failing gen
would multiply the prefills.  Each try of ctx gets a new disagg_request_id, so that two prefills of one request
never collide; gen's tries share the one whose hand-off they continue.

How bytes are relayed once gen streams is `relay`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from sim.core.bodies import BAD_JSON, JsonObject, read_body
from sim.core.handoff import Handoff, HandoffError, ctx_request, gen_request, read_ctx_answer
from sim.core.settings import OrchestratorSettings
from sim.core.usage import rewrite_body
from sim.orchestrator.counters import Counters
from sim.orchestrator.failure import RequestFailedError, status_failure
from sim.orchestrator.routing import Pool
from sim.orchestrator.upstream import Exchange, Upstream

__all__ = ["ContextFirst"]

EVENT_STREAM = "text/event-stream"

T = TypeVar("T")


class ContextFirst:
    """The two hops of every request.  ``ids`` gives request ids, integers that no other request has."""

    def __init__(
        self,
        settings: OrchestratorSettings,
        ctx: Pool[Upstream],
        gen: Pool[Upstream],
        counters: Counters,
        ids: Iterator[int],
    ) -> None:
        self._settings = settings
        self._ctx = ctx
        self._gen = gen
        self._counters = counters
        self._ids = ids

    async def prefill(self, body: Mapping[str, Any], endpoint: str) -> tuple[JsonObject, Handoff]:
        """The whole ctx answer and the hand-off read from it.  RequestFailedError."""

        async def attempt(upstream: Upstream) -> tuple[JsonObject, Handoff]:
            request_id = next(self._ids)
            request = msgspec.json.encode(ctx_request(body, request_id))
            answer = await self._answer(upstream, endpoint, request)
            try:
                handoff = read_ctx_answer(answer)
            except HandoffError as error:
                raise RequestFailedError(502, error.reason, str(error)) from None
            if handoff.params["disagg_request_id"] != request_id:
                wrong = handoff.params["disagg_request_id"]
                text = f"the context server answered disagg_request_id {wrong}, not {request_id}"
                raise RequestFailedError(502, "wrong_disagg_request_id", text)
            return answer, handoff

        return await self._with_retries("ctx", self._ctx, attempt)

    async def generate(self, body: Mapping[str, Any], handoff: Handoff, endpoint: str) -> Mapping[str, Any]:
        """Gen's whole (non-streamed) answer, its usage ctx's.  RequestFailedError."""
        request = self._gen_request(body, handoff, endpoint)

        async def attempt(upstream: Upstream) -> JsonObject:
            return await self._answer(upstream, endpoint, request)

        answer = await self._with_retries("gen", self._gen, attempt)
        if self._settings.usage_by == "gen":
            return answer.members
        told = {"usage": answer.get("usage")}
        rewritten = rewrite_body(told, handoff.usage)
        return answer.members if rewritten is told else {**answer.members, **rewritten}

    async def open_stream(self, body: Mapping[str, Any], handoff: Handoff, endpoint: str) -> Exchange:
        """Gen's token stream, its head received and no byte of its body; the caller closes it.  RequestFailedError."""
        request = self._gen_request(body, handoff, endpoint)
        timeout_s = self._settings.first_byte_timeout_s

        async def attempt(upstream: Upstream) -> Exchange:
            exchange = await upstream.post(endpoint, request, timeout_s)
            try:
                await self._expect(exchange, EVENT_STREAM)
            except BaseException:
                exchange.close()
                raise
            return exchange

        return await self._with_retries("gen", self._gen, attempt)

    def _gen_request(self, body: Mapping[str, Any], handoff: Handoff, endpoint: str) -> bytes:
        with_ctx_usage = self._settings.usage_by == "gen"
        return msgspec.json.encode(gen_request(body, handoff, endpoint, with_ctx_usage=with_ctx_usage))

    async def _answer(self, upstream: Upstream, endpoint: str, request: bytes) -> JsonObject:
        """One non-streamed exchange: the answer, cut into its members."""
        timeout_s = self._settings.first_byte_timeout_s
        exchange = await upstream.post(endpoint, request, timeout_s)
        try:
            await self._expect(exchange, "application/json")
            raw = await exchange.read(timeout_s)
        finally:
            exchange.close()
        try:
            answer = read_body(raw)
        except BAD_JSON as error:
            text = f"{upstream.role} server {upstream.url} answered what is not JSON: {error}"
            raise RequestFailedError(502, "bad_answer", text) from None
        if not isinstance(answer, JsonObject):
            raise RequestFailedError(502, "bad_shape", f"{upstream.role} server {upstream.url} answered no JSON object")
        return answer

    async def _expect(self, exchange: Exchange, content_type: str) -> None:
        """Refuse an answer of another status or type than asked for: it must not reach the client as a 200."""
        response, upstream = exchange.response, exchange.upstream
        if response.status != 200:
            raw = await exchange.read(self._settings.first_byte_timeout_s)
            raise status_failure(upstream.role, upstream.url, response.status, raw)
        if response.content_type != content_type:
            text = f"{upstream.role} server {upstream.url} answered {response.content_type}, expected {content_type}"
            raise RequestFailedError(502, "bad_answer", text)

    async def _with_retries(self, role: str, pool: Pool[Upstream], attempt: Callable[[Upstream], Awaitable[T]]) -> T:
        tried: list[Upstream] = []
        failure: RequestFailedError | None = None
        for _ in range(self._settings.retries + 1):
            upstream = pool.choose(tried)
            if upstream is None:
                break
            if failure is not None:
                self._counters.retries[role] += 1
            try:
                return await attempt(upstream)
            except RequestFailedError as failed:
                if not failed.retryable:
                    raise
                failure = failed.with_traceback(None)  # which holds this frame, and by it what is sent
                tried.append(upstream)
        problems = "; ".join(f"{upstream.url}: {upstream.problem}" for upstream in pool.targets)
        raise failure or RequestFailedError(503, "no_upstream", f"no {role} server is ready ({problems})")
