"""What a live stream keeps in memory: not the request that it came from."""

from __future__ import annotations

import asyncio
import gc
import json
import tracemalloc

import pytest

from tests.wire.fakes import on_uvloop
from tests.wire.scripted import (
    CTX_USAGE,
    DONE,
    ROLE,
    closing,
    orchestrating,
    scripted,
    streaming,
    token,
    until,
)

pytestmark = pytest.mark.usefixtures("engine")

STREAMS = 20
BODY = json.dumps({"messages": [{"role": "user", "content": " word" * 40_000}], "stream": True}).encode()
RELAY = (tracemalloc.Filter(True, "*/sim/*"), tracemalloc.Filter(True, "*/aiohttp/*"))
"""The peers, which keep what they are sent, read by asyncio's streams."""


async def prefill_of_40_000_ids(peer, request):
    params = {**request.params, "ctx_request_id": 5, "first_gen_tokens": [7]}
    choice = {"index": 0, "finish_reason": "length", "disaggregated_params": params}
    await peer.answer(200, {"choices": [choice], "usage": CTX_USAGE, "prompt_token_ids": list(range(40_000))})


def held_bytes():
    return sum(trace.size for trace in tracemalloc.take_snapshot().filter_traces(RELAY).traces)


@pytest.mark.parametrize("first_try_fails", [False, True])
@on_uvloop
async def test_a_live_stream_keeps_neither_its_prompt_nor_ctx_token_ids(first_try_fails):
    gate = asyncio.Event()

    async def stream(peer, request):
        await peer.open_stream()
        await peer.chunk(ROLE + token("a"))
        await gate.wait()
        await peer.chunk(DONE)
        await peer.end_stream()

    async def begun():
        client = await orchestrator.client()
        await client.send(BODY)
        await client.head()
        assert await client.chunk() == ROLE + token("a")

    once = [closing] if first_try_fails else []
    async with (
        scripted(prefill_of_40_000_ids) as ctx,
        scripted(*([*once, stream] * (STREAMS + 2))) as gen,
        orchestrating(ctx, gen) as orchestrator,
    ):
        await begun()  # what is made once
        tracemalloc.start()
        try:
            gc.collect()
            gc.disable()  # the collector is not needed for it
            before = held_bytes()
            for _ in range(STREAMS):
                await begun()
            each = (held_bytes() - before) / STREAMS
        finally:
            gc.enable()
            tracemalloc.stop()
        gate.set()
        await until(lambda: orchestrator.counters["streams"]["live"] == 0)
        assert orchestrator.counters["streams"]["ended"]["complete"] == STREAMS + 1
        assert orchestrator.counters["retries"]["gen"] == first_try_fails * (STREAMS + 1)
    assert each < 64 << 10 < len(BODY)


@on_uvloop
async def test_a_body_in_chunks_that_outgrows_the_limit_is_refused_before_its_end():
    async with (
        scripted(closing) as ctx,
        scripted(streaming(DONE)) as gen,
        orchestrating(ctx, gen, max_body_bytes=1024) as orchestrator,
    ):
        client = await orchestrator.client()
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        client.writer.write(head + b"3e8\r\n" + b"x" * 1000 + b"\r\n3e8\r\n" + b"x" * 1000 + b"\r\n")
        answer = await client.answer()
        assert (answer.status, answer.code) == (413, "body_too_large")
        assert answer.json["error"]["message"] == "the body is too large: more than 1024 bytes"
