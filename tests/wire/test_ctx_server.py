"""The ctx server over real sockets: hand-off, true usage, queue, clients that leave."""

from __future__ import annotations

import json

import pytest

from tests.wire.fakes import CHAT_PATH, TEXT_PATH, ctx_server, on_uvloop
from tests.wire.scripted import until

BIG_ID = 123456789012345678901234567890
CONTEXT_ONLY = {"request_type": "context_only", "disagg_request_id": BIG_ID}
CHAT = {
    "model": "m",
    "messages": [{"role": "user", "content": "x" * 40}],
    "max_tokens": 1,
    "disaggregated_params": CONTEXT_ONLY,
}
TEXT = {"prompt": "x" * 40, "disaggregated_params": CONTEXT_ONLY}
# At 1 s per uncached token these take 10 s and nothing.
SLOW = {"prompt": "x" * 40, "disagg_sim": {"cached_tokens": 0}}
QUICK = {"prompt": "x" * 40, "disagg_sim": {"cached_tokens": 10}}
SECOND_PER_TOKEN = {"prefill_us_per_token": 1e6}


@on_uvloop
async def test_a_prefill_answers_hand_off_and_true_usage():
    async with ctx_server(cache_hit_ratio=0.25) as ctx:
        answer = await ctx.ask(CHAT)

    body = answer.json
    assert answer.status == 200
    assert body == {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": body["created"],
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": " 0"},
                "finish_reason": "length",
                "disaggregated_params": {
                    "request_type": "context_only",
                    "first_gen_tokens": [7],
                    "ctx_request_id": 1,
                    "disagg_request_id": BIG_ID,
                },
            }
        ],
        "usage": {
            "prompt_tokens": 10,
            "total_tokens": 11,
            "completion_tokens": 1,
            "prompt_tokens_details": {"cached_tokens": 2},
        },
        "prompt_token_ids": list(range(10)),
    }
    assert b'"disagg_request_id":%d' % BIG_ID in answer.body


@on_uvloop
async def test_request_ids_count_up():
    async with ctx_server() as ctx:
        answers = [await ctx.ask(TEXT, TEXT_PATH) for _ in range(3)]

    params = [answer.json["choices"][0]["disaggregated_params"] for answer in answers]
    assert [one["ctx_request_id"] for one in params] == [1, 2, 3]
    assert [answer.json["id"] for answer in answers] == ["cmpl-1", "cmpl-2", "cmpl-3"]


@pytest.mark.parametrize(
    ("settings", "changes", "ids"),
    [
        pytest.param({}, {"prompt": [5, 6, 7]}, [5, 6, 7], id="those the client sent"),
        pytest.param({}, {}, list(range(10)), id="made up"),
        pytest.param({"prompt_token_ids": False}, {"prompt": [5, 6, 7]}, None, id="switched off"),
    ],
)
@on_uvloop
async def test_prompt_token_ids(settings, changes, ids):
    async with ctx_server(**settings) as ctx:
        answer = await ctx.ask({**TEXT, **changes}, TEXT_PATH)

    assert answer.json.get("prompt_token_ids") == ids


@pytest.mark.parametrize(("asked", "cached"), [(0, 0), (7, 7), (10, 10), (99, 10)])
@on_uvloop
async def test_a_request_can_say_what_the_cache_holds_of_it(asked, cached):
    async with ctx_server() as ctx:
        answer = await ctx.ask({**TEXT, "disagg_sim": {"cached_tokens": asked}}, TEXT_PATH)

        assert answer.json["usage"]["prompt_tokens_details"]["cached_tokens"] == cached
        assert ctx.counters["prompt_tokens"] == {"cached": cached, "computed": 10 - cached}


@on_uvloop
async def test_a_plain_request_gets_its_first_token_and_no_hand_off():
    async with ctx_server() as ctx:
        answer = await ctx.ask({"prompt": "Hello", "max_tokens": 5}, TEXT_PATH)

    assert answer.json["choices"] == [{"index": 0, "text": " 0", "finish_reason": "length"}]


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        pytest.param({"stream": True}, "stream", id="stream"),
        pytest.param({"disaggregated_params": []}, "disaggregated_params", id="no object"),
        pytest.param({"disaggregated_params": {"request_type": "generation_only"}}, "disaggregated_params", id="gen's"),
        pytest.param({"disaggregated_params": {"request_type": "context_only"}}, "disaggregated_params", id="no id"),
        pytest.param(
            {"disaggregated_params": {**CONTEXT_ONLY, "disagg_request_id": 1.0}}, "disaggregated_params", id="float id"
        ),
    ],
)
@on_uvloop
async def test_what_is_no_prefill_is_refused(changes, param):
    async with ctx_server() as ctx:
        answer = await ctx.ask({**TEXT, **changes}, TEXT_PATH)

        assert answer.status == 400
        assert answer.json["error"]["param"] == param
        assert ctx.counters["refused"]["bad_request"] == 1
        assert ctx.counters["prefill"]["asked_s"] == 0


@on_uvloop
async def test_a_full_queue_is_a_429():
    async with ctx_server(slots=1, queue_limit=1, **SECOND_PER_TOKEN) as ctx:
        for _ in range(2):
            await (await ctx.client()).send(SLOW, TEXT_PATH)
        await until(lambda: ctx.counters["queued"] == 1)
        metrics = await ctx.metrics()
        assert (metrics["disagg_ctx_slots_busy"], metrics["disagg_ctx_queue_depth"]) == (1, 1)
        refused = await ctx.ask(QUICK, TEXT_PATH)

        assert (refused.status, refused.code) == (429, "queue_full")
        assert refused.json["error"]["type"] == "rate_limit_error"
        assert ctx.counters["refused"]["queue_full"] == 1
        assert ctx.counters["live"] == 2


