"""The relay over real sockets: bytes in, bytes out, and how a stream's end is told, byte by byte."""

from __future__ import annotations

import asyncio
import contextlib
import json

import pytest

from sim.core.usage import Usage
from sim.orchestrator.policies import BUILTIN, make
from tests.wire.fakes import on_uvloop
from tests.wire.scripted import (
    CHAT,
    DONE,
    GEN_USAGE,
    ROLE,
    TRUE_USAGE,
    Client,
    orchestrating,
    prefill,
    scripted,
    streaming,
    token,
    until,
    usage_event,
)

pytestmark = pytest.mark.usefixtures("engine")

REWRITING = [name for name in BUILTIN if name != "verbatim"]
USAGE = usage_event(GEN_USAGE)
TRUE = usage_event(TRUE_USAGE)
TRICKY = (
    ROLE,
    token("usage"),
    token('"usage": {"prompt_tokens": 1}'),
    token("data: [DONE]\n\n"),
    token("é🙂", ',"usage":null'),
    b": ping\n\n",
    b"id: 3\nevent: chunk\n" + token("x"),
    token("y").replace(b"\n", b"\r\n"),
)
WHOLE = b"".join(TRICKY) + USAGE + DONE
EXPECTED = b"".join(TRICKY) + TRUE + DONE


