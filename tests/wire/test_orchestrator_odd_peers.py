"""Clients and gen servers that HTTP allows and few tests show: each stream has one outcome, and none stays live."""

from __future__ import annotations

import asyncio
import json
import socket
import struct

import pytest

from tests.wire.fakes import on_uvloop
from tests.wire.scripted import (
    CHAT,
    DONE,
    GEN_USAGE,
    PATH,
    ROLE,
    TRUE_USAGE,
    orchestrating,
    prefill,
    scripted,
    streaming,
    token,
    until,
    usage_event,
)

pytestmark = pytest.mark.usefixtures("engine")

RAW = json.dumps(CHAT).encode()
EVENTS = (ROLE, *(token(f" {n}", ',"pad":"' + "x" * 80 + '"') for n in range(20)), usage_event(GEN_USAGE), DONE)
SENT = b"".join(EVENTS[:-2]) + usage_event(TRUE_USAGE) + DONE


def ended(orchestrator):
    return {reason: n for reason, n in orchestrator.counters["streams"]["ended"].items() if n}


def head(version="1.1", *lines):
    return "\r\n".join(
        (f"POST {PATH} HTTP/{version}", "Host: x", f"Content-Length: {len(RAW)}", *lines, "\r\n")
    ).encode()


async def settled(orchestrator, **expected):
    """Every stream that was begun has ended, and nothing is owed."""

    def at_rest():
        counters = orchestrator.counters
        return counters["streams"]["live"] == 0 and ended(orchestrator) == expected

    await until(at_rest)
    counters = orchestrator.counters
    assert counters["streams"]["started"] == sum(expected.values())
    assert counters["requests"] == counters["streams"]["started"] + sum(counters["failures"].values())
    assert [row["outstanding"] for row in counters["upstreams"]] == [0, 0]


@pytest.mark.parametrize("lines", [(), ("Connection: keep-alive",)])
@on_uvloop
async def test_a_client_of_http_1_0_gets_the_events_without_chunks_and_the_end_of_its_connection(lines):
    async with scripted(prefill) as ctx, scripted(streaming(*EVENTS)) as gen, orchestrating(ctx, gen) as orchestrator:
        for _ in range(3):  # by the third, gen's frames are known
            client = await orchestrator.client()
            client.writer.write(head("1.0", *lines) + RAW)
            async with asyncio.timeout(3):
                answer = await client.reader.read()
            assert answer.partition(b"\r\n\r\n")[2] == SENT
        await settled(orchestrator, complete=3)


@on_uvloop
async def test_a_client_that_waits_for_100_continue_is_told_to_go_on():
    async with scripted(prefill) as ctx, scripted(streaming(*EVENTS)) as gen, orchestrating(ctx, gen) as orchestrator:
        client = await orchestrator.client()
        client.writer.write(head("1.1", "Expect: 100-continue"))
        assert await client.head() == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.writer.write(RAW)
        assert (await client.answer()).body == SENT
        await settled(orchestrator, complete=1)


@pytest.mark.parametrize("cut", [1, 50, len(head()), len(head()) + 1])
@on_uvloop
async def test_requests_sent_during_a_stream_wait_their_turn_wherever_they_are_cut(cut):
    gate = asyncio.Event()

    async def script(peer, request):
        await peer.open_stream()
        await peer.chunk(EVENTS[0] + EVENTS[1])
        await gate.wait()
        for event in EVENTS[2:]:
            await peer.chunk(event)
        await peer.end_stream()

    async with scripted(prefill) as ctx, scripted(script) as gen, orchestrating(ctx, gen) as orchestrator:
        client = await orchestrator.client()
        client.writer.write(head() + RAW + (head() + RAW)[:cut])
        await client.head()
        first = await client.chunk()
        client.writer.write((head() + RAW)[cut:] + head() + RAW)
        await asyncio.sleep(0.05)
        assert len(gen.requests) == 1
        gate.set()
        while chunk := await client.chunk():
            first += chunk
        assert first == SENT
        for _ in range(2):
            assert (await client.answer()).body == SENT
        await settled(orchestrator, complete=3)


@on_uvloop
async def test_what_is_no_request_during_a_stream_does_not_break_the_stream():
    gate = asyncio.Event()

    async def script(peer, request):
        await peer.open_stream()
        await peer.chunk(EVENTS[0])
        await gate.wait()
        for event in EVENTS[1:]:
            await peer.chunk(event)
        await peer.end_stream()

    async with scripted(prefill) as ctx, scripted(script) as gen, orchestrating(ctx, gen) as orchestrator:
        client = await orchestrator.client()
        client.writer.write(head() + RAW)
        await client.head()
        received = await client.chunk()
        client.writer.write(b"\x00 nonsense\r\n\r\n")
        await asyncio.sleep(0.05)
        gate.set()
        while chunk := await client.chunk():
            received += chunk
        assert received == SENT
        assert b" 400 " in await client.head()
        await settled(orchestrator, complete=1)


