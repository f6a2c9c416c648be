"""The hand-off between ctx and gen: what each body holds, what is refused and why, ids to the last digit."""

import json

import pytest

from sim.core.handoff import (
    Handoff,
    HandoffError,
    check_generation_only,
    ctx_answer,
    ctx_request,
    ctx_usage_of,
    gen_request,
    is_generation_only,
    read_ctx_answer,
)
from sim.core.requests import RequestError
from sim.core.usage import Usage

BIG = 2**63 - 1
TRUE_USAGE = Usage(100, 25, 1)
CLIENT_BODIES = {
    "chat": {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 9, "x": {"y": [1]}},
    "completions": {"model": "m", "prompt": "hi", "max_tokens": 9, "x": {"y": [1]}},
}
STREAMED = {"stream": True, "stream_options": {"include_usage": True}}
each_endpoint = pytest.mark.parametrize("endpoint", CLIENT_BODIES)


def answer_to(body, endpoint="chat", prompt_token_ids=None, finish_reason="length", ctx_request_id=BIG - 1):
    """A ctx server's answer, over the wire and back."""
    answer = ctx_answer(
        endpoint,
        body,
        usage=TRUE_USAGE,
        id="chatcmpl-1",
        created=5,
        model="m",
        ctx_request_id=ctx_request_id,
        first_token=7,
        first_text=" 0",
        finish_reason=finish_reason,
        prompt_token_ids=prompt_token_ids,
    )
    return json.loads(json.dumps(answer))


def good_answer():
    return answer_to(ctx_request(CLIENT_BODIES["chat"], BIG))


# --- to ctx ---


@each_endpoint
@pytest.mark.parametrize("streamed", [{}, {"stream": False}, STREAMED], ids=["unsaid", "not streamed", "streamed"])
def test_the_ctx_request_is_the_clients_body_not_streamed_with_the_context_only_parameters(endpoint, streamed):
    body = {**CLIENT_BODIES[endpoint], **streamed}
    before = json.dumps(body)
    assert ctx_request(body, BIG) == {
        **CLIENT_BODIES[endpoint],
        "stream": False,
        "stream_options": None,
        "disaggregated_params": {"request_type": "context_only", "disagg_request_id": BIG},
    }
    assert json.dumps(body) == before


def test_max_tokens_is_not_lowered_for_ctx():
    assert ctx_request({"max_tokens": 500}, 1)["max_tokens"] == 500


# --- from ctx ---


@each_endpoint
def test_the_ctx_answer_carries_usage_both_ids_and_the_first_token(endpoint):
    answer = answer_to(ctx_request(CLIENT_BODIES[endpoint], BIG), endpoint, prompt_token_ids=[0, 1])
    said = {"message": {"role": "assistant", "content": " 0"}} if endpoint == "chat" else {"text": " 0"}
    assert answer == {
        "id": "chatcmpl-1",
        "object": "chat.completion" if endpoint == "chat" else "text_completion",
        "created": 5,
        "model": "m",
        "choices": [
            {
                "index": 0,
                **said,
                "finish_reason": "length",
                "disaggregated_params": {
                    "request_type": "context_only",
                    "first_gen_tokens": [7],
                    "ctx_request_id": BIG - 1,
                    "disagg_request_id": BIG,
                },
            }
        ],
        "usage": TRUE_USAGE.to_json(),
        "prompt_token_ids": [0, 1],
    }


def test_a_plain_request_is_answered_without_a_hand_off_or_token_ids():
    answer = answer_to(CLIENT_BODIES["chat"])
    assert answer["choices"] == [
        {"index": 0, "message": {"role": "assistant", "content": " 0"}, "finish_reason": "length"}
    ]
    assert "prompt_token_ids" not in answer


@pytest.mark.parametrize("number", [0, 1, 2**53 + 1, BIG, 2**64 - 1])
def test_ids_are_echoed_to_the_last_digit_all_the_way_to_gen(number):
    client = CLIENT_BODIES["chat"]
    handoff = read_ctx_answer(answer_to(ctx_request(client, number), ctx_request_id=number))
    params = json.loads(json.dumps(gen_request(client, handoff, "chat", with_ctx_usage=True)))["disaggregated_params"]
    assert (params["disagg_request_id"], params["ctx_request_id"]) == (number, number)


