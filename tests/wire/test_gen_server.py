"""The gen server over real sockets: bytes and their boundaries, hand-off, usage, clients that leave or lag."""

from __future__ import annotations

import asyncio
import json
import time

import pytest

from sim.core.sse import SseDecoder, data_of, is_done
from tests.wire.fakes import CHAT_PATH, TEXT_PATH, gen_server, on_uvloop
from tests.wire.scripted import until

CHAT = {
    "model": "m",
    "messages": [{"role": "user", "content": "Hello, gen!"}],
    "stream": True,
    "stream_options": {"include_usage": True},
    "max_tokens": 3,
}
TEXT = {"model": "m", "prompt": "Hello, gen!", "stream": True, "max_tokens": 3}
HANDOFF = {
    "request_type": "generation_only",
    "first_gen_tokens": [7],
    "ctx_request_id": 1,
    "disagg_request_id": 18446744073709551617,
}
CTX_USAGE = {"prompt_tokens": 50, "total_tokens": 51, "completion_tokens": 1,
             "prompt_tokens_details": {"cached_tokens": 20}}  # fmt: skip
ENDLESS = {**CHAT, "max_tokens": 1_000_000}


def bodies(chunks):
    """The JSON of each event but [DONE]; that one must be there, once, at the end."""
    events = SseDecoder(1 << 20).feed(b"".join(chunks))
    assert b"".join(events) == b"".join(chunks)
    assert [is_done(event) for event in events] == [False] * (len(events) - 1) + [True]
    return [json.loads(data_of(event)) for event in events[:-1]]


def texts(chunks):
    choices = [choice for body in bodies(chunks) for choice in body["choices"]]
    pieces = [choice["delta"].get("content") if "delta" in choice else choice["text"] for choice in choices]
    return [piece for piece in pieces if piece is not None]


@on_uvloop
async def test_each_event_is_an_http_chunk_and_the_end_two_in_one():
    async with gen_server() as gen:
        answer = await gen.ask(CHAT)

    created = bodies(answer.chunks)[0]["created"]
    head = (
        b'data: {"id":"chatcmpl-0000000001","object":"chat.completion.chunk","created":%d,"model":"m","choices":['
        % created
    )
    assert answer.status == 200
    assert b"\r\nContent-Type: text/event-stream; charset=utf-8\r\n" in answer.head
    assert answer.chunks == [
        head + b'{"index":0,"delta":{"role":"assistant"}}]} \n\n',
        head + b'{"index":0,"delta":{"content":" 0"}}]}\n\n',
        head + b'{"index":0,"delta":{"content":" 1"}}]}\n\n',
        head + b'{"index":0,"delta":{"content":" 2"},"finish_reason":"length"}]}\n\n',
        head + b'],"usage":{"prompt_tokens":3,"total_tokens":6,"completion_tokens":3,'
        b'"prompt_tokens_details":{"cached_tokens":3}}}\n\ndata: [DONE]\n\n',
    ]


@on_uvloop
async def test_a_connection_serves_one_stream_after_another():
    async with gen_server() as gen:
        client = await gen.client()
        for path, body in ((CHAT_PATH, CHAT), (TEXT_PATH, TEXT), (TEXT_PATH, {**TEXT, "stream": False})):
            await client.send(body, path)
            answer = await client.answer()
            assert answer.status == 200

        assert answer.json["choices"] == [{"index": 0, "text": " 0 1 2", "finish_reason": "length"}]
        assert answer.json["usage"] == {
            "prompt_tokens": 3,
            "total_tokens": 6,
            "completion_tokens": 3,
            "prompt_tokens_details": {"cached_tokens": 3},
        }