def hang_up(client, how):
    if how == "shuts its side":
        client.writer.write_eof()
    elif how == "resets":
        connection = client.writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.writer.transport.abort()
    else:
        client.writer.close()


STAGES = ("body", "prefill", "before gen's head", "before a token", "in mid-stream", "inside an event", "after done")


@pytest.mark.parametrize("how", ["closes", "shuts its side", "resets"])
@pytest.mark.parametrize("stage", STAGES)
@on_uvloop
async def test_a_client_that_leaves_in_any_phase_leaves_nothing_behind(stage, how):
    reached, left, asked = asyncio.Event(), asyncio.Event(), 0

    async def stop(peer):
        reached.set()
        await peer.hung_up()
        left.set()

    async def slow_prefill(peer, request):
        await (stop(peer) if stage == "prefill" and not reached.is_set() else prefill(peer, request))

    async def script(peer, request):
        nonlocal asked
        asked += 1
        if asked > 1:
            await streaming(*EVENTS)(peer, request)
            return
        if stage == "before gen's head":
            await stop(peer)
        await peer.open_stream()
        if stage != "before a token":
            await peer.chunk(b"".join(EVENTS[:5]))
        if stage == "inside an event":
            await peer.chunk(EVENTS[5][:30])
        if stage == "after done":
            await peer.chunk(b"".join(EVENTS[5:]))
        await stop(peer)

    async with scripted(slow_prefill) as ctx, scripted(script) as gen, orchestrating(ctx, gen) as orchestrator:
        client = await orchestrator.client()
        client.writer.write(head() + (RAW[:10] if stage == "body" else RAW))
        if stage == "body":
            await until(lambda: orchestrator.counters["requests"] == 1)
        else:
            await reached.wait()
        if stage not in STAGES[:3]:
            await client.head()
        if stage in STAGES[4:]:
            await client.chunk()
        if stage == "after done":
            await client.chunk()
        hang_up(client, how)
        if stage != "body":
            await left.wait()
        stream = {} if stage in STAGES[:3] else {"complete" if stage == "after done" else "client_gone": 1}
        await until(lambda: orchestrator.counters["failures"]["client_gone"] == (stage in STAGES[:3]))
        await settled(orchestrator, **stream)
        # Nothing of it reaches whoever comes next.
        asked = max(asked, 1)
        reached.set()
        assert (await orchestrator.ask()).body == SENT


@pytest.mark.parametrize("every", [1, 2, 3, 7])
@on_uvloop
async def test_any_policy_may_take_over_before_any_read_and_inside_any_event(every):
    """Reads of every kind: known chunks, several in one read, parts of events."""
    wire = b"".join(b"%x\r\n%b\r\n" % (len(event), event) for event in EVENTS) + b"0\r\n\r\n"

    async with scripted(prefill) as ctx:
        switch = []

        async def script(peer, request):
            await peer.open_stream()
            size = 1 + every * 61
            for at in range(0, len(wire), size):
                switch[0](at)
                await peer.send(wire[at : at + size])
                await asyncio.sleep(0.001)

        async with scripted(script) as gen, orchestrating(ctx, gen) as orchestrator:
            names = [name for name in orchestrator.counters["policies"] if name != "verbatim"]
            turns = []
            changing = []

            def turn(at):
                name = names[(at // 13 + every) % len(names)]
                changing.append(asyncio.create_task(orchestrator.ops("/admin/policy", {"policy": name})))
                turns.append(name)

            switch.append(turn)
            for _ in range(3):
                assert (await orchestrator.ask()).body == SENT
            await asyncio.gather(*changing)
            assert len(set(turns)) > 1
            assert sum(count["changed"] for count in orchestrator.counters["policies"].values()) == 3
            assert sum(count["offered"] for count in orchestrator.counters["policies"].values()) == 3 * len(EVENTS)
            assert orchestrator.counters["chunks"] == 60
            await settled(orchestrator, complete=3)


@pytest.mark.parametrize("size", [50_000, 2_000_000])
@on_uvloop
async def test_a_gen_that_answers_before_it_has_read_the_request_is_relayed_and_its_connection_not_used_again(size):
    body = {**CHAT, "messages": [{"role": "user", "content": "x" * size}]}

    async def early(reader, writer):
        request = await reader.readuntil(b"\r\n\r\n")
        if b"/health" in request:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        else:
            opened.append(asyncio.current_task())
            writer.transport.pause_reading()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
            for event in EVENTS:
                writer.write(b"%x\r\n%b\r\n" % (len(event), event))
            writer.write(b"0\r\n\r\n")
            await writer.drain()
            await asyncio.sleep(0.2)
        writer.transport.abort()

    opened = []
    listener = await asyncio.start_server(early, "127.0.0.1", 0)
    async with listener, scripted(prefill) as ctx, scripted(streaming(DONE)) as gen:
        gen.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        async with orchestrating(ctx, gen) as orchestrator:
            for _ in range(2):
                assert (await orchestrator.ask(body)).body == SENT
            assert len(opened) == 2
            await settled(orchestrator, complete=2)
            await asyncio.wait(opened)
