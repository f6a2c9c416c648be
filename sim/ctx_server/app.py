"""The context server: a non-streamed prefill that answers the hand-off and the true usage.

A request is served when `prefill.PrefillQueue` says so, and answered in TensorRT-LLM's dialect.  A plain request,
one without ``disaggregated_params``, is prefilled too and gets its first token without a hand-off: that is what
health probes and a person with curl send, and it takes no code of its own.  A stream is refused, since a prefill
has nothing to stream.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec
from aiohttp import web
from msgspec import Raw

from sim.core.bodies import JsonObject
from sim.core.handoff import ctx_answer
from sim.core.prefix_cache import PrefixCache, block_keys
from sim.core.requests import ClientRequest, RequestError, read_client_request
from sim.core.settings import CtxSettings
from sim.core.tokens import cached_tokens_of, token_text
from sim.core.usage import Usage
from sim.ctx_server.counters import CtxCollector, CtxCounters
from sim.ctx_server.prefill import Prefill, PrefillQueue, QueueFullError
from sim.service.http_json import ApiError, json_response, read_json_body
from sim.service.openai_app import data_app
from sim.service.server import Runtime, Service
from sim.service.wheel import TimerWheel

__all__ = ["build"]

FIRST_TOKEN_ID = 7


def build(runtime: Runtime, settings: CtxSettings) -> Service:
    """The service of one context server."""
    wheel = TimerWheel(runtime.loop, runtime.clock)
    queue = PrefillQueue(settings, wheel)
    cache = PrefixCache(settings.cache_block_tokens, settings.cache_capacity_tokens)
    counters = CtxCounters(queue, cache)
    server = _CtxServer(runtime, queue, cache, counters)
    return Service(
        data=data_app(server.complete, ready=lambda: True),
        counters=counters.to_json,
        collectors=[CtxCollector(counters)],
        close=wheel.close,
        idle=lambda: not counters.live,
    )


class _CtxServer:
    def __init__(self, runtime: Runtime, queue: PrefillQueue, cache: PrefixCache, counters: CtxCounters) -> None:
        self._runtime = runtime
        self._queue = queue
        self._cache = cache
        self._counters = counters
        self._request_ids = itertools.count(1)

    async def complete(self, request: web.Request, endpoint: str) -> web.StreamResponse:
        """Answer one prefill; whatever happens, the request is counted under one outcome."""
        counters = self._counters
        counters.requests += 1
        counters.live += 1
        outcome = "client_gone"
        try:
            response = json_response(await self._answer(await read_json_body(request), endpoint))
            outcome = "answered"
        except QueueFullError:
            outcome = "queue_full"
            message = f"all {self._queue.settings.slots} slots are busy and {self._queue.queued} requests wait"
            raise ApiError(429, message, kind="rate_limit_error", code="queue_full") from None
        except (ApiError, RequestError):
            outcome = "bad_request"
            raise
        except Exception:
            outcome = "failed"
            raise
        finally:
            counters.live -= 1
            counters.ended[outcome] += 1
        return response

    async def _answer(self, body: object, endpoint: str) -> dict[str, Any]:
        client = read_client_request(body, endpoint)
        assert isinstance(body, JsonObject)
        _check_context_only(body, client)
        blocks = self._blocks(body, client)
        usage = Usage(client.prompt_tokens, self._cached_tokens(client, blocks), completion_tokens=1)
        await self._prefill(usage.prompt_tokens - usage.cached_tokens, blocks)
        self._counters.prompt_tokens["cached"] += usage.cached_tokens
        self._counters.prompt_tokens["computed"] += usage.prompt_tokens - usage.cached_tokens
        number = next(self._request_ids)
        texts = client.script.texts if client.script is not None else None
        return ctx_answer(
            endpoint,
            body,
            usage=usage,
            id=f"{'chatcmpl' if endpoint == 'chat' else 'cmpl'}-{number}",
            created=int(self._runtime.wall_clock()),
            model=client.model,
            ctx_request_id=number,
            first_token=FIRST_TOKEN_ID,
            first_text=texts[0] if texts else token_text(0),
            # Also for max_tokens 1: with any other reason the orchestrator would not ask gen for the reply.
            finish_reason="length",
            prompt_token_ids=self._prompt_token_ids(body, client),
        )

    async def _prefill(self, uncached_tokens: int, blocks: Sequence[bytes]) -> None:
        done = self._runtime.loop.create_future()

        def on_end() -> None:
            if not done.done():  # cancelled, but its handler has not run yet
                done.set_result(None)

        prefill = Prefill(self._queue, uncached_tokens, on_end)
        try:
            self._queue.arrive(prefill, self._runtime.clock())
            # Prefills start in the order they come in, so what is found now is what would be found at the start.
            self._cache.hold(blocks)
            await done
        finally:
            # The handler is cancelled when its client hangs up: the place is free at once.
            self._queue.leave(prefill, self._runtime.clock())

    def _blocks(self, body: JsonObject, client: ClientRequest) -> Sequence[bytes]:
        """Keys of the prompt's blocks; none where the cache is not asked."""
        settings = self._queue.settings
        scripted = client.script is not None and client.script.cached_tokens is not None
        if scripted or settings.prefix_cache != "blocks":
            return ()
        return block_keys(body, settings.cache_block_tokens)

    def _cached_tokens(self, client: ClientRequest, blocks: Sequence[bytes]) -> int:
        if client.script is not None and client.script.cached_tokens is not None:
            return min(client.script.cached_tokens, client.prompt_tokens)
        if self._queue.settings.prefix_cache == "blocks":
            return self._cache.cached_tokens(blocks, client.prompt_tokens)
        return cached_tokens_of(client.prompt_tokens, self._queue.settings.cache_hit_ratio)

    def _prompt_token_ids(self, body: JsonObject, client: ClientRequest) -> Raw | None:
        if not self._queue.settings.prompt_token_ids:
            return None
        given = client.endpoint == "completions" and body.id_count("prompt") > 0
        return body.members["prompt"] if given else _made_up_ids(client.prompt_tokens)


@lru_cache(maxsize=16)
def _made_up_ids(count: int) -> Raw:
    return Raw(msgspec.json.encode(list(range(count))))


def _check_context_only(body: Mapping[str, Any], client: ClientRequest) -> None:
    """RequestError unless this is a prefill that can be answered."""
    if client.stream:
        raise RequestError("a context server does not stream; send stream false", "stream")
    params = body.get("disaggregated_params")
    if params is None:
        return
    if not isinstance(params, Mapping) or params.get("request_type") != "context_only":
        raise RequestError(
            "disaggregated_params must be an object with request_type context_only", "disaggregated_params"
        )
    if type(params.get("disagg_request_id")) is not int:
        raise RequestError("disaggregated_params.disagg_request_id must be a whole number", "disaggregated_params")
