"""One chunk on its way at a time, in turn, with gen's own bytes; and a count's load against real counts of it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from loadtest.experiment import counted_load, lockstep
from loadtest.experiment.counted_load import LOADS, send_load
from loadtest.experiment.lockstep import Lockstep
from loadtest.load_settings import LoadSettings

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
REQUEST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"


def frame(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


class Gen:
    """Answers every request on a connection with ``reply``, all at once, and counts them."""

    def __init__(self, reply: bytes) -> None:
        self.reply = reply
        self.requests = 0
        self.tasks: list[asyncio.Task[None]] = []

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.tasks.append(asyncio.create_task(self.serve(reader, writer)))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
                await reader.readexactly(int(length[0].partition(b":")[2]) if length else 0)
                self.requests += 1
                writer.write(self.reply)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
            await writer.wait_closed()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self.accept, "127.0.0.1", 0)
        try:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finally:
            server.close()
            async with asyncio.timeout(5):
                await asyncio.gather(*self.tasks)


def gen(reply: bytes) -> contextlib.AbstractAsyncContextManager[str]:
    return Gen(reply).running()


async def connect(url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))


async def test_a_chunk_waits_until_the_one_before_has_arrived() -> None:
    events = [b"data: one\n\n", b"data: two\n\ndata: three\n\n", b"data: [DONE]\n\n"]
    reply = HEAD + b"".join(map(frame, events)) + b"0\r\n\r\n"
    pace = Lockstep()
    async with gen(reply) as gen_url, pace.front(gen_url) as url:
        reader, writer = await connect(url)
        writer.write(REQUEST)
        assert await reader.readexactly(len(HEAD)) == HEAD
        for event in events:
            assert await reader.readexactly(len(frame(event))) == frame(event)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(reader.readexactly(1), 0.05)
            pace.arrived(event.count(b"\n\n"))
        assert await reader.readexactly(5) == b"0\r\n\r\n"
        writer.close()


async def test_other_streams_wait_too_and_then_take_their_turn() -> None:
    reply = HEAD + frame(b"data: one\n\n") + frame(b"data: two\n\n") + b"0\r\n\r\n"
    pace = Lockstep()
    async with gen(reply) as gen_url, pace.front(gen_url) as url:
        first, second = await connect(url), await connect(url)
        first[1].write(REQUEST)
        await first[0].readuntil(b"one\n\n")
        second[1].write(REQUEST)
        await second[0].readexactly(len(HEAD))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(second[0].readexactly(1), 0.05)
        pace.arrived(1)
        await second[0].readuntil(b"one\n\n")
        pace.arrived(1)
        await first[0].readuntil(b"two\n\n")
        pace.arrived(1)
        await second[0].readuntil(b"two\n\n")
        for _, writer in (first, second):
            writer.close()


async def test_before_go_a_stream_stops_after_its_first_chunk_and_answers_pass() -> None:
    reply = HEAD + frame(b"data: one\n\n") + frame(b"data: two\n\n") + b"0\r\n\r\n"
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine"
    pace = Lockstep()
    pace.go.clear()
    async with gen(reply) as gen_url, pace.front(gen_url) as url:
        reader, writer = await connect(url)
        writer.write(REQUEST)
        await reader.readuntil(b"one\n\n")
        pace.arrived(1)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.readuntil(b"two\n\n"), 0.05)
        pace.go.set()
        await reader.readuntil(b"two\n\n")
        pace.arrived(1)
        writer.close()
    async with gen(answer) as gen_url, pace.front(gen_url) as url:
        reader, writer = await connect(url)
        for _ in range(2):
            writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            assert await reader.readexactly(len(answer)) == answer
        writer.close()


@pytest.mark.parametrize(("load", "requests"), [(load, 25 + load.churn) for load in LOADS])
async def test_a_load_sends_exactly_its_requests(load: counted_load.CountedLoad, requests: int) -> None:
    fake = Gen(HEAD + frame(b"data: one\n\n") + frame(b"data: [DONE]\n\n") + b"0\r\n\r\n")
    async with fake.running() as url:
        assert await send_load(url, load, LoadSettings(), Lockstep()) == []
    assert fake.requests == requests


async def test_what_goes_wrong_is_a_line_each() -> None:
    refusal = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\nbusy"
    async with gen(refusal) as url:
        assert await send_load(url, LOADS[0], LoadSettings(), Lockstep()) == ["status 503: busy"] * 25
    async with gen(HEAD + b"0\r\n\r\n") as url:
        failures = await send_load(url, LOADS[0], LoadSettings(), Lockstep())
    assert failures == ["the reply ended without [DONE]"] * 25


async def test_a_chunk_that_never_arrives_ends_its_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lockstep, "ARRIVAL_TIMEOUT_S", 0.05)
    reply = HEAD + frame(b"data: one\n\n") + frame(b"data: two\n\n") + b"0\r\n\r\n"
    async with gen(reply) as gen_url, Lockstep().front(gen_url) as url:
        reader, writer = await connect(url)
        writer.write(REQUEST)
        assert (await reader.read(-1)).endswith(b"one\n\n\r\n")
        writer.close()
