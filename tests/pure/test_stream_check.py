"""The verdict: every way in which a whole reply can be wrong has its word, and a right one passes."""

from __future__ import annotations

import dataclasses
import json

import pytest

from loadtest.stream_check import judge
from sim.core.chunks import full_answer
from sim.core.sse import replace_data
from sim.core.usage import Usage, rewrite_event
from tests.pure.replies import SHAPES, USAGE, events_of, expectation, read, reads_of, shape


def outcome(events, expected, keep=False):
    return judge(read(reads_of(events), keep=keep), expected)[0]


@pytest.mark.parametrize("endpoint", ["chat", "completions"])
@pytest.mark.parametrize("include_usage", [True, False])
@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("keep", [True, False], ids=["bytes", "counted"])
def test_what_gen_writes_passes(name, include_usage, endpoint, keep):
    events = events_of(13, endpoint, include_usage=include_usage, **SHAPES[name])
    expected = expectation(13, endpoint=endpoint, include_usage=include_usage, shape=shape(**SHAPES[name]))

    assert judge(read(reads_of(events), keep=keep), expected) == ("ok", "")


@pytest.mark.parametrize("name", SHAPES)
def test_what_a_relay_rewrote_passes_the_comparison_of_bytes(name):
    """Gen says that all is cached; the rewritten events are equal as JSON, not as bytes."""
    told = events_of(13, told=Usage(64, 64), **SHAPES[name])
    events = [rewrite_event(event, USAGE) for event in told]
    expected = expectation(13, shape=shape(**SHAPES[name]))

    assert judge(read(reads_of(events), keep=True), expected) == ("ok", "")


def test_without_the_rewrite_usage_is_wrong():
    text = judge(read(reads_of(events_of(13, told=Usage(64, 64)))), expectation(13))

    assert text[0] == "wrong_usage"
    assert '"cached_tokens": 64' in text[1]
    assert '"cached_tokens": 16' in text[1]


def test_cached_tokens_that_are_not_known_are_not_compared():
    assert outcome(events_of(13, told=Usage(64, 33)), expectation(13, cached_tokens=None)) == "ok"
    assert outcome(events_of(13, told=Usage(65, 33)), expectation(13, cached_tokens=None)) == "wrong_usage"


RIGHT = Usage(64, 16, 13).to_json()


@pytest.mark.parametrize(
    "usage",
    [
        {**RIGHT, "completion_tokens": 12, "total_tokens": 76},
        {**RIGHT, "total_tokens": 99},
        {**RIGHT, "prompt_tokens": "64"},
        {**RIGHT, "prompt_tokens_details": {"cached_tokens": 65}},
        {"prompt_tokens": 64, "completion_tokens": 13, "total_tokens": 77},
    ],
    ids=["one short", "wrong total", "not a number", "more cached than prompt", "nothing cached"],
)
def test_a_usage_that_does_not_add_up_is_wrong(usage):
    events = events_of(13)
    events[-2] = replace_data(events[-2], json.dumps({"choices": [], "usage": usage}).encode())

    assert outcome(events, expectation(13)) == "wrong_usage"


def test_usage_is_there_exactly_when_asked_for():
    assert outcome(events_of(13, told=USAGE, include_usage=False), expectation(13)) == "missing_usage"
    assert outcome(events_of(13), expectation(13, include_usage=False)) == "unexpected_usage"
    doubled = events_of(13)
    assert outcome([*doubled[:-1], doubled[-2], doubled[-1]], expectation(13)) == "unexpected_usage"
    assert outcome(events_of(13, **SHAPES["continuous"]), expectation(13)) == "unexpected_usage"
    assert outcome(events_of(13, **SHAPES["absent"]), expectation(13, shape=shape(usage="absent"))) == "ok"


def test_usage_that_is_only_noted_is_not_judged():
    expected = expectation(13, judge_usage=False, shape=None)

    assert outcome(events_of(13, told=Usage(64, 64)), expected) == "ok"
    assert outcome(events_of(13, include_usage=False), expected) == "ok"


