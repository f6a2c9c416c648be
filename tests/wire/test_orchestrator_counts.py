"""What the orchestrator counts while streams run and when they end, over real sockets; and a stream's last bytes."""

from __future__ import annotations

import asyncio
import itertools
import json

import pytest

from sim.core.chunks import ChunkShape, StreamWriter
from sim.core.settings import GenSettings
from sim.core.usage import Usage
from tests.wire.fakes import on_uvloop
from tests.wire.scripted import (
    DONE,
    GEN_USAGE,
    ROLE,
    TRUE_USAGE,
    orchestrating,
    prefill,
    scripted,
    streaming,
    token,
    usage_event,
)

pytestmark = pytest.mark.usefixtures("engine")

USAGE = usage_event(GEN_USAGE)
TRUE = usage_event(TRUE_USAGE)
KINDS = ("events", "chunks", "role_events", "finish_events", "usage_events", "done_events")


def kinds(orchestrator):
    return tuple(orchestrator.counters[kind] for kind in KINDS)


def ended(orchestrator):
    return {reason: n for reason, n in orchestrator.counters["streams"]["ended"].items() if n}


def sizes(orchestrator):
    return orchestrator.counters["bytes_in"], orchestrator.counters["bytes_out"]


def code_of(event):
    return json.loads(event.removeprefix(b"data: "))["error"]["code"]


def boom(ctx_usage):
    def policy(event):
        if b"boom" in event:
            raise RuntimeError("secret")
        return event

    return policy


def switched(*writes):
    """A gen server that makes each of ``writes`` when it is told to, and the events that tell it."""
    gates = [asyncio.Event() for _ in writes]

    async def script(peer, request):
        await peer.open_stream()
        for gate, data in zip(gates, writes, strict=True):
            await gate.wait()
            await peer.chunk(data)
        await peer.end_stream()

    return script, gates


@on_uvloop
async def test_no_count_of_a_kind_goes_down_while_a_stream_comes_to_its_end():
    writes = (ROLE + token(" 0"), token(" 1") + token(" 2") + token(" 3"), USAGE, DONE)
    script, gates = switched(*writes)
    names = ('disagg_orchestrator_events_total{kind="chunk"}', 'disagg_policy_chunks_total{policy="prefilter"}')

    async def scraped(orchestrator):
        lines = (await orchestrator.ops("/metrics")).body.decode().splitlines()
        return tuple(float(line.split()[1]) for name in names for line in lines if line.startswith(name))

    async with scripted(prefill) as ctx, scripted(script) as gen, orchestrating(ctx, gen) as orchestrator:
        client = await orchestrator.client()
        await client.send()
        await client.head()
        seen, scrapes = [], []
        for gate in gates:
            gate.set()
            await client.chunk()
            seen.append(kinds(orchestrator))
            scrapes.append(await scraped(orchestrator))
        assert await client.chunk() == b""
        seen.append(kinds(orchestrator))
        scrapes.append(await scraped(orchestrator))
    assert [counts[0] for counts in seen] == [2, 5, 6, 7, 7]
    assert [counts[1] for counts in seen[:3]] == [0, 1, 2]
    assert seen[-1] == (7, 4, 1, 0, 1, 1)
    assert scrapes[-1] == (4, 4)
    for before, after in itertools.pairwise(seen):
        assert all(x <= y for x, y in zip(before, after, strict=True))
    for before, after in itertools.pairwise(scrapes):
        assert all(x <= y for x, y in zip(before, after, strict=True))


@on_uvloop
@pytest.mark.parametrize("events_per_write", [1, 3, 100])
async def test_a_finish_event_of_its_own_is_counted_as_one(events_per_write):
    shape = ChunkShape.from_settings(GenSettings(finish="own", usage="final"))
    writer = StreamWriter(
        shape, endpoint="chat", id="i", created=1, model="m", usage=Usage(100, 100), include_usage=True
    )
    events = [writer.role_event(), *(writer.content_event(k, 1, last=k == 4) for k in range(5))]
    events += writer.closing_events(5)
    writes = [b"".join(events[at : at + events_per_write]) for at in range(0, len(events), events_per_write)]
    async with scripted(prefill) as ctx, scripted(streaming(*writes)) as gen, orchestrating(ctx, gen) as orchestrator:
        await orchestrator.ask()
        assert kinds(orchestrator) == (9, 5, 1, 1, 1, 1)


