"""A client that reads slowly, or no more, in a stream's last phases: small buffers, so that little fills them."""

from __future__ import annotations

import asyncio
import json
import socket

import pytest

from tests.wire.fakes import on_uvloop
from tests.wire.scripted import (
    CHAT,
    DONE,
    PATH,
    ROLE,
    Client,
    orchestrating,
    prefill,
    scripted,
    streaming,
    token,
    until,
)

pytestmark = pytest.mark.usefixtures("engine")

SMALL = 4096
TEXT = token("x" * 400_000)
STALL_S = 0.4


@pytest.fixture(autouse=True)
def _small_send_buffers(monkeypatch):
    """What is accepted from a listening socket has that one's buffers."""
    create = socket.create_server

    def small(*args, **kwargs):
        made = create(*args, **kwargs)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL)
        return made

    monkeypatch.setattr(socket, "create_server", small)


async def asking(orchestrator, body=CHAT):
    """A client with a small receive buffer, from which nothing is read unless the test does."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL)
    connection.setblocking(False)
    address = orchestrator.started.listen
    loop = asyncio.get_running_loop()
    await loop.sock_connect(connection, (address.host, address.port))
    raw = json.dumps(body).encode()
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(raw)}\r\n\r\n"
    await loop.sock_sendall(connection, head.encode() + raw)
    return connection


async def read_slowly(connection, enough, pause_s=0.02):
    """All bytes up to ``enough``, a few at a time."""
    loop, received = asyncio.get_running_loop(), b""
    while not received.endswith(enough):
        data = await loop.sock_recv(connection, 4 * SMALL)
        if not data:
            break
        received += data
        await asyncio.sleep(pause_s)
    return received


def ended(orchestrator):
    return {reason: n for reason, n in orchestrator.counters["streams"]["ended"].items() if n}


async def ends(orchestrator):
    await until(lambda: sum(ended(orchestrator).values()) == 1 and orchestrator.counters["streams"]["live"] == 0)
    return ended(orchestrator)


@on_uvloop
async def test_a_client_that_does_not_read_the_last_of_a_stream_has_stalled():
    async with (
        scripted(prefill) as ctx,
        scripted(streaming(ROLE, TEXT + DONE)) as gen,
        orchestrating(ctx, gen, stall_timeout_s=STALL_S) as orchestrator,
    ):
        with await asking(orchestrator) as connection:
            assert await ends(orchestrator) == {"client_stalled": 1}
            assert orchestrator.counters["done_events"] == 1
            # What it has not read, it never will: the connection is closed with that unsent.
            assert b"[DONE]" not in await read_slowly(connection, b"0\r\n\r\n", pause_s=0)
            assert [row["outstanding"] for row in orchestrator.counters["upstreams"]] == [0, 0]


@on_uvloop
async def test_a_client_that_reads_the_last_of_a_stream_slowly_has_not_stalled():
    async with (
        scripted(prefill) as ctx,
        scripted(streaming(ROLE, TEXT + DONE)) as gen,
        orchestrating(ctx, gen, stall_timeout_s=STALL_S) as orchestrator,
    ):
        with await asking(orchestrator) as connection:
            received = await read_slowly(connection, b"0\r\n\r\n", pause_s=0.05)
            assert received.count(b"x") > 400_000
            assert received.endswith(DONE + b"\r\n0\r\n\r\n")
            assert await ends(orchestrator) == {"complete": 1}


@on_uvloop
async def test_a_client_that_does_not_read_why_its_stream_ended_has_stalled():
    script = streaming(ROLE, TEXT)
    async with (
        scripted(prefill) as ctx,
        scripted(script) as gen,
        orchestrating(ctx, gen, stall_timeout_s=STALL_S) as orchestrator,
    ):
        with await asking(orchestrator):
            assert await ends(orchestrator) == {"client_stalled": 1}


def finished(text):
    async def script(peer, request):
        await prefill(peer, request, finish_reason="stop", message={"role": "assistant", "content": text})

    return script


@on_uvloop
async def test_a_client_that_does_not_read_a_reply_finished_at_ctx_has_stalled():
    async with (
        scripted(finished("x" * 3_000_000)) as ctx,
        scripted(streaming(DONE)) as gen,
        orchestrating(ctx, gen, stall_timeout_s=STALL_S) as orchestrator,
    ):
        with await asking(orchestrator):
            assert await ends(orchestrator) == {"client_stalled": 1}


@on_uvloop
async def test_a_client_that_reads_a_reply_finished_at_ctx_slowly_gets_all_of_it():
    async with (
        scripted(finished("x" * 400_000)) as ctx,
        scripted(streaming(DONE)) as gen,
        orchestrating(ctx, gen, stall_timeout_s=STALL_S) as orchestrator,
    ):
        with await asking(orchestrator) as connection:
            received = await read_slowly(connection, b"0\r\n\r\n", pause_s=0.05)
            assert received.count(b"x") > 400_000
            assert await ends(orchestrator) == {"finished_at_ctx": 1}


@on_uvloop
async def test_gen_s_connection_serves_again_after_a_client_has_filled_its_buffers():
    many = streaming(ROLE, *[token("y" * 30_000)] * 40, DONE)
    async with scripted(prefill) as ctx, scripted(many) as gen, orchestrating(ctx, gen) as orchestrator:
        for _ in range(3):
            with await asking(orchestrator) as connection:
                await asyncio.sleep(0.1)  # the buffers fill, gen is held up
                received = await read_slowly(connection, b"0\r\n\r\n", pause_s=0)
                assert received.count(b"y" * 30_000) == 40
        assert await ends_all(orchestrator, 3) == {"complete": 3}
        assert gen.connections <= 2


async def ends_all(orchestrator, count):
    await until(lambda: sum(ended(orchestrator).values()) == count)
    return ended(orchestrator)


@on_uvloop
async def test_a_client_that_does_not_read_and_hangs_up_at_the_end_is_gone():
    async with scripted(prefill) as ctx, scripted(streaming(ROLE, TEXT + DONE)) as gen, orchestrating(ctx, gen) as orch:
        connection = await asking(orch)
        await until(lambda: orch.counters["done_events"] == 1 or orch.counters["events"] == 3)
        await asyncio.sleep(0.05)
        connection.close()
        assert await ends(orch) == {"client_gone": 1}
        assert (await orch.ask()).body == ROLE + TEXT + DONE


@on_uvloop
async def test_requests_sent_behind_one_another_are_answered_in_order_to_a_slow_reader():
    async with scripted(prefill) as ctx, scripted(streaming(ROLE, TEXT + DONE)) as gen, orchestrating(ctx, gen) as orch:
        address = orch.started.listen
        client = Client(*await asyncio.open_connection(address.host, address.port, limit=1 << 12))
        for _ in range(3):
            await client.send()
        await asyncio.sleep(0.2)
        for _ in range(3):
            assert (await client.answer()).body == ROLE + TEXT + DONE
        client.close()
        assert await ends_all(orch, 3) == {"complete": 3}