def error_of(event: bytes) -> dict[str, object]:
    assert event.startswith(b"data: ")
    assert event.endswith(b"\n\n")
    error = json.loads(event[6:])["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert "Traceback" not in error["message"]
    return error


def ended(orchestrator):
    return {reason: n for reason, n in orchestrator.counters["streams"]["ended"].items() if n}


@pytest.mark.parametrize("policy", REWRITING)
@pytest.mark.parametrize("size", [1, 7, 64, len(WHOLE)])
@on_uvloop
async def test_events_come_out_as_they_went_in_however_reads_cut_them(policy, size):
    writes = [WHOLE[at : at + size] for at in range(0, len(WHOLE), size)]
    async with (
        scripted(prefill) as ctx,
        scripted(streaming(*writes)) as gen,
        orchestrating(ctx, gen, [policy], policy=policy) as orchestrator,
    ):
        assert (await orchestrator.ask()).body == EXPECTED
        counts = orchestrator.counters["policies"][policy]
        assert (counts["offered"], counts["changed"], counts["unchanged"]) == (10, 1, 9)


@on_uvloop
async def test_events_of_one_read_go_out_in_one_write_and_nothing_waits_for_more():
    gate = asyncio.Event()
    first, second = token("a") + token("b") + token("c")[:9], token("c")[9:] + DONE

    async def script(peer, request):
        await peer.open_stream()
        await peer.chunk(first)
        await gate.wait()
        await peer.chunk(second)
        await peer.end_stream()

    async with scripted(prefill) as ctx, scripted(script) as gen, orchestrating(ctx, gen) as orchestrator:
        client = await orchestrator.client()
        await client.send()
        await client.head()
        assert await client.chunk() == token("a") + token("b")
        gate.set()
        assert await client.chunk() == token("c") + DONE
        assert await client.chunk() == b""


@on_uvloop
async def test_the_head_goes_out_before_gen_has_a_token():
    gate = asyncio.Event()

    async def script(peer, request):
        await peer.open_stream()
        await gate.wait()
        await peer.chunk(DONE)
        await peer.end_stream()

    async with scripted(prefill) as ctx, scripted(script) as gen, orchestrating(ctx, gen) as orchestrator:
        client = await orchestrator.client()
        await client.send()
        assert (await client.head()).startswith(b"HTTP/1.1 200 OK\r\n")
        gate.set()
        assert await client.chunk() == DONE


SHOWN = ROLE + token("a")
NEVER = token("never shown")


async def cut_inside_an_event(peer):
    await peer.chunk(NEVER[:-1])
    peer.cut()


async def cut_between_events(peer):
    peer.cut()


async def ends_inside_an_event(peer):
    await peer.chunk(b"data: [DONE]\n")
    await peer.end_stream()


async def ends_without_done(peer):
    await peer.end_stream()


async def breaks_the_chunked_coding(peer):
    await peer.send(b"zz\r\nnot a chunk\r\n")
    await peer.hung_up()


async def stalls(peer):
    await peer.chunk(NEVER[:20])
    await peer.hung_up()


async def never_ends_an_event(peer):
    await peer.chunk(b"data: " + b"x" * 3000)
    await peer.hung_up()


@pytest.mark.parametrize(
    ("then", "reason"),
    [
        (cut_inside_an_event, "upstream_cut"),
        (cut_between_events, "upstream_cut"),
        (ends_inside_an_event, "upstream_cut"),
        (ends_without_done, "no_done"),
        (breaks_the_chunked_coding, "upstream_cut"),
        (stalls, "stall_timeout"),
        (never_ends_an_event, "event_too_long"),
    ],
)
@pytest.mark.parametrize("policy", ["parse", "prefilter"])
@on_uvloop
async def test_a_stream_gen_does_not_finish_ends_in_an_error_event_and_no_done(then, reason, policy):
    shown = asyncio.Event()

    async def script(peer, request):
        await peer.open_stream()
        await peer.chunk(SHOWN)
        await shown.wait()
        await then(peer)

    async with (
        scripted(prefill) as ctx,
        scripted(script) as gen,
        orchestrating(ctx, gen, policy=policy, stall_timeout_s=0.2, max_event_bytes=2048) as orchestrator,
    ):
        client = await orchestrator.client()
        await client.send()
        await client.head()
        assert await client.chunk() == SHOWN
        shown.set()
        event = await client.chunk()
        assert error_of(event)["code"] == reason
        assert await client.chunk() == b""
        assert ended(orchestrator) == {reason: 1}
        counters = orchestrator.counters
        assert counters["streams"]["live"] == 0
        assert counters["bytes_out"] == len(SHOWN + event)
        assert [row["outstanding"] for row in counters["upstreams"]] == [0, 0]


@on_uvloop
async def test_a_body_that_ends_with_its_connection_and_without_done_is_no_clean_end():
    async def script(peer, request):
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
        await peer.send(SHOWN)
        peer.writer.close()

    async with scripted(prefill) as ctx, scripted(script) as gen, orchestrating(ctx, gen) as orchestrator:
        body = (await orchestrator.ask()).body
        assert body.startswith(SHOWN)
        assert error_of(body[len(SHOWN) :])["code"] == "no_done"


@on_uvloop
async def test_no_first_token_in_time_ends_the_stream_too():
    async def script(peer, request):
        await peer.open_stream()
        await peer.hung_up()

    async with (
        scripted(prefill) as ctx,
        scripted(script) as gen,
        orchestrating(ctx, gen, first_byte_timeout_s=0.2) as orchestrator,
    ):
        assert error_of((await orchestrator.ask()).body)["code"] == "stall_timeout"


@on_uvloop
async def test_a_gen_that_keeps_the_connection_open_after_done_does_not_hold_the_client():
    hung_up = asyncio.Event()

    async def script(peer, request):
        await peer.open_stream()
        await peer.chunk(ROLE + token("a") + DONE)
        await peer.hung_up()
        hung_up.set()

    async with scripted(prefill) as ctx, scripted(script) as gen, orchestrating(ctx, gen) as orchestrator:
        client = await orchestrator.client()
        await client.send()
        await client.head()
        assert await client.chunk() == ROLE + token("a") + DONE
        assert await client.chunk() == b""
        await hung_up.wait()
        assert ended(orchestrator) == {"complete": 1}


@on_uvloop
async def test_a_finished_stream_leaves_its_connections_for_the_next():
    async def split_end(peer, request):
        await peer.open_stream()
        await peer.chunk(token("a") + DONE)
        await asyncio.sleep(0)
        await peer.end_stream()

    async with scripted(prefill) as ctx, scripted(split_end) as gen, orchestrating(ctx, gen) as orchestrator:
        client = await orchestrator.client()
        for _ in range(3):
            await client.send()
            assert (await client.answer()).body == token("a") + DONE
        assert len(gen.requests) == 3
        # One for the streams, and one that the readiness polls made or shared.
        assert gen.connections <= 2
        assert ctx.connections <= 2


@on_uvloop
async def test_an_event_belongs_to_the_policy_active_when_its_last_byte_arrives():
    steps = [asyncio.Event() for _ in range(3)]

    async def script(peer, request):
        await peer.open_stream()
        await peer.chunk(USAGE + USAGE[:30])
        await steps[0].wait()
        await peer.chunk(USAGE[30:] + USAGE[:-1])
        await steps[1].wait()
        await peer.chunk(b"\n")
        await steps[2].wait()
        await peer.chunk(DONE)
        await peer.end_stream()

    async with (
        scripted(prefill) as ctx,
        scripted(script) as gen,
        orchestrating(ctx, gen, ["verbatim", "prefilter"], usage_by="gen", policy="verbatim") as orchestrator,
    ):
        client = await orchestrator.client()
        await client.send()
        await client.head()
        assert await client.chunk() == USAGE
        await orchestrator.ops("/admin/policy", {"policy": "filter-on"})
        steps[0].set()
        assert await client.chunk() == TRUE
        await orchestrator.ops("/admin/policy", {"policy": "verbatim"})
        steps[1].set()
        assert await client.chunk() == USAGE
        await orchestrator.ops("/admin/policy", {"policy": "prefilter"})
        steps[2].set()
        assert await client.chunk() == DONE
        counts = {name: (c["offered"], c["changed"]) for name, c in orchestrator.counters["policies"].items()}
        assert counts == {"verbatim": (2, 0), "prefilter": (2, 1)}


@on_uvloop
async def test_counters_tell_tokens_from_the_events_around_them():
    stream = (ROLE, token(" 0"), token(" 1") + token(" 2"), USAGE + DONE)
    async with scripted(prefill) as ctx, scripted(streaming(*stream)) as gen, orchestrating(ctx, gen) as orchestrator:
        for _ in range(2):
            await orchestrator.ask()
        counters = orchestrator.counters
        expected = {"requests": 2, "events": 12, "chunks": 6, "role_events": 2, "finish_events": 0, "usage_events": 2}
        expected |= {"done_events": 2, "bytes_in": 2 * len(b"".join(stream)), "answers": 0}
        assert {key: counters[key] for key in expected} == expected
        assert ended(orchestrator) == {"complete": 2}
        metrics = (await orchestrator.ops("/metrics")).body.decode().splitlines()
        assert 'disagg_orchestrator_events_total{kind="chunk"} 6.0' in metrics
        assert 'disagg_orchestrator_streams_ended_total{reason="complete"} 2.0' in metrics
        assert 'disagg_policy_events_changed_total{policy="prefilter"} 2.0' in metrics
        assert 'disagg_policy_chunks_total{policy="prefilter"} 6.0' in metrics


def boom(ctx_usage):
    def policy(event):
        if b"boom" in event:
            raise RuntimeError("secret")
        return event

    return policy


def gives_text(ctx_usage):
    prefilter = make("prefilter", ctx_usage)
    return lambda event: event.decode() if b"boom" in event else prefilter(event)


def fails_to_open(ctx_usage: Usage):
    if ctx_usage.prompt_tokens == 100:
        raise RuntimeError("secret")
    return lambda event: event


@pytest.mark.parametrize("plugin", ["boom", "gives_text"])
@on_uvloop
async def test_a_plugin_that_fails_ends_its_stream_with_an_error_event_and_nothing_else(plugin):
    name = f"{__name__}:{plugin}"
    bad = streaming(ROLE + token("a") + token("boom") + token("b"), DONE)
    good = streaming(ROLE + token("a"), DONE)
    async with (
        scripted(prefill) as ctx,
        scripted(bad, good) as gen,
        orchestrating(ctx, gen, ["parse", name], policy=name) as orchestrator,
    ):
        body = (await orchestrator.ask()).body
        assert body.startswith(ROLE + token("a"))
        error = error_of(body[len(ROLE + token("a")) :])
        assert error["code"] == "policy_error"
        assert "secret" not in str(error["message"])
        assert ended(orchestrator) == {"policy_error": 1}
        assert orchestrator.counters["events"] == 2
        assert (await orchestrator.ask()).body == ROLE + token("a") + DONE


@on_uvloop
async def test_a_plugin_that_fails_when_a_stream_opens_is_a_500_and_gen_is_not_asked():
    name = f"{__name__}:fails_to_open"
    async with (
        scripted(prefill) as ctx,
        scripted(streaming(DONE)) as gen,
        orchestrating(ctx, gen, [name], policy=name) as orchestrator,
    ):
        answer = await orchestrator.ask()
        assert (answer.status, answer.code) == (500, "policy_error")
        assert "secret" not in answer.json["error"]["message"]
        assert gen.requests == []


@on_uvloop
async def test_a_slow_client_holds_gen_up_instead_of_filling_memory():
    event = token("x" * 60_000)
    count = 500
    written = 0

    async def script(peer, request):
        nonlocal written
        await peer.open_stream()
        for _ in range(count):
            await peer.chunk(event)
            written += 1
        await peer.chunk(DONE)
        await peer.end_stream()

    async def held_up(orchestrator):
        seen = -1
        while seen != (seen := orchestrator.counters["bytes_in"]) or not seen:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        return seen

    async with (
        scripted(prefill) as ctx,
        scripted(script) as gen,
        orchestrating(ctx, gen, stall_timeout_s=5) as orchestrator,
    ):
        client = await orchestrator.client()
        await client.send()
        assert await held_up(orchestrator) < count * len(event)
        assert written < count
        answer = await client.answer()
        assert answer.body == event * count + DONE
        assert ended(orchestrator) == {"complete": 1}


@on_uvloop
async def test_a_client_that_never_reads_ends_by_name_and_gen_is_let_go():
    hung_up = asyncio.Event()

    async def script(peer, request):
        await peer.open_stream()
        with contextlib.suppress(ConnectionError):
            while True:
                await peer.chunk(token("x" * 60_000))
        hung_up.set()

    async with (
        scripted(prefill) as ctx,
        scripted(script) as gen,
        orchestrating(ctx, gen, stall_timeout_s=0.2) as orchestrator,
    ):
        client = await orchestrator.client()
        await client.send()
        await until(lambda: ended(orchestrator) == {"client_stalled": 1})
        await hung_up.wait()
        counters = orchestrator.counters
        assert counters["streams"]["live"] == 0
        assert [row["outstanding"] for row in counters["upstreams"]] == [0, 0]


@on_uvloop
async def test_a_client_that_hangs_up_during_prefill_closes_ctx_and_gen_is_never_asked():
    asked, hung_up = asyncio.Event(), asyncio.Event()

    async def slow_prefill(peer, request):
        asked.set()
        await peer.hung_up()
        hung_up.set()

    async with scripted(slow_prefill) as ctx, scripted(streaming(DONE)) as gen, orchestrating(ctx, gen) as orchestrator:
        client = await orchestrator.client()
        await client.send()
        await asked.wait()
        client.close()
        await hung_up.wait()
        await until(lambda: orchestrator.counters["failures"]["client_gone"] == 1)
        assert gen.requests == []
        assert [row["outstanding"] for row in orchestrator.counters["upstreams"]] == [0, 0]


@pytest.mark.parametrize("stage", ["before the head", "before a token", "in mid-stream", "inside an event"])
@on_uvloop
async def test_a_client_that_hangs_up_closes_gen_at_once(stage):
    asked, hung_up = asyncio.Event(), asyncio.Event()

    async def script(peer, request):
        if stage != "before the head":
            await peer.open_stream()
        if stage in ("in mid-stream", "inside an event"):
            await peer.chunk(ROLE)
        if stage == "inside an event":
            await peer.chunk(token("a")[:20])
        asked.set()
        await peer.hung_up()
        hung_up.set()

    async with scripted(prefill) as ctx, scripted(script) as gen, orchestrating(ctx, gen) as orchestrator:
        client = await orchestrator.client()
        await client.send()
        await asked.wait()
        if stage != "before the head":
            await client.head()
        if stage in ("in mid-stream", "inside an event"):
            assert await client.chunk() == ROLE
        client.close()
        await hung_up.wait()
        failures = orchestrator.counters["failures"]
        if stage == "before the head":
            await until(lambda: orchestrator.counters["failures"]["client_gone"] == 1)
        else:
            await until(lambda: ended(orchestrator) == {"client_gone": 1})
            assert failures["client_gone"] == 0
        assert orchestrator.counters["streams"]["live"] == 0
        assert [row["outstanding"] for row in orchestrator.counters["upstreams"]] == [0, 0]


@on_uvloop
async def test_more_streams_than_any_default_pool_run_at_once():
    everyone = asyncio.Event()
    live = 0

    async def script(peer, request):
        nonlocal live
        await peer.open_stream()
        live += 1
        if live == 150:
            everyone.set()
        await everyone.wait()
        await peer.chunk(DONE)
        await peer.end_stream()

    async with scripted(prefill) as ctx, scripted(script) as gen, orchestrating(ctx, gen) as orchestrator:
        answers = await asyncio.gather(*(orchestrator.ask(CHAT) for _ in range(150)))
        assert {answer.body for answer in answers} == {DONE}


@on_uvloop
async def test_a_stop_ends_live_streams_without_a_clean_end_and_says_who_ended_them():
    hung_up = asyncio.Event()

    async def script(peer, request):
        await peer.open_stream()
        await peer.chunk(SHOWN)
        await peer.hung_up()
        hung_up.set()

    async with scripted(prefill) as ctx, scripted(script) as gen:
        async with orchestrating(ctx, gen) as orchestrator:
            address = orchestrator.started.listen
            client = Client(*await asyncio.open_connection(address.host, address.port))
            await client.send()
            await client.head()
            assert await client.chunk() == SHOWN
        assert await client.reader.read() == b""
        client.close()
        await hung_up.wait()
        assert ended(orchestrator) == {"stopped": 1}