@on_uvloop
async def test_an_event_of_more_than_4_kib_is_a_chunk_even_at_the_end():
    padded = usage_event({**GEN_USAGE, "note": "x" * 5000})
    script, gates = switched(ROLE + token("a") * 5, padded, DONE)
    async with scripted(prefill) as ctx, scripted(script) as gen, orchestrating(ctx, gen) as orchestrator:
        client = await orchestrator.client()
        await client.send()
        await client.head()
        for gate in gates:
            gate.set()
            await client.chunk()
        assert await client.chunk() == b""
        assert kinds(orchestrator) == (8, 6, 1, 0, 0, 1)


@on_uvloop
async def test_a_role_is_no_chunk_when_a_policy_fails_in_the_same_read():
    name = f"{__name__}:boom"
    bad = streaming(ROLE + token("a") + token("boom") + token("b"), DONE)
    async with (
        scripted(prefill) as ctx,
        scripted(bad) as gen,
        orchestrating(ctx, gen, [name], policy=name) as orchestrator,
    ):
        await orchestrator.ask()
        assert ended(orchestrator) == {"policy_error": 1}
        assert kinds(orchestrator) == (2, 1, 1, 0, 0, 0)


TOO_LONG = b"data: " + b"x" * 3000


@on_uvloop
async def test_events_before_one_that_is_too_long_reach_the_client():
    whole = ROLE + token(" 0") + USAGE
    script = streaming(whole + TOO_LONG, end=False)
    async with (
        scripted(prefill) as ctx,
        scripted(script) as gen,
        orchestrating(ctx, gen, max_event_bytes=2048) as orchestrator,
    ):
        body = (await orchestrator.ask()).body
        relayed = ROLE + token(" 0") + TRUE
        assert body.startswith(relayed)
        assert code_of(body[len(relayed) :]) == "event_too_long"
        assert kinds(orchestrator) == (3, 1, 1, 0, 1, 0)
        assert sizes(orchestrator) == (len(whole + TOO_LONG), len(body))
        assert orchestrator.counters["policies"]["prefilter"]["offered"] == 3


@on_uvloop
async def test_a_policy_that_fails_on_an_event_before_one_too_long_is_what_ends_the_stream():
    name = f"{__name__}:boom"
    script = streaming(ROLE + token("a") + token("boom") + TOO_LONG, end=False)
    async with (
        scripted(prefill) as ctx,
        scripted(script) as gen,
        orchestrating(ctx, gen, [name], policy=name, max_event_bytes=2048) as orchestrator,
    ):
        body = (await orchestrator.ask()).body
        assert body.startswith(ROLE + token("a"))
        assert code_of(body[len(ROLE + token("a")) :]) == "policy_error"
        assert kinds(orchestrator) == (2, 1, 1, 0, 0, 0)


@on_uvloop
async def test_a_stream_is_complete_at_its_end_marker_whatever_follows_in_the_same_read():
    script = streaming(ROLE + token(" 0") + DONE + TOO_LONG, end=False)
    async with (
        scripted(prefill) as ctx,
        scripted(script) as gen,
        orchestrating(ctx, gen, max_event_bytes=2048) as orchestrator,
    ):
        assert (await orchestrator.ask()).body == ROLE + token(" 0") + DONE
        assert ended(orchestrator) == {"complete": 1}
        assert kinds(orchestrator) == (3, 1, 1, 0, 0, 1)


@on_uvloop
@pytest.mark.parametrize("blank", [b"\n", b"\r\n", b"\r", b"\n\n\n"], ids=repr)
async def test_blank_lines_at_the_end_are_no_event_that_was_cut(blank):
    script = streaming(ROLE + token(" 0") + blank)
    async with scripted(prefill) as ctx, scripted(script) as gen, orchestrating(ctx, gen) as orchestrator:
        body = (await orchestrator.ask()).body
        assert code_of(body[len(ROLE + token(" 0")) :]) == "no_done"
        assert ended(orchestrator) == {"no_done": 1}


CRLF_DONE = b"data: [DONE]\r\n\r\n"
CR_DONE = b"data: [DONE]\r\r"
LONG_DONE = b": " + b"x" * 100 + b"\r\n" + CRLF_DONE