def test_a_good_answer_reads_as_its_parts():
    assert read_ctx_answer(good_answer()) == Handoff(
        params={
            "request_type": "context_only",
            "first_gen_tokens": [7],
            "ctx_request_id": BIG - 1,
            "disagg_request_id": BIG,
        },
        usage=TRUE_USAGE,
        prompt_token_ids=None,
        needs_gen=True,
    )


@pytest.mark.parametrize(
    ("finish_reason", "needs_gen"),
    [("length", True), ("not_finished", True), ("stop", False), ("content_filter", False), (None, False)],
)
def test_gen_is_needed_unless_ctx_has_finished_the_reply(finish_reason, needs_gen):
    answer = answer_to(ctx_request(CLIENT_BODIES["chat"], 1), finish_reason=finish_reason)
    assert read_ctx_answer(answer).needs_gen is needs_gen


@pytest.mark.parametrize(
    ("ids", "expected"), [([0, 1, 2], [0, 1, 2]), (None, None), ("0 1 2", None)], ids=["ids", "null", "not an array"]
)
def test_prompt_token_ids_are_taken_when_they_are_an_array(ids, expected):
    assert read_ctx_answer({**good_answer(), "prompt_token_ids": ids}).prompt_token_ids == expected


def edited(path, value):
    """A good answer with the value at ``path`` replaced; ``...`` removes it."""
    answer = good_answer()
    holder = answer
    for key in path[:-1]:
        holder = holder[key]
    if value is ...:
        del holder[path[-1]]
    else:
        holder[path[-1]] = value
    return answer


PARAMS = ("choices", 0, "disaggregated_params")
CHOICE = good_answer()["choices"][0]


@pytest.mark.parametrize(
    ("answer", "reason", "message"),
    [
        (None, "bad_shape", "the context server's answer is not a JSON object"),
        ([], "bad_shape", "the context server's answer is not a JSON object"),
        ({}, "no_choices", "the context server returned 0 choices, expected 1"),
        (edited(["choices"], []), "no_choices", "the context server returned 0 choices, expected 1"),
        (edited(["choices"], {"0": {}}), "no_choices", "the context server returned 0 choices, expected 1"),
        (edited(["choices"], [CHOICE, CHOICE]), "no_choices", "the context server returned 2 choices, expected 1"),
        (edited(["choices"], ["x"]), "bad_shape", "the context server's choice is not a JSON object"),
        (edited(PARAMS, ...), "no_handoff", "the context server did not return disaggregated_params"),
        (edited(PARAMS, None), "no_handoff", "the context server did not return disaggregated_params"),
        (edited(PARAMS, [1]), "no_handoff", "the context server did not return disaggregated_params"),
        *(
            (edited([*PARAMS, key], bad), f"no_{key}", f"the context server's disaggregated_params has no {key}")
            for key in ("ctx_request_id", "disagg_request_id")
            for bad in (..., None, "1", 1.0, True)
        ),
        (
            edited(["usage"], ...),
            "no_usage",
            "the context server's usage cannot be used: usage is NoneType, not an obj",
        ),
        (
            edited(["usage"], {}),
            "no_usage",
            "the context server's usage cannot be used: usage.prompt_tokens is missing",
        ),
        (edited(["usage", "prompt_tokens"], 1), "no_usage", "the context server's usage cannot be used: more cached"),
    ],
)
def test_an_answer_gen_cannot_continue_from_is_refused_with_the_reason(answer, reason, message):
    with pytest.raises(HandoffError) as caught:
        read_ctx_answer(answer)
    assert caught.value.reason == reason
    assert str(caught.value).startswith(message)


def test_an_early_stop_must_still_carry_both_ids():
    answer = edited([*PARAMS, "ctx_request_id"], None)
    answer["choices"][0]["finish_reason"] = "stop"
    with pytest.raises(HandoffError) as caught:
        read_ctx_answer(answer)
    assert caught.value.reason == "no_ctx_request_id"


# --- to gen ---

GENERATION_ONLY = {
    "request_type": "generation_only",
    "first_gen_tokens": [7],
    "ctx_request_id": BIG - 1,
    "disagg_request_id": BIG,
}