def test_more_tokens_than_asked_is_a_wrong_count():
    assert outcome(events_of(14), expectation(13)) == "wrong_count"


@pytest.mark.parametrize("finish", ["last", "own"])
def test_a_drained_stream_passes_when_usage_says_so(finish):
    events = events_of(13, finish=finish)
    expected = {"may_end_early": True, "shape": shape(finish=finish)}

    assert outcome(events, expectation(1000, **expected), keep=True) == "ok"
    assert outcome(events, expectation(12, **expected)) == "wrong_count"


@pytest.mark.parametrize("include_usage", [True, False])
def test_a_short_stream_is_wrong_where_nobody_drains(include_usage):
    events = events_of(13, include_usage=include_usage)
    expected = expectation(200, include_usage=include_usage)

    assert judge(read(reads_of(events)), expected) == ("wrong_count", "13 tokens came, 200 were asked for")


def test_a_stream_that_lost_its_last_tokens_is_not_a_drained_one():
    events = events_of(13, finish="own")
    lost = [*events[:10], *events[14:]]
    expected = expectation(13, may_end_early=True, shape=shape(finish="own"))
    text = judge(read(reads_of(lost)), expected)

    assert text == ("wrong_count", "9 tokens came, 13 were asked for, usage says 13")
    foreign = expectation(13, may_end_early=True, shape=None, judge_usage=False)
    assert judge(read(reads_of(lost)), foreign)[0] == "wrong_count"


def test_without_usage_a_finish_on_the_last_token_shows_that_it_was_the_last():
    last = events_of(13, include_usage=False)
    own = events_of(13, include_usage=False, finish="own")

    expected = expectation(1000, include_usage=False, may_end_early=True)

    assert outcome(last, expected) == "ok"
    assert outcome([*last[:8], last[-1]], expected) == "wrong_count"
    assert outcome(own, dataclasses.replace(expected, shape=shape(finish="own"))) == "wrong_count"


def without_finish(events):
    return [event.replace(b',"finish_reason":"length"', b"") for event in events]


ORDERS = {
    "no finish_reason": (without_finish(events_of(13)), "no_finish", "no finish_reason came"),
    "two roles": (events_of(13)[:1] + events_of(13), "wrong_order", "2 role events"),
    "finish_reason early": (
        [*events_of(5)[:6], *without_finish(events_of(13))[6:]],
        "wrong_order",
        "finish_reason came after 5 tokens, and 13 came in all",
    ),
    "usage first": (
        [events_of(13)[-2], *events_of(13)[:-2], events_of(13)[-1]],
        "wrong_order",
        "usage came after 0 tokens, and 13 came in all",
    ),
}


@pytest.mark.parametrize(("events", "word", "detail"), ORDERS.values(), ids=ORDERS)
def test_what_goes_with_the_tokens_is_there_once_and_in_its_place(events, word, detail):
    assert judge(read(reads_of(events)), expectation(13)) == (word, detail)
    assert judge(read(reads_of(events)), expectation(13, judge_usage=False, shape=None)) == (word, detail)


TRUE, LIE = events_of(13, usage="continuous"), events_of(13, told=Usage(64, 64), usage="continuous")
LIES = {
    "on every chunk": [*LIE[:-2], TRUE[-2], TRUE[-1]],
    "on one chunk": [*TRUE[:7], LIE[7], *TRUE[8:]],
    "on the last chunk": [*TRUE[:13], LIE[13], *TRUE[14:]],
    "on the role": [LIE[0], *TRUE[1:]],
}


@pytest.mark.parametrize("events", LIES.values(), ids=LIES)
def test_usage_on_chunks_is_judged_alike(events):
    expected = expectation(13, shape=shape(usage="continuous"))
    word, detail = judge(read(reads_of(events)), expected)

    assert word == "wrong_usage"
    assert detail.startswith("on a chunk: ")
    assert '"cached_tokens": 64' in detail
    assert outcome(events, dataclasses.replace(expected, judge_usage=False)) == "ok"