@on_uvloop
@pytest.mark.parametrize("marker", [CRLF_DONE, LONG_DONE], ids=["crlf", "long"])
@pytest.mark.parametrize("back", [1, 2, 3, 4])
async def test_an_end_marker_that_reads_cut_arrives_whole_and_is_counted_whole(marker, back):
    first = token(" 0").replace(b"\n", b"\r\n")
    script, gates = switched(first + marker[:-back], marker[-back:])
    async with scripted(prefill) as ctx, scripted(script) as gen, orchestrating(ctx, gen) as orchestrator:
        client = await orchestrator.client()
        await client.send()
        await client.head()
        gates[0].set()
        received = await client.chunk()
        gates[1].set()
        while data := await client.chunk():
            received += data
        assert received == first + marker
        assert sizes(orchestrator) == (len(received), len(received))
        assert kinds(orchestrator) == (2, 1, 0, 0, 0, 1)
        assert ended(orchestrator) == {"complete": 1}


@on_uvloop
@pytest.mark.parametrize("extra", [b"\n", b"\r\n\r\n", b"\r"], ids=repr)
async def test_blank_lines_behind_the_end_marker_are_relayed(extra):
    body = token(" 0") + DONE + extra
    async with scripted(prefill) as ctx, scripted(streaming(body)) as gen, orchestrating(ctx, gen) as orchestrator:
        assert (await orchestrator.ask()).body == body
        assert sizes(orchestrator) == (len(body), len(body))


@on_uvloop
@pytest.mark.parametrize(
    ("marker", "then"),
    [(CR_DONE, b""), (CRLF_DONE[:-1], b""), (CRLF_DONE[:-1], b": more\r\n\r\n"), (CRLF_DONE[:-1], b"\r\n")],
    ids=["cr alone", "no lf comes", "another event comes", "no lf but a blank line comes"],
)
async def test_a_client_is_not_held_by_an_lf_that_does_not_come(marker, then):
    """The server keeps the body open until the client has its answer."""
    answered = asyncio.Event()

    async def script(peer, request):
        await peer.open_stream()
        await peer.chunk(token(" 0") + marker)
        if then:
            await peer.chunk(then)
        await answered.wait()

    async with scripted(prefill) as ctx, scripted(script) as gen, orchestrating(ctx, gen) as orchestrator:
        body = (await orchestrator.ask()).body
        answered.set()
        # What comes in the marker's own read may be relayed with it: reads may join the two writes.
        assert body in (token(" 0") + marker, token(" 0") + marker + then)
        assert ended(orchestrator) == {"complete": 1}


@on_uvloop
@pytest.mark.parametrize("marker", [CR_DONE, CRLF_DONE[:-1] + b": more"], ids=["cr alone", "something came already"])
async def test_an_lf_that_the_end_marker_does_not_need_is_not_relayed(marker):
    script, gates = switched(token(" 0") + marker, b"\n")
    async with scripted(prefill) as ctx, scripted(script) as gen, orchestrating(ctx, gen) as orchestrator:
        client = await orchestrator.client()
        await client.send()
        await client.head()
        gates[0].set()
        assert await client.chunk() == token(" 0") + marker.removesuffix(b": more")
        gates[1].set()
        assert await client.chunk() == b""
        assert ended(orchestrator) == {"complete": 1}


@on_uvloop
async def test_a_connection_lost_after_the_end_marker_is_a_complete_stream():
    shown = asyncio.Event()

    async def script(peer, request):
        await peer.open_stream()
        await peer.chunk(token(" 0") + CRLF_DONE[:-1])
        await shown.wait()
        await peer.send(b"not a chunk\r\n")
        peer.cut()

    async with scripted(prefill) as ctx, scripted(script) as gen, orchestrating(ctx, gen) as orchestrator:
        client = await orchestrator.client()
        await client.send()
        await client.head()
        assert await client.chunk() == token(" 0") + CRLF_DONE[:-1]
        shown.set()
        assert await client.chunk() == b""
        assert ended(orchestrator) == {"complete": 1}


@on_uvloop
async def test_the_end_of_gen_body_is_waited_for_so_that_its_connection_serves_the_next_stream():
    answered = asyncio.Event()

    async def script(peer, request):
        await peer.open_stream()
        await peer.chunk(token("a") + DONE)
        await answered.wait()
        await peer.end_stream()

    async with scripted(prefill) as ctx, scripted(script) as gen, orchestrating(ctx, gen) as orchestrator:
        client = await orchestrator.client()
        for _ in range(4):
            answered.clear()
            await client.send()
            assert (await client.answer()).body == token("a") + DONE
            answered.set()
        assert len(gen.requests) == 4
        # One for the streams, and one that the readiness polls made or shared.
        assert gen.connections <= 2
