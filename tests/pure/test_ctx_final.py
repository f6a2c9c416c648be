"""A reply finished at ctx: what the client gets of ctx's answer, whole and as a stream."""

import json

import pytest

from sim.core.sse import SseDecoder, data_of
from sim.orchestrator.ctx_final import final_answer, final_stream
from sim.orchestrator.kinds import kind_of

USAGE = {"prompt_tokens": 9, "total_tokens": 10, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 2}}


def answer(choice, kind):
    handoff = {"request_type": "context_only", "ctx_request_id": 1, "disagg_request_id": 2}
    choice = {"index": 0, **choice, "finish_reason": "stop", "disaggregated_params": handoff}
    return {"id": "x-1", "object": kind, "created": 5, "model": "m", "choices": [choice], "usage": USAGE}


CHAT = answer({"message": {"role": "assistant", "content": "Hi"}}, "chat.completion")
TEXT = answer({"text": "Hi"}, "text_completion")


def bodies(stream):
    events = SseDecoder(1 << 20).feed(stream)
    assert b"".join(events) == stream
    assert [kind_of(event) for event in events][-1] == "done"
    return [json.loads(data_of(event)) for event in events[:-1]]


def test_a_whole_answer_loses_only_the_hand_off():
    choice = {"index": 0, "text": "Hi", "finish_reason": "stop"}
    assert final_answer(TEXT) == {**TEXT, "choices": [choice]}
    assert "disaggregated_params" in TEXT["choices"][0]


def test_a_chat_stream_has_role_text_finish_reason_and_usage():
    head = {"id": "x-1", "object": "chat.completion.chunk", "created": 5, "model": "m"}
    choice = {"index": 0, "delta": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}
    assert bodies(final_stream(CHAT, "chat", include_usage=True)) == [
        {**head, "choices": [choice]},
        {**head, "choices": [], "usage": USAGE},
    ]


def test_a_completion_stream_without_usage_asked_for_has_none():
    head = {"id": "x-1", "object": "text_completion", "created": 5, "model": "m"}
    choice = {"index": 0, "text": "Hi", "finish_reason": "stop"}
    assert bodies(final_stream(TEXT, "completions", include_usage=False)) == [{**head, "choices": [choice]}]


def test_tool_calls_are_numbered_in_a_stream():
    calls = [{"id": "a", "function": {}}, {"id": "b", "function": {}}]
    chat = answer({"message": {"role": "assistant", "tool_calls": calls}}, "chat.completion")
    (body,) = bodies(final_stream(chat, "chat", include_usage=False))
    assert body["choices"][0]["delta"]["tool_calls"] == [{"index": 0, **calls[0]}, {"index": 1, **calls[1]}]


@pytest.mark.parametrize("message", [None, "text", 3])
def test_an_answer_without_a_message_still_ends_properly(message):
    (body,) = bodies(final_stream(answer({"message": message}, "chat.completion"), "chat", include_usage=False))
    assert body["choices"] == [{"index": 0, "delta": {}, "finish_reason": "stop"}]
