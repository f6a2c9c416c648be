"""Context-first flow over real sockets: what ctx and gen are sent, what is tried again, what the client is told."""

from __future__ import annotations

import asyncio
import functools

import pytest

from sim.orchestrator.policies import BUILTIN
from tests.wire.fakes import on_uvloop
from tests.wire.scripted import (
    CHAT,
    CTX_USAGE,
    DONE,
    GEN_USAGE,
    ROLE,
    TRUE_USAGE,
    answering,
    closing,
    orchestrating,
    prefill,
    scripted,
    streaming,
    token,
    until,
    usage_event,
)

pytestmark = pytest.mark.usefixtures("engine")

NOT_STREAMED = {key: value for key, value in CHAT.items() if not key.startswith("stream")}
STREAM = (ROLE, token(" 0"), token(" 1"), token(" 2") + usage_event(GEN_USAGE) + DONE)
RELAYED = ROLE + token(" 0") + token(" 1") + token(" 2") + usage_event(TRUE_USAGE) + DONE
GEN_ANSWER = {
    "id": "g",
    "object": "chat.completion",
    "choices": [{"message": {"content": " 0 1 2"}}],
    "usage": GEN_USAGE,
}
NO_SUCH_SERVER = "http://127.0.0.1:9"


@on_uvloop
async def test_ctx_is_asked_first_without_streaming_and_gen_gets_its_hand_off():
    async with scripted(prefill) as ctx, scripted(streaming(*STREAM)) as gen, orchestrating(ctx, gen) as orchestrator:
        answer = await orchestrator.ask()
        assert (answer.status, answer.body) == (200, RELAYED)
        assert b"Content-Type: text/event-stream\r\n" in answer.head
        (to_ctx,), (to_gen,) = ctx.requests, gen.requests
        number = to_ctx.params["disagg_request_id"]
        assert number > 2**53
        assert to_ctx.path == to_gen.path == "/v1/chat/completions"
        assert to_ctx.json == {
            **CHAT,
            "stream": False,
            "stream_options": None,
            "disaggregated_params": {"request_type": "context_only", "disagg_request_id": number},
        }
        assert to_gen.json == {
            **CHAT,
            "prompt_token_ids": [1, 2, 3],
            "disaggregated_params": {
                "request_type": "generation_only",
                "first_gen_tokens": [7],
                "ctx_request_id": 5,
                "disagg_request_id": number,
            },
        }


@on_uvloop
async def test_a_completion_is_sent_on_with_ctx_prompt_token_ids_as_its_prompt():
    async with scripted(prefill) as ctx, scripted(streaming(*STREAM)) as gen, orchestrating(ctx, gen) as orchestrator:
        await orchestrator.ask({"prompt": "Hello", "stream": True, "max_tokens": 3}, "/v1/completions")
        assert ctx.requests[0].path == gen.requests[0].path == "/v1/completions"
        assert ctx.requests[0].json["prompt"] == "Hello"
        assert gen.requests[0].json["prompt"] == [1, 2, 3]


@on_uvloop
async def test_with_usage_by_gen_the_request_carries_ctx_usage_and_a_right_usage_passes_unchanged():
    stream = (ROLE, token(" 0"), usage_event(TRUE_USAGE) + DONE)
    async with (
        scripted(prefill) as ctx,
        scripted(streaming(*stream)) as gen,
        orchestrating(ctx, gen, usage_by="gen") as orchestrator,
    ):
        for policy in BUILTIN:
            assert (await orchestrator.ops("/admin/policy", {"policy": policy})).status == 200
            assert (await orchestrator.ask()).body == b"".join(stream)
        assert [request.params["ctx_usage"] for request in gen.requests] == [CTX_USAGE] * len(BUILTIN)
        assert sum(counts["changed"] for counts in orchestrator.counters["policies"].values()) == 0


@on_uvloop
async def test_a_whole_answer_has_ctx_usage_too():
    async with (
        scripted(prefill) as ctx,
        scripted(answering(200, GEN_ANSWER)) as gen,
        orchestrating(ctx, gen) as orchestrator,
    ):
        answer = await orchestrator.ask(NOT_STREAMED)
        assert answer.json == {**GEN_ANSWER, "usage": TRUE_USAGE}
        assert "ctx_usage" not in gen.requests[0].params
        assert orchestrator.counters["answers"] == 1