@on_uvloop
async def test_http_1_0_gets_bare_events_and_the_connections_end():
    async with gen_server() as gen:
        client = await gen.client()
        raw = json.dumps(TEXT).encode()
        client.writer.write(b"POST %b HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % (TEXT_PATH.encode(), len(raw)) + raw)
        head = await client.head()

        assert b"chunked" not in head.lower()
        assert texts([await client.reader.read()]) == [" 0", " 1", " 2"]


@pytest.mark.parametrize("emission", ["paced", "lockstep"])
@on_uvloop
async def test_all_tokens_of_many_streams_come_in_order(emission):
    async with gen_server(emission=emission, jitter=0.5, load_slope=1, itl_ms=2) as gen:
        answers = await asyncio.gather(*(gen.ask({**CHAT, "max_tokens": 20 + number}) for number in range(30)))

        for number, answer in enumerate(answers):
            assert texts(answer.chunks) == [f" {k}" for k in range(20 + number)]
        counters = gen.counters
        assert counters["streams"]["ended"]["complete"] == 30
        assert counters["tokens"] == counters["pacing"]["tokens_due"] == sum(range(20, 50))


@pytest.mark.parametrize(
    ("missing", "reason"),
    [
        ("ctx_request_id", "disaggregated_params.ctx_request_id"),
        ("disagg_request_id", "disaggregated_params.disagg_request_id"),
        ("first_gen_tokens", "disaggregated_params.first_gen_tokens"),
    ],
)
@on_uvloop
async def test_a_hand_off_that_lacks_something_is_refused_by_its_name(missing, reason):
    params = {key: value for key, value in HANDOFF.items() if key != missing}
    async with gen_server() as gen:
        answer = await gen.ask({**CHAT, "disaggregated_params": params})

        assert answer.status == 400
        assert answer.json["error"]["message"].startswith(reason)
        assert answer.json["error"]["param"] == "disaggregated_params"
        assert gen.counters["refused"]["bad_request"] == 1
        assert gen.counters["streams"]["started"] == 0


@pytest.mark.parametrize("params", [{"request_type": "context_only"}, {}, [], "x"])
@on_uvloop
async def test_parameters_of_another_kind_are_refused(params):
    async with gen_server() as gen:
        answer = await gen.ask({**CHAT, "disaggregated_params": params})

    assert answer.status == 400
    assert "generation_only" in answer.json["error"]["message"]


@pytest.mark.parametrize(
    ("params", "settings", "prompt", "cached"),
    [
        pytest.param(HANDOFF, {}, 3, 3, id="gen calls every prompt token cached"),
        pytest.param({**HANDOFF, "ctx_usage": CTX_USAGE}, {}, 50, 20, id="ctx's usage was handed over"),
        pytest.param({**HANDOFF, "ctx_usage": CTX_USAGE}, {"apply_ctx_usage": False}, 3, 3, id="but is not applied"),
        pytest.param(None, {}, 3, 3, id="no hand-off"),
    ],
)
@on_uvloop
async def test_usage_is_gens_own_unless_ctx_handed_its_over(params, settings, prompt, cached):
    async with gen_server(**settings) as gen:
        answer = await gen.ask({**CHAT, "disaggregated_params": params})

    assert bodies(answer.chunks)[-1]["usage"] == {
        "prompt_tokens": prompt,
        "total_tokens": prompt + 3,
        "completion_tokens": 3,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


@pytest.mark.parametrize(
    ("params", "settings", "prompt", "cached"),
    [
        pytest.param(HANDOFF, {}, 77, 77, id="in place of the real count"),
        pytest.param({**HANDOFF, "ctx_usage": CTX_USAGE}, {}, 50, 20, id="ctx's usage is applied"),
        pytest.param({**HANDOFF, "ctx_usage": CTX_USAGE}, {"apply_ctx_usage": False}, 77, 77, id="is not applied"),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
@on_uvloop
async def test_a_script_can_make_gen_report_another_prompt(stream, params, settings, prompt, cached):
    body = {**CHAT, "disagg_sim": {"prompt_tokens": 77, **settings}, "disaggregated_params": params}
    if not stream:
        body |= {"stream": False, "stream_options": None}
    async with gen_server() as gen:
        answer = await gen.ask(body)

    usage = (bodies(answer.chunks)[-1] if stream else answer.json)["usage"]
    assert usage == {
        "prompt_tokens": prompt,
        "total_tokens": prompt + 3,
        "completion_tokens": 3,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


@on_uvloop
async def test_a_request_can_bring_its_own_script():
    script = {"texts": ["usage", ' {"usage": {}}'], "usage": "null", "dialect": "openai", "finish": "own"}
    async with gen_server() as gen:
        answer = await gen.ask({**CHAT, "disagg_sim": script})

    assert texts(answer.chunks) == ["", "usage", ' {"usage": {}}']
    assert [body["usage"] for body in bodies(answer.chunks)[:-1]] == [None] * 4
    assert bodies(answer.chunks)[-1]["usage"]["completion_tokens"] == 2


@pytest.mark.parametrize("emission", ["paced", "lockstep"])
@on_uvloop
async def test_a_reply_with_an_interval_of_its_own_does_not_wait_for_the_servers(emission):
    """At the server's interval, two tokens would take ten minutes."""
    async with gen_server(emission=emission, itl_ms=600_000) as gen:
        answer = await gen.ask({**CHAT, "disagg_sim": {"itl_ms": 1}})

        assert texts(answer.chunks) == [" 0", " 1", " 2"]
        assert gen.counters["pacing"]["asked_interval_s"] == pytest.approx(0.001)


@on_uvloop
async def test_a_reply_with_an_interval_of_its_own_holds_a_slot():
    async with gen_server(slots=1) as gen:
        client = await gen.client()
        await client.send({**ENDLESS, "disagg_sim": {"itl_ms": 50}})
        await until(lambda: gen.counters["pacing"]["tokens_due"] > 0)
        assert (await gen.ask(CHAT)).status == 429
        client.close()
        await until(lambda: gen.counters["streams"]["live"] == 0)

        assert (await gen.ask({**CHAT, "disagg_sim": {"itl_ms": 1}})).status == 200


@on_uvloop
async def test_a_comment_shares_the_first_tokens_write_and_is_no_event_of_gens():
    async with gen_server() as gen:
        answer = await gen.ask({**CHAT, "disagg_sim": {"extras": "sse"}})

        assert answer.chunks[1].startswith(b": ping\n\nevent: message\ndata: {")
        counters = gen.counters
        assert (counters["chunks"], counters["events"]) == (3, 6)
        assert counters["bytes"] == sum(map(len, answer.chunks))


@pytest.mark.parametrize("newline", ["lf", "crlf", "cr"])
@on_uvloop
async def test_cut_writes_hold_the_same_bytes(newline):
    """The cuts are HTTP chunks; what a reader puts together is the uncut stream."""
    async with gen_server(newline=newline, split_at=40, itl_ms=5) as gen:
        cut = await gen.ask({**CHAT, "disagg_sim": {"glue_done": False}})

    assert [len(chunk) for chunk in cut.chunks[::2]] == [40] * 5 + [len(cut.chunks[-1])]
    assert texts(cut.chunks) == [" 0", " 1", " 2"]


@on_uvloop
async def test_events_of_one_write_share_an_http_chunk():
    async with gen_server(events_per_write=4) as gen:
        answer = await gen.ask({**CHAT, "max_tokens": 9})

    assert [len(SseDecoder(1 << 20).feed(chunk)) for chunk in answer.chunks] == [4, 4, 2, 2]


@pytest.mark.parametrize("stream", [True, False])
@on_uvloop
async def test_a_hang_up_frees_the_slot_at_once(stream):
    async with gen_server(slots=1, itl_ms=50) as gen:
        kind = "streams" if stream else "answers"
        body = ENDLESS if stream else {**ENDLESS, "stream": False, "stream_options": None}
        client = await gen.client()
        await client.send(body)
        await until(lambda: gen.counters["pacing"]["tokens_due"] > 0)
        assert (await gen.ask(CHAT)).status == 429
        client.close()
        await until(lambda: gen.counters[kind]["live"] == 0)

        assert gen.counters[kind]["ended"]["client_gone"] == 1
        assert (await gen.ask(CHAT)).status == 200
        assert (await gen.metrics())["disagg_gen_slots_busy"] == 0


@on_uvloop
async def test_a_hang_up_during_the_transfer_frees_the_slot():
    async with gen_server(slots=1, transfer_base_ms=600_000) as gen:
        client = await gen.client()
        await client.send(ENDLESS)
        await until(lambda: gen.counters["streams"]["live"] == 1)
        assert (await gen.metrics())["disagg_gen_slots_busy"] == 1
        client.close()
        await until(lambda: gen.counters["streams"]["live"] == 0)

        assert gen.counters["pacing"]["tokens_due"] == 0
        assert (await gen.metrics())["disagg_gen_slots_busy"] == 0


@on_uvloop
async def test_a_longer_prompt_is_longer_on_its_way():
    # 1 ms a token, so 10 minutes for the first request; else its tokens would be due before the second's.
    async with gen_server(kv_kb_per_token=1000, transfer_gb_per_s=1) as gen:
        client = await gen.client()
        await client.send({**TEXT, "prompt": [1] * 600_000}, TEXT_PATH)
        await until(lambda: gen.counters["streams"]["live"] == 1)
        quick = await gen.ask(TEXT, TEXT_PATH)

        assert texts(quick.chunks) == [" 0", " 1", " 2"]
        assert gen.counters["streams"]["live"] == 1
        assert gen.counters["pacing"]["tokens_due"] == 3


@on_uvloop
async def test_no_free_slot_is_a_429():
    async with gen_server(slots=1) as gen:
        client = await gen.client()
        await client.send(ENDLESS)
        await client.head()
        refused = await gen.ask(CHAT)

        assert (refused.status, refused.code) == (429, "no_slot")
        assert refused.json["error"]["type"] == "rate_limit_error"
        assert gen.counters["refused"]["no_slot"] == 1


@pytest.mark.parametrize(
    ("settings", "script"),
    [({"stamp_sent": True}, {}), ({}, {"disagg_sim": {"stamp_sent": True}})],
    ids=["setting", "script"],
)
@on_uvloop
async def test_a_stamp_says_when_its_event_was_written(settings, script):
    async with gen_server(chunk_bytes=300, **settings) as gen:
        before_ns = time.monotonic_ns()
        client = await gen.client()
        await client.send({**CHAT, "max_tokens": 20, **script})
        await client.head()
        stamps, came = [before_ns], 0
        while chunk := await client.chunk():
            now_ns = time.monotonic_ns()
            if b"sent_ns" in chunk:
                assert len(chunk) == 300
                stamp_ns = json.loads(data_of(chunk))["sent_ns"]
                assert b'"model":"m","sent_ns":%d,"obfuscation":"' % stamp_ns in chunk
                assert stamps[-1] < stamp_ns < now_ns
                stamps.append(stamp_ns)
                came += 1

        assert came == 20


@on_uvloop
async def test_a_slow_reader_loses_nothing(tmp_path):
    """The client reads nothing until every token is due; memory stays bounded, and all of it comes then."""
    async with gen_server(path=tmp_path / "gen.sock", slots=1, tok_s=10_000, itl_ms=0, chunk_bytes=20_000) as gen:
        client = await gen.client()
        client.reader._limit = 1024  # the stream reader stops reading the socket beyond twice this
        await client.send({**CHAT, "max_tokens": 200})
        await until(lambda: gen.counters["pacing"]["tokens_due"] == 200)
        held = gen.counters
        assert held["chunks"] < 200
        assert held["held_events"] > 0
        # Whose tokens are all due holds no slot, however slowly it reads.
        assert held["streams"]["live"] == 1
        assert (await gen.ask(CHAT)).status == 200

        client.reader._limit = 1 << 20
        answer = await client.answer()

        assert texts(answer.chunks) == [f" {k}" for k in range(200)]
        assert gen.counters["streams"]["ended"]["complete"] == 2
        assert gen.counters["chunks"] == 200 + 3


@on_uvloop
async def test_draining_ends_every_stream_with_its_next_token():
    async with gen_server(itl_ms=20) as gen:
        clients = [await gen.client() for _ in range(3)]
        for client in clients:
            await client.send(ENDLESS)
        await until(lambda: gen.counters["tokens"] >= 6)
        drained = await gen.ops("/admin/drain", "POST")
        answers = [await client.answer() for client in clients]

        assert drained.json == {"streams": 3}
        for answer in answers:
            count = len(texts(answer.chunks))
            assert texts(answer.chunks) == [f" {k}" for k in range(count)]
            *_, last, usage = bodies(answer.chunks)
            assert last["choices"][0]["finish_reason"] == "length"
            assert usage["usage"]["completion_tokens"] == count
        assert gen.counters["streams"]["ended"]["drained"] == 3
        assert gen.counters["tokens"] == sum(len(texts(answer.chunks)) for answer in answers)


@pytest.mark.parametrize("emission", ["paced", "lockstep"])
@on_uvloop
async def test_live_and_later_streams_take_another_pace_and_asked_against_delivered_follows(emission):
    async with gen_server(emission=emission, itl_ms=500) as gen:
        live = await gen.client()
        await live.send({**CHAT, "max_tokens": 200})
        await until(lambda: gen.counters["tokens"] >= 1)
        changed = await gen.ops("/admin/rate", "POST", {"tok_s": 500})
        own = {**CHAT, "max_tokens": 2, "disagg_sim": {"itl_ms": 60}}
        answers = [await live.answer(), *await asyncio.gather(gen.ask({**CHAT, "max_tokens": 100}), gen.ask(own))]

        assert changed.json == {"tok_s": 500.0, "itl_ms": 2.0, "streams": 1}
        assert (await gen.ops("/admin/rate")).json == {"tok_s": 500.0, "itl_ms": 2.0}
        assert [len(texts(answer.chunks)) for answer in answers] == [200, 100, 2]
        pacing = gen.counters["pacing"]
        # 199 + 99 gaps of 2 ms, what was left of the one of 500 ms (up to 2 ms after the change), one of 60 ms.
        assert pacing["intervals"] == 299
        assert 0.0020 <= pacing["asked_interval_s"] <= (298 * 0.002 + 0.060 + 0.500) / 299


@pytest.mark.parametrize("body", [{}, {"tok_s": 0}, {"tok_s": "fast"}, {"tok_s": 1, "itl_ms": 1}, [1], b"{"])
@on_uvloop
async def test_a_bad_pace_is_refused_and_changes_nothing(body):
    async with gen_server(itl_ms=20) as gen:
        refused = await gen.ops("/admin/rate", "POST", body)

        assert refused.status == 400
        assert (await gen.ops("/admin/rate")).json == {"tok_s": 50.0, "itl_ms": 20.0}


@on_uvloop
async def test_a_stop_cuts_live_streams_without_a_clean_end():
    async with gen_server(itl_ms=20) as gen:
        client = await gen.client()
        await client.send(ENDLESS)
        await client.head()
        gen.clients.clear()
        streams = gen.started.service.counters
    rest = await client.reader.read()
    client.close()

    assert streams()["streams"]["ended"]["stopped"] == 1
    assert b"[DONE]" not in rest
    assert not rest.endswith(b"0\r\n\r\n")


@on_uvloop
async def test_metrics_move_by_what_happened():
    async with gen_server() as gen:
        before = await gen.metrics()
        answer = await gen.ask(CHAT)
        await gen.ask({**TEXT, "stream": False}, TEXT_PATH)
        await gen.ask({}, TEXT_PATH)
        moved = {name: value - before[name] for name, value in (await gen.metrics()).items()}

    expected = {
        "disagg_gen_requests_total": 3,
        'disagg_gen_requests_refused_total{reason="bad_request"}': 1,
        'disagg_gen_requests_refused_total{reason="no_slot"}': 0,
        "disagg_gen_streams_started_total": 1,
        "disagg_gen_streams_live": 0,
        'disagg_gen_streams_ended_total{outcome="complete"}': 1,
        'disagg_gen_streams_ended_total{outcome="client_gone"}': 0,
        'disagg_gen_answers_ended_total{outcome="complete"}': 1,
        "disagg_gen_tokens_total": 6,
        'disagg_gen_events_total{kind="content"}': 3,
        'disagg_gen_events_total{kind="role"}': 1,
        'disagg_gen_events_total{kind="finish"}': 0,
        'disagg_gen_events_total{kind="usage"}': 1,
        'disagg_gen_events_total{kind="done"}': 1,
        "disagg_gen_event_bytes_total": sum(map(len, answer.chunks)),
        "disagg_gen_events_held_total": 0,
        "disagg_gen_tokens_due_total": 6,
        "disagg_gen_token_lateness_seconds_count": 6,
        "disagg_gen_asked_interval_seconds_count": 4,
        "disagg_gen_delivered_interval_seconds_count": 4,
    }
    assert {name: moved[name] for name in expected} == expected
    assert moved["disagg_gen_asked_interval_seconds_sum"] == pytest.approx(0.004, abs=1e-9)
