"""Connections to ctx and gen are used again, and long bodies arrive whole: what a request costs depends on both."""

from __future__ import annotations

import asyncio
import json

import pytest

from sim.orchestrator import readiness
from tests.wire.fakes import on_uvloop
from tests.wire.scripted import (
    CHAT,
    DONE,
    PATH,
    ROLE,
    answering,
    orchestrating,
    prefill,
    scripted,
    streaming,
    token,
    until,
)

STREAM = streaming(ROLE, token(" 0"), DONE)
ANSWER = answering(200, {"choices": [{"message": {"content": "x"}}], "usage": {"prompt_tokens": 1}})


@pytest.fixture(autouse=True)
def _no_poll_takes_a_connection(monkeypatch):
    """A readiness poll in the same moment as a request would need a connection of its own."""
    monkeypatch.setattr(readiness, "READY_POLL_S", 3600.0)


def together(count, script):
    """``script``, begun only when ``count`` requests are there."""
    barrier = asyncio.Barrier(count)

    async def wait(peer, request):
        await barrier.wait()
        await script(peer, request)

    return wait


@pytest.mark.parametrize("stream", [True, False])
@on_uvloop
async def test_requests_one_after_another_share_one_connection_to_each_server(stream):
    body = CHAT if stream else {key: value for key, value in CHAT.items() if not key.startswith("stream")}
    async with (
        scripted(prefill) as ctx,
        scripted(STREAM if stream else ANSWER) as gen,
        orchestrating(ctx, gen) as orchestrator,
    ):
        client = await orchestrator.client()
        for _ in range(20):
            await client.send(body)
            assert (await client.answer()).status == 200
        assert (len(ctx.requests), len(gen.requests)) == (20, 20)
        assert (ctx.connections, gen.connections) == (1, 1)


@on_uvloop
async def test_requests_at_the_same_time_use_the_idle_connections_again():
    async with (
        scripted(together(5, prefill)) as ctx,
        scripted(together(5, STREAM)) as gen,
        orchestrating(ctx, gen) as orchestrator,
    ):
        for _ in range(4):
            answers = await asyncio.gather(*(orchestrator.ask() for _ in range(5)))
            assert {answer.status for answer in answers} == {200}
        assert (len(ctx.requests), len(gen.requests)) == (20, 20)
        assert (ctx.connections, gen.connections) == (5, 5)


@on_uvloop
async def test_a_connection_whose_stream_was_left_early_is_not_used_again():
    async def endless(peer, request):
        await peer.open_stream()
        await peer.chunk(ROLE + token(" 0"))
        await peer.hung_up()

    async with scripted(prefill) as ctx, scripted(endless, STREAM) as gen, orchestrating(ctx, gen) as orchestrator:
        leaver = await orchestrator.client()
        await leaver.send()
        await leaver.head()
        await leaver.chunk()
        leaver.close()
        await until(lambda: orchestrator.counters["streams"]["ended"]["client_gone"] == 1)
        assert (await orchestrator.ask()).chunks[-1].endswith(DONE)
        assert (ctx.connections, gen.connections) == (1, 2)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (PATH, {"messages": [{"role": "user", "content": 'é "\\\n' * 40_000}]}),
        ("/v1/completions", {"prompt": list(range(40_000))}),
    ],
    ids=["text", "ids"],
)
@pytest.mark.parametrize("ascii_only", [True, False])
@on_uvloop
async def test_a_prompt_of_40_000_tokens_arrives_byte_for_byte(path, body, ascii_only):
    name, prompt = next(iter(body.items()))
    sent = json.dumps(prompt, ensure_ascii=ascii_only).encode()
    raw = b'{"stream": true, "%b" : %b, "temperature": 1.0}' % (name.encode(), sent)

    async with scripted(prefill) as ctx, scripted(STREAM) as gen, orchestrating(ctx, gen) as orchestrator:
        answer = await orchestrator.ask(raw, path)
        assert answer.body == ROLE + token(" 0") + DONE
        assert b'"%b":%b,' % (name.encode(), sent) in ctx.requests[0].body
        assert ctx.requests[0].json == {
            **body,
            "stream": False,
            "stream_options": None,
            "temperature": 1.0,
            "disaggregated_params": ctx.requests[0].params,
        }
        to_gen = gen.requests[0]
        if path == PATH:
            assert b'"%b":%b,' % (name.encode(), sent) in to_gen.body
            assert to_gen.json["prompt_token_ids"] == [1, 2, 3]
        else:
            assert to_gen.json["prompt"] == [1, 2, 3]
        assert b'"temperature":1.0' in to_gen.body
        assert to_gen.json["stream"] is True