@on_uvloop
async def test_a_whole_answer_is_gen_own_when_gen_does_the_usage():
    async with (
        scripted(prefill) as ctx,
        scripted(answering(200, GEN_ANSWER)) as gen,
        orchestrating(ctx, gen, usage_by="gen") as orchestrator,
    ):
        assert (await orchestrator.ask(NOT_STREAMED)).json == GEN_ANSWER
        assert gen.requests[0].params["ctx_usage"] == CTX_USAGE


@pytest.mark.parametrize("reason", ["stop", "content_filter"])
@on_uvloop
async def test_a_reply_finished_at_ctx_never_reaches_gen(reason):
    finished = functools.partial(prefill, finish_reason=reason)
    async with scripted(finished) as ctx, scripted(closing) as gen, orchestrating(ctx, gen) as orchestrator:
        whole = (await orchestrator.ask(NOT_STREAMED)).json
        message = {"role": "assistant", "content": "Hi"}
        assert whole["choices"] == [{"index": 0, "message": message, "finish_reason": reason}]
        assert whole["usage"] == CTX_USAGE
        stream = await orchestrator.ask()
        assert b'"delta":{"role":"assistant","content":"Hi"},"finish_reason":"' + reason.encode() in stream.body
        assert stream.body.endswith(DONE)
        assert gen.requests == []
        counters = orchestrator.counters
        assert counters["streams"] == {**counters["streams"], "started": 1, "live": 0}
        assert counters["streams"]["ended"]["finished_at_ctx"] == counters["answers"] == 1


@pytest.mark.parametrize("first", [closing, answering(500, {"error": {"message": "oom"}}), answering(503, b"busy")])
@on_uvloop
async def test_a_failing_ctx_is_tried_again_under_a_new_id(first):
    async with (
        scripted(first, prefill) as ctx,
        scripted(streaming(*STREAM)) as gen,
        orchestrating(ctx, gen) as orchestrator,
    ):
        assert (await orchestrator.ask()).body == RELAYED
        first_id, second_id = (request.params["disagg_request_id"] for request in ctx.requests)
        assert first_id != second_id
        assert gen.requests[0].params["disagg_request_id"] == second_id
        assert orchestrator.counters["retries"] == {"ctx": 1, "gen": 0}


@pytest.mark.parametrize("first", [closing, answering(500, {"error": "oom"})])
@pytest.mark.parametrize("body", [CHAT, NOT_STREAMED])
@on_uvloop
async def test_a_failing_gen_is_tried_again_with_the_same_hand_off(first, body):
    last = streaming(*STREAM) if body is CHAT else answering(200, GEN_ANSWER)
    async with scripted(prefill) as ctx, scripted(first, last) as gen, orchestrating(ctx, gen) as orchestrator:
        assert (await orchestrator.ask(body)).status == 200
        assert len(ctx.requests) == 1
        assert gen.requests[0].body == gen.requests[1].body
        assert orchestrator.counters["retries"] == {"ctx": 0, "gen": 1}


@on_uvloop
async def test_a_retry_goes_to_another_server():
    async with (
        scripted(prefill) as ctx,
        scripted(closing) as bad,
        scripted(streaming(*STREAM)) as good,
        orchestrating(ctx, [bad, good]) as orchestrator,
    ):
        await until(lambda: all(row["ready"] for row in orchestrator.counters["upstreams"]))
        for _ in range(3):
            assert (await orchestrator.ask()).body == RELAYED
        assert len(good.requests) == 3


