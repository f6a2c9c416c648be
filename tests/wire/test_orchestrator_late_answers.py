"""A server that says more than it was asked: nobody else is given it, and the next request is served as any other."""

from __future__ import annotations

import asyncio
import json

import pytest

from sim.orchestrator import readiness
from tests.wire.fakes import on_uvloop
from tests.wire.scripted import CHAT, DONE, ROLE, orchestrating, prefill, scripted, streaming, token, until

pytestmark = pytest.mark.usefixtures("engine")

WHOLE = {key: value for key, value in CHAT.items() if not key.startswith("stream")}
STREAM = ROLE + token("right") + DONE
GEN_ANSWER = {"choices": [{"message": {"content": "right"}}], "usage": {"prompt_tokens": 1}}


@pytest.fixture(autouse=True)
def _no_poll_takes_a_connection(monkeypatch):
    """A readiness poll would find the late bytes before the request that is to find them."""
    monkeypatch.setattr(readiness, "READY_POLL_S", 3600.0)


def http(status: int, body: bytes, content_type: str = "application/json") -> bytes:
    head = f"HTTP/1.1 {status} X\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def chunked(body: bytes, head: bytes = b"") -> bytes:
    first = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    return first + head + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)


WRONG_STREAM = ROLE + token("wrong") + DONE
LATE = {
    "an error": http(503, b'{"error": "late"}'),
    "an answer": http(200, json.dumps({"choices": [{"message": {"content": "wrong"}}]}).encode()),
    "a stream": chunked(WRONG_STREAM),
    "half a head": b"HTTP/1.1 503 X\r\nContent-Le",
    "no HTTP": b"\x00\x01\x02",
}


def then(script, late, how, gone):
    """``script``'s answer and ``late``: in the same write, or when told that the answer has been dealt with."""

    async def twice(peer, request):
        writer = peer.writer
        if how == "same write":
            held = []
            peer.writer = Holding(writer, held)
            await script(peer, request)
            writer.write(b"".join(held) + late)
        elif how == "with the end":
            held = []
            peer.writer = Holding(writer, held)
            await script(peer, request)
            whole = b"".join(held)
            writer.write(whole[:-3])
            await asyncio.sleep(0.05)
            writer.write(whole[-3:] + late)
        else:
            await script(peer, request)
            await asyncio.sleep(0.05)
            writer.write(late)
        await peer.hung_up()
        gone.set()

    return twice


async def soon(event):
    async with asyncio.timeout(5):
        await event.wait()


class Holding:
    """A writer that keeps what is written."""

    def __init__(self, writer, held):
        self._writer, self._held = writer, held

    def write(self, data):
        self._held.append(data)

    async def drain(self):
        await asyncio.sleep(0)

    def __getattr__(self, name):
        return getattr(self._writer, name)


async def gen_answers(peer, request):
    await peer.answer(200, GEN_ANSWER)


async def gen_streams_by_length(peer, request):
    await peer.answer(200, STREAM, "text/event-stream")


CASES = {
    f"{name} {how}": (how, late)
    for name, late in LATE.items()
    for how in ("same write", "with the end", "late")
    if name != "no HTTP" or how == "late"  # else it breaks the answer itself
}


@pytest.mark.parametrize(("how", "late"), CASES.values(), ids=CASES)
@on_uvloop
async def test_what_ctx_sends_behind_its_answer_is_not_the_next_request_s(late, how):
    gone = asyncio.Event()
    async with (
        scripted(then(prefill, late, how, gone), prefill) as ctx,
        scripted(streaming(STREAM)) as gen,
        orchestrating(ctx, gen, retries=0) as orchestrator,
    ):
        assert (await orchestrator.ask()).body == STREAM
        await soon(gone)
        assert (await orchestrator.ask()).body == STREAM
        assert sum(orchestrator.counters["failures"].values()) == 0
        assert ctx.connections <= 3


@pytest.mark.parametrize(
    ("script", "body", "right"),
    [
        (gen_answers, WHOLE, None),
        (streaming(STREAM), CHAT, STREAM),
        (gen_streams_by_length, CHAT, STREAM),
    ],
    ids=["whole", "stream", "stream by length"],
)
@pytest.mark.parametrize(("how", "late"), CASES.values(), ids=CASES)
@on_uvloop
async def test_what_gen_sends_behind_its_answer_is_not_the_next_request_s(script, body, right, late, how):
    gone = asyncio.Event()
    async with (
        scripted(prefill) as ctx,
        scripted(then(script, late, how, gone), script) as gen,
        orchestrating(ctx, gen, retries=0) as orchestrator,
    ):
        for _ in range(2):
            answer = await orchestrator.ask(body)
            assert answer.status == 200
            if right is None:
                assert answer.json["choices"] == GEN_ANSWER["choices"]
            else:
                assert answer.body == right
            await soon(gone)
        assert sum(orchestrator.counters["failures"].values()) == 0
        await until(lambda: orchestrator.counters["streams"]["live"] == 0)


@on_uvloop
async def test_two_answers_to_a_readiness_poll_do_not_answer_a_request():
    async with scripted(prefill) as ctx, scripted(streaming(STREAM)) as gen:
        serve = ctx.serve

        async def twice(reader, writer):
            write = writer.write
            writer.write = lambda data: write(data * 2 if data.endswith(b"{}") else data)
            await serve(reader, writer)

        listener = await asyncio.start_server(twice, "127.0.0.1", 0)
        async with listener:
            ctx.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
            async with orchestrating(ctx, gen, retries=0) as orchestrator:
                assert (await orchestrator.ask()).body == STREAM