@each_endpoint
@pytest.mark.parametrize("streamed", [{}, STREAMED], ids=["not streamed", "streamed"])
@pytest.mark.parametrize("era", ["B", "C"])
def test_the_gen_request_is_the_clients_body_with_the_hand_off(endpoint, streamed, era):
    body = {**CLIENT_BODIES[endpoint], **streamed}
    request = gen_request(body, read_ctx_answer(good_answer()), endpoint, with_ctx_usage=era == "C")
    assert request == {
        **body,
        "disaggregated_params": {
            **GENERATION_ONLY,
            **({"ctx_usage": TRUE_USAGE.to_json()} if era == "C" else {}),
        },
    }


@pytest.mark.parametrize(("endpoint", "key"), [("chat", "prompt_token_ids"), ("completions", "prompt")])
def test_ctxs_token_ids_go_where_the_endpoint_has_them(endpoint, key):
    body = CLIENT_BODIES[endpoint]
    handoff = read_ctx_answer(answer_to(ctx_request(body, 1), endpoint, prompt_token_ids=[4, 5, 6]))
    request = gen_request(body, handoff, endpoint, with_ctx_usage=False)
    assert request[key] == [4, 5, 6]
    assert {name: request[name] for name in body if name != key} == {
        name: value for name, value in body.items() if name != key
    }


def test_making_a_gen_request_leaves_body_and_hand_off_alone():
    body, handoff = dict(CLIENT_BODIES["chat"]), read_ctx_answer(good_answer())
    gen_request(body, handoff, "chat", with_ctx_usage=True)
    assert body == CLIENT_BODIES["chat"]
    assert handoff == read_ctx_answer(good_answer())


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"disaggregated_params": {"request_type": "generation_only"}}, True),
        ({"disaggregated_params": {"request_type": "context_only"}}, False),
        ({"disaggregated_params": {}}, False),
        ({"disaggregated_params": None}, False),
        ({"disaggregated_params": "generation_only"}, False),
        ({}, False),
    ],
    ids=repr,
)
def test_a_request_with_a_hand_off_is_told_from_a_plain_one(body, expected):
    assert is_generation_only(body) is expected


def test_gen_takes_the_request_the_orchestrator_makes():
    check_generation_only(gen_request({}, read_ctx_answer(good_answer()), "chat", with_ctx_usage=False))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ctx_request_id": None}, "disaggregated_params.ctx_request_id must be a whole number"),
        ({"ctx_request_id": 1.0}, "disaggregated_params.ctx_request_id must be a whole number"),
        ({"ctx_request_id": True}, "disaggregated_params.ctx_request_id must be a whole number"),
        ({"disagg_request_id": "1"}, "disaggregated_params.disagg_request_id must be a whole number"),
        ({"first_gen_tokens": None}, "disaggregated_params.first_gen_tokens must be a non-empty array"),
        ({"first_gen_tokens": []}, "disaggregated_params.first_gen_tokens must be a non-empty array"),
        ({"first_gen_tokens": 7}, "disaggregated_params.first_gen_tokens must be a non-empty array"),
    ],
    ids=repr,
)
def test_gen_refuses_a_hand_off_it_cannot_continue_from(change, message):
    with pytest.raises(RequestError) as caught:
        check_generation_only({"disaggregated_params": {**GENERATION_ONLY, **change}})
    assert (str(caught.value), caught.value.param) == (message, "disaggregated_params")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"disaggregated_params": {"ctx_usage": TRUE_USAGE.to_json()}}, TRUE_USAGE),
        ({"disaggregated_params": {"ctx_usage": {"prompt_tokens": 9}}}, Usage(9, 0, 0)),
        ({"disaggregated_params": {"ctx_usage": None}}, None),
        ({"disaggregated_params": {}}, None),
        ({"disaggregated_params": None}, None),
        ({}, None),
    ],
    ids=repr,
)
def test_the_ctx_usage_handed_over_is_read(body, expected):
    assert ctx_usage_of(body) == expected


@pytest.mark.parametrize("bad", [False, 0, "", [], {}, {"prompt_tokens": "9"}], ids=repr)
def test_a_ctx_usage_that_cannot_be_used_is_refused(bad):
    with pytest.raises(RequestError) as caught:
        ctx_usage_of({"disaggregated_params": {"ctx_usage": bad}})
    assert str(caught.value).startswith("disaggregated_params.ctx_usage: usage")
    assert caught.value.param == "disaggregated_params"