@pytest.mark.parametrize(
    ("role", "script", "status", "code", "tries"),
    [
        ("ctx", answering(500, {"error": {"message": "oom"}}), 502, "ctx_status", 2),
        ("ctx", answering(503, b""), 503, "ctx_status", 2),
        ("ctx", closing, 502, "ctx_unreachable", 2),
        ("ctx", answering(200, b"{"), 502, "bad_answer", 1),
        ("ctx", answering(200, []), 502, "bad_shape", 1),
        ("ctx", answering(200, b"x", "text/plain"), 502, "bad_answer", 1),
        ("ctx", answering(302, b""), 502, "bad_answer", 1),
        ("ctx", answering(200, {"choices": []}), 502, "no_choices", 1),
        ("ctx", functools.partial(prefill, disaggregated_params=None), 502, "no_handoff", 1),
        (
            "ctx",
            functools.partial(prefill, disaggregated_params={"ctx_request_id": 1, "disagg_request_id": 2}),
            502,
            "wrong_disagg_request_id",
            1,
        ),
        ("gen", answering(500, {"message": "oom"}), 502, "gen_status", 2),
        ("gen", answering(504, b""), 504, "gen_status", 2),
        ("gen", closing, 502, "gen_unreachable", 2),
        ("gen", answering(200, GEN_ANSWER), 502, "bad_answer", 1),
    ],
)
@on_uvloop
async def test_a_failure_has_its_status_and_reason_and_is_counted(role, script, status, code, tries):
    scripts = {"ctx": prefill, "gen": streaming(*STREAM), role: script}
    async with (
        scripted(scripts["ctx"]) as ctx,
        scripted(scripts["gen"]) as gen,
        orchestrating(ctx, gen) as orchestrator,
    ):
        answer = await orchestrator.ask()
        assert (answer.status, answer.code) == (status, code)
        assert b"Content-Type: application/json" in answer.head
        assert len({"ctx": ctx, "gen": gen}[role].requests) == tries
        counters = orchestrator.counters
        assert {reason: n for reason, n in counters["failures"].items() if n} == {code: 1}
        assert (counters["requests"], counters["streams"]["started"], counters["answers"]) == (1, 0, 0)
        assert [row["outstanding"] for row in counters["upstreams"]] == [0, 0]


@pytest.mark.parametrize("role", ["ctx", "gen"])
@pytest.mark.parametrize(
    ("body", "error"),
    [
        (
            {"error": {"message": "too long", "type": "t", "param": "messages", "code": "c"}},
            {"message": "too long", "type": "t", "param": "messages", "code": "c"},
        ),
        (
            {"object": "error", "message": "too long", "type": "t", "param": None, "code": 400},
            {"message": "too long", "type": "t", "param": None, "code": "400"},
        ),
        ({"error": "too long"}, {"message": "too long", "type": "invalid_request_error", "param": None}),
        (b"too long", {"message": "too long", "type": "invalid_request_error", "param": None}),
    ],
)
@on_uvloop
async def test_a_4xx_is_final_and_reaches_the_client_in_openai_shape(role, body, error):
    scripts = {"ctx": prefill, "gen": streaming(*STREAM), role: answering(422, body)}
    async with (
        scripted(scripts["ctx"]) as ctx,
        scripted(scripts["gen"]) as gen,
        orchestrating(ctx, gen) as orchestrator,
    ):
        answer = await orchestrator.ask()
        assert answer.status == 422
        assert answer.json["error"] == {"code": f"{role}_refused", **error}
        assert len({"ctx": ctx, "gen": gen}[role].requests) == 1
        assert orchestrator.counters["failures"][f"{role}_refused"] == 1


async def never(peer, request):
    await peer.hung_up()


@pytest.mark.parametrize("role", ["ctx", "gen"])
@on_uvloop
async def test_a_server_that_does_not_answer_in_time_is_a_504_tried_once_and_hung_up_on(role):
    hung_up = asyncio.Event()

    async def waits(peer, request):
        await peer.hung_up()
        hung_up.set()

    scripts = {"ctx": prefill, "gen": streaming(*STREAM), role: waits}
    async with (
        scripted(scripts["ctx"]) as ctx,
        scripted(scripts["gen"]) as gen,
        orchestrating(ctx, gen, first_byte_timeout_s=0.2) as orchestrator,
    ):
        answer = await orchestrator.ask()
        assert (answer.status, answer.code) == (504, f"{role}_timeout")
        await hung_up.wait()
        assert len({"ctx": ctx, "gen": gen}[role].requests) == 1


@on_uvloop
async def test_a_retry_goes_to_another_server_even_when_that_one_has_more_to_do():
    release = asyncio.Event()

    async def busy(peer, request):
        await peer.open_stream()
        await release.wait()
        await peer.chunk(DONE)
        await peer.end_stream()

    async with (
        scripted(prefill) as ctx,
        scripted(busy, streaming(*STREAM)) as first,
        scripted(closing) as second,
        orchestrating(ctx, [first, second], routing="least_outstanding") as orchestrator,
    ):
        client = await orchestrator.client()
        await client.send()
        await client.head()
        answer = await orchestrator.ask()
        release.set()
        assert answer.body == RELAYED
        assert await client.chunk() == DONE
        assert (len(first.requests), len(second.requests)) == (2, 1)
        assert orchestrator.counters["retries"] == {"ctx": 0, "gen": 1}