def test_usage_on_chunks_is_judged_where_no_usage_event_was_asked_for():
    events = events_of(13, told=Usage(64, 64), usage="continuous", include_usage=False)
    expected = expectation(13, include_usage=False, shape=shape(usage="continuous"))

    assert outcome(events, expected) == "wrong_usage"


def test_a_null_usage_on_some_chunks_is_none():
    events = [TRUE[0], *events_of(13, usage="null")[1:6], *TRUE[6:]]

    assert outcome(events, expectation(13, shape=shape(usage="continuous"))) == "ok"


def test_no_token_at_all_is_a_wrong_count():
    role, *_, usage, done = events_of(13)

    assert outcome([role, usage, done], expectation(13)) == "wrong_count"


def test_no_end_marker_is_a_cut_even_when_http_ends_well():
    assert outcome(events_of(13)[:-1], expectation(13)) == "cut"


def test_an_answer_that_is_no_event_stream():
    raw = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"

    assert judge(read([raw]), expectation(13)) == ("not_sse", "the answer is application/json")


DIFFERENCES = {
    "another byte": lambda e: [*e[:5], e[5].replace(b'"index":0', b'"index":1'), *e[6:]],
    "another space": lambda e: [*e[:5], e[5].replace(b'"index":0', b'"index": 0'), *e[6:]],
    "a comment": lambda e: [*e[:5], b": ping\n\n", *e[5:]],
    "no role": lambda e: e[1:],
    "usage with a key more": lambda e: [*e[:-2], e[-2].replace(b'"usage":', b'"more":1,"usage":'), e[-1]],
    "no identity": lambda e: [e[0].replace(b'"id":', b'"no":'), *e[1:]],
}


@pytest.mark.parametrize("change", DIFFERENCES.values(), ids=DIFFERENCES)
def test_only_the_comparison_of_bytes_sees(change):
    events = change(events_of(13))

    assert outcome(events, expectation(13)) == "ok"
    assert outcome(events, expectation(13), keep=True) == "bytes_differ"
    assert outcome(events, expectation(13, shape=None), keep=True) == "ok"


def test_the_first_difference_is_shown():
    events = events_of(13)
    events[5] = events[5].replace(b'"index":0', b'"index":1')

    assert judge(read(reads_of(events), keep=True), expectation(13))[1].startswith("event 5: b'data: ")


def answer(tokens=13, usage=USAGE, endpoint="chat", **changes):
    text = "".join(f" {k}" for k in range(tokens))
    told = None if usage is None else Usage(usage.prompt_tokens, usage.cached_tokens, tokens)
    body = full_answer(endpoint, id="a", created=1, model="sim", text=text, usage=told or USAGE)
    if told is None:
        del body["usage"]
    return {**body, **changes}


def judged(body, **expected):
    raw = json.dumps(body).encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(raw)
    reader = read([head, raw])
    return judge(reader, expectation(13, stream=False, include_usage=False, **expected))[0], reader.tokens


@pytest.mark.parametrize("endpoint", ["chat", "completions"])
def test_a_whole_answer_passes(endpoint):
    assert judged(answer(endpoint=endpoint), endpoint=endpoint) == ("ok", 13)


@pytest.mark.parametrize(
    ("body", "word"),
    [
        (answer(usage=Usage(64, 64)), "wrong_usage"),
        (answer(usage=None), "missing_usage"),
        (answer(14, usage=None), "wrong_count"),
        (answer(choices=[{"message": {"content": " 0 1 3"}}]), "wrong_order"),
        (answer(choices=[]), "bad_event"),
        (answer(choices=[{"message": {"content": None}}]), "bad_event"),
        ({"error": {"message": "no"}}, "error_event"),
        (answer(9), "wrong_count"),
        (answer(choices=[{"message": {"content": "".join(f" {k}" for k in range(13))}}]), "no_finish"),
        ([], "bad_event"),
    ],
)
def test_a_whole_answer_is_judged_alike(body, word):
    assert judged(body)[0] == word


def test_a_whole_answer_that_was_drained_passes():
    assert judged(answer(9), may_end_early=True) == ("ok", 9)
    assert judged(answer(14), may_end_early=True) == ("wrong_count", 14)