@on_uvloop
async def test_a_hang_up_frees_the_slot_for_the_next_in_line():
    async with ctx_server(slots=1, **SECOND_PER_TOKEN) as ctx:
        leaver, waiter = await ctx.client(), await ctx.client()
        await leaver.send(SLOW, TEXT_PATH)
        await until(lambda: ctx.counters["slots"]["busy"] == 1)
        await waiter.send(QUICK, TEXT_PATH)
        await until(lambda: ctx.counters["queued"] == 1)
        leaver.close()

        assert (await waiter.answer()).status == 200
        assert (ctx.counters["client_gone"], ctx.counters["answered"]) == (1, 1)
        assert ctx.counters["slots"] == {"total": 1, "busy": 0}


@on_uvloop
async def test_a_hang_up_frees_the_place_in_the_queue():
    async with ctx_server(slots=1, **SECOND_PER_TOKEN) as ctx:
        await (await ctx.client()).send(SLOW, TEXT_PATH)
        await until(lambda: ctx.counters["slots"]["busy"] == 1)
        leaver = await ctx.client()
        await leaver.send(QUICK, TEXT_PATH)
        await until(lambda: ctx.counters["queued"] == 1)
        leaver.close()
        await until(lambda: ctx.counters["queued"] == 0)

        assert (ctx.counters["live"], ctx.counters["client_gone"]) == (1, 1)


@on_uvloop
async def test_metrics_move_by_what_happened():
    async with ctx_server(overhead_ms=1, prefill_us_per_token=100, cache_hit_ratio=0.5) as ctx:
        before = await ctx.metrics()
        await ctx.ask(CHAT, CHAT_PATH)
        await ctx.ask({}, CHAT_PATH)
        after = await ctx.metrics()
        moved = {name: value - before[name] for name, value in after.items()}
        counters = json.loads((await ctx.ops("/admin/counters")).body)

    expected = {
        "disagg_ctx_requests_total": 2,
        'disagg_ctx_requests_ended_total{outcome="answered"}': 1,
        'disagg_ctx_requests_ended_total{outcome="bad_request"}': 1,
        'disagg_ctx_requests_ended_total{outcome="queue_full"}': 0,
        'disagg_ctx_prompt_tokens_total{source="cached"}': 5,
        'disagg_ctx_prompt_tokens_total{source="computed"}': 5,
        "disagg_ctx_slots_busy": 0,
        "disagg_ctx_queue_depth": 0,
        "disagg_ctx_queue_wait_seconds_count": 1,
        "disagg_ctx_prefill_lateness_seconds_count": 1,
    }
    assert {name: moved[name] for name in expected} == expected
    assert after["disagg_ctx_slots"] == 64
    # 1 ms and the 5 tokens that are not cached.
    assert moved["disagg_ctx_prefill_asked_seconds_total"] == pytest.approx(0.0015, abs=1e-9)
    assert moved["disagg_ctx_prefill_delivered_seconds_total"] >= 0.0015
    assert (counters["requests"], counters["live"], counters["answered"]) == (2, 0, 1)
    assert counters["prefill"]["asked_s"] == pytest.approx(0.0015, abs=1e-9)


BLOCKS = {"prefix_cache": "blocks", "cache_block_tokens": 4}


def cached(answer):
    return answer.json["usage"]["prompt_tokens_details"]["cached_tokens"]


@on_uvloop
async def test_blocks_that_an_earlier_prompt_had_are_cached_and_take_no_time():
    async with ctx_server(prefill_us_per_token=100, cache_capacity_tokens=20, **BLOCKS) as ctx:
        first = await ctx.ask({"prompt": "x" * 80}, TEXT_PATH)
        again = await ctx.ask({"prompt": "x" * 80}, TEXT_PATH)
        longer = await ctx.ask({"messages": [{"role": "user", "content": "x" * 32 + "y" * 8}]}, CHAT_PATH)
        metrics = await ctx.metrics()

        assert [cached(answer) for answer in (first, again, longer)] == [0, 16, 8]
        assert ctx.counters["prompt_tokens"] == {"cached": 24, "computed": 26}
        assert ctx.counters["prefill"]["asked_s"] == pytest.approx(26 * 100e-6, abs=1e-9)
        assert ctx.counters["prefix_cache"] == {"blocks": 5, "evicted": 0}
        assert metrics["disagg_ctx_prefix_cache_blocks"] == 5

        await ctx.ask({"prompt": "z" * 48}, TEXT_PATH)
        assert cached(await ctx.ask({"prompt": "x" * 80}, TEXT_PATH)) == 8
        assert (await ctx.metrics())["disagg_ctx_prefix_cache_evictions_total"] == 6


@on_uvloop
async def test_what_is_refused_or_says_itself_what_is_cached_leaves_no_blocks():
    async with ctx_server(slots=1, queue_limit=0, **SECOND_PER_TOKEN, **BLOCKS) as ctx:
        await ctx.ask({**QUICK, "prompt": "x" * 40}, TEXT_PATH)
        assert ctx.counters["prefix_cache"]["blocks"] == 0
        await (await ctx.client()).send({"prompt": "a" * 16}, TEXT_PATH)
        await until(lambda: ctx.counters["slots"]["busy"] == 1)

        assert (await ctx.ask({"prompt": "b" * 40}, TEXT_PATH)).status == 429
        assert ctx.counters["prefix_cache"] == {"blocks": 1, "evicted": 0}