@on_uvloop
async def test_retries_are_as_many_as_set():
    async with (
        scripted(closing, closing, closing, prefill) as ctx,
        scripted(streaming(*STREAM)) as gen,
        orchestrating(ctx, gen, retries=3) as orchestrator,
    ):
        assert (await orchestrator.ask()).body == RELAYED
        assert orchestrator.counters["retries"]["ctx"] == 3
    async with (
        scripted(closing, prefill) as ctx,
        scripted(streaming(*STREAM)) as gen,
        orchestrating(ctx, gen, retries=0) as orchestrator,
    ):
        assert (await orchestrator.ask()).code == "ctx_unreachable"


@on_uvloop
async def test_without_a_ready_server_requests_are_503_and_so_is_health():
    async with scripted(prefill) as ctx, scripted(closing) as gen:
        gen.healthy = False
        async with orchestrating(ctx, gen, ready=False) as orchestrator:
            await until(lambda: orchestrator.counters["upstreams"][0]["ready"])
            assert (await orchestrator.ask(None, "/health", "GET")).status == 503
            answer = await orchestrator.ask()
            assert (answer.status, answer.code) == (503, "no_upstream")
            assert answer.json["error"]["message"] == f"no gen server is ready ({gen.url}: /health answered 503)"
            gen.healthy = True
            await until(lambda: orchestrator.counters["upstreams"][1]["ready"])
            assert (await orchestrator.ask(None, "/health", "GET")).status == 200


@on_uvloop
async def test_upstreams_may_be_unix_sockets(tmp_path):
    async with (
        scripted(prefill, path=tmp_path / "ctx.sock") as ctx,
        scripted(streaming(*STREAM), path=tmp_path / "gen.sock") as gen,
        orchestrating(ctx, gen) as orchestrator,
    ):
        assert (await orchestrator.ask()).body == RELAYED


@pytest.mark.parametrize(
    ("body", "path", "method", "status", "code"),
    [
        (b"{", "/v1/chat/completions", "POST", 400, "bad_json"),
        (b"\xff", "/v1/chat/completions", "POST", 400, "bad_json"),
        (b"[" * 100_000, "/v1/chat/completions", "POST", 400, "bad_json"),
        ([], "/v1/chat/completions", "POST", 400, None),
        ({}, "/v1/chat/completions", "POST", 400, None),
        ({**CHAT, "stream": "yes"}, "/v1/chat/completions", "POST", 400, None),
        ({"prompt": 3}, "/v1/completions", "POST", 400, None),
        ({"prompt": "x" * 2000}, "/v1/completions", "POST", 413, "body_too_large"),
        ({}, "/v1/nothing", "POST", 404, "unknown_path"),
        (None, "/v1/completions", "GET", 405, "method_not_allowed"),
    ],
)
@on_uvloop
async def test_a_request_that_cannot_be_served_is_refused_before_any_server_is_asked(body, path, method, status, code):
    async with (
        scripted(prefill) as ctx,
        scripted(streaming(*STREAM)) as gen,
        orchestrating(ctx, gen, max_body_bytes=1024) as orchestrator,
    ):
        if isinstance(body, bytes) and len(body) > 1024:
            body = body[:1000]
        answer = await orchestrator.ask(body, path, method)
        assert (answer.status, answer.code) == (status, code)
        assert (ctx.requests, gen.requests) == ([], [])
        counters = orchestrator.counters
        assert counters["requests"] == counters["failures"]["bad_request"] == (status in (400, 413))


@on_uvloop
async def test_a_long_prompt_passes_whole():
    body = {**CHAT, "messages": [{"role": "user", "content": "x" * 3_000_000}]}
    async with scripted(prefill) as ctx, scripted(streaming(*STREAM)) as gen, orchestrating(ctx, gen) as orchestrator:
        assert (await orchestrator.ask(body)).body == RELAYED
        assert ctx.requests[0].json["messages"] == gen.requests[0].json["messages"] == body["messages"]


@on_uvloop
async def test_models_are_listed():
    async with scripted(prefill) as ctx, scripted(closing) as gen, orchestrating(ctx, gen) as orchestrator:
        assert [model["object"] for model in (await orchestrator.ask(None, "/v1/models", "GET")).json["data"]] == [
            "model"
        ]
