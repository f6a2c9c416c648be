"""`prefilter-tail` once it knows a stream's shape: equal to `parse` whatever stands between a known head and tail."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sim.core.chunks import ChunkShape, StreamWriter
from sim.core.settings import GenSettings
from sim.core.sse import data_of, replace_data
from sim.core.usage import Usage
from sim.orchestrator.counters import PolicyCounters
from sim.orchestrator.known_shape import MAX_LEARNINGS, SHORT_TEXT_BYTES, holds_no_usage
from sim.orchestrator.policies import make

CTX = Usage(prompt_tokens=100, cached_tokens=25)
GEN = Usage(prompt_tokens=100, cached_tokens=100)
TAIL_USAGE = b'"usage":%b' % json.dumps(GEN.to_json(), separators=(",", ":")).encode()

HEADS_AND_TAILS = {
    "chat": (b'data: {"id":"a","choices":[{"index":0,"delta":{"content":"', b'"}}]}\n\n'),
    "null": (b'data: {"id":"a","choices":[{"index":0,"delta":{"content":"', b'"},"f":null}],"usage":null}\n\n'),
    "nested usage": (b'data: {"choices":[{"text":"', b'","usage":{"prompt_tokens":1}}]}\n\n'),
    "text first": (b'data: {"text":"', b'","id":7}\n\n'),
    "nothing else": (b'data: {"text":"', b'"}\n\n'),
    "usage is a text": (b'data: {"a":{"text":"', b'"},"usage":"x"}\n\n'),
    "CRLF": (b'data: {"delta":{"content": "', b'"}, "usage": null}\r\n\r\n'),
    "CR": (b'data: {"delta":{"content":"', b'"}}\r\r'),
    "on each chunk": (b'data: {"choices":[{"delta":{"content":"', b'"}}],' + TAIL_USAGE + b"}\n\n"),
    "escaped usage before the text": (rb'data: {"us\u0061ge":{},"x":{"text":"', b'"},"usage":null}\n\n'),
    "usage before the text": (b'data: {"usage":{"prompt_tokens":1},"x":{"text":"', b'"},"usage":null}\n\n'),
}
FRAGMENTS = [
    '"', ",", ":", "{", "}", "[", "]", "\\", "\\u0061", "\\n", '""', '"":"', '"usage"', '"usage":{}',
    '"us\\u0061ge":{}',
    ',"usage":{', '"}', '"}}]', '"x":[{"y":{"content":"', '"x":{"text":"', "\n", "\r", "\ndata: ", "\nid: 1", "null",
    "x", " ", "\u00e9", "usage", "\x01", "\x00", "NaN", "1e999",
]  # fmt: skip
fragments = st.lists(st.sampled_from(FRAGMENTS), max_size=9).map(lambda parts: "".join(parts).encode())
middles = fragments | st.binary(max_size=SHORT_TEXT_BYTES + 4) | st.text(max_size=40).map(str.encode)


def same_as_parse(policy, event: bytes) -> bool:
    """The same object where `parse` gives it; else JSON-equal in the same frame."""
    expected, out = make("parse", CTX)(event), policy(event)
    if expected is event:
        return out is event
    return replace_data(out, b"") == replace_data(expected, b"") and decoded(out) == decoded(expected)


def decoded(event: bytes) -> object:
    return json.loads(data_of(event) or b"null")


def taught(head: bytes, tail: bytes):
    """A policy that knows this shape and will not learn another."""
    policy = make("prefilter-tail", CTX)
    policy(head + b"ab" + tail)
    for _ in range(MAX_LEARNINGS):
        policy(b": no chunk\n\n")
    return policy


@pytest.mark.parametrize("shape", HEADS_AND_TAILS)
@given(between=middles, stuffing=st.binary(max_size=3))
@example(between=b'","usage":{}}\n', stuffing=b"")
@example(between=b'","usage":{},"":"', stuffing=b"")
@example(between=b'"}\n', stuffing=b"")
@example(between=b'"}}\n', stuffing=b"")
@example(between=b'"}}],"usage":{"prompt_tokens":1},"x":[{"y":{"z":"', stuffing=b"")
@example(between=b'"}}],"us\\u0061ge":{"prompt_tokens":1},"x":[{"y":{"z":"', stuffing=b"")
@example(between=b"\\", stuffing=b"")
@example(between=b"\xff", stuffing=b"")
@example(between=b"\xed\xa0\x80", stuffing=b"")
def test_whatever_stands_between_a_known_head_and_tail_comes_out_as_parse_has_it(shape, between, stuffing):
    head, tail = HEADS_AND_TAILS[shape]
    learning = make("prefilter-tail", CTX)
    knowing = taught(head, tail)
    for event in (head + between + tail, head + stuffing + between + tail, head + between, between + tail):
        assert same_as_parse(knowing, event)
        assert same_as_parse(learning, event)


@pytest.mark.parametrize("shape", HEADS_AND_TAILS)
def test_no_few_fragments_between_fool_it(shape):
    head, tail = HEADS_AND_TAILS[shape]
    policy = taught(head, tail)
    for parts in itertools.product(FRAGMENTS[:24], repeat=3):
        assert same_as_parse(policy, head + "".join(parts).encode() + tail)


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_tail_that_overlaps_the_head_is_no_chunk_of_the_shape(cut):
    head, tail = HEADS_AND_TAILS["chat"]
    assert same_as_parse(taught(head, tail), head[:-cut] + tail)
    assert same_as_parse(taught(head, tail), head + tail[cut:])


texts = st.text(max_size=30) | st.sampled_from(["usage", '"usage"', "\n", "\u00e9", '{"usage": {}}', "\\", "data: x"])


@given(
    texts=st.lists(texts, min_size=1, max_size=12),
    shape=st.fixed_dictionaries(
        {
            "dialect": st.sampled_from(["trtllm", "openai"]),
            "usage": st.sampled_from(["absent", "null", "final", "continuous"]),
            "usage_key": st.sampled_from(["plain", "escaped"]),
            "finish": st.sampled_from(["last", "own"]),
            "chunk_bytes": st.sampled_from([0, 700]),
            "newline": st.sampled_from(["lf", "crlf", "cr"]),
            "extras": st.sampled_from(["none", "nested", "sse"]),
        }
    ),
    endpoint=st.sampled_from(["chat", "completions"]),
    gen=st.builds(lambda prompt, cached: Usage(prompt + cached, cached), st.integers(0, 10**6), st.integers(0, 200)),
    shown=st.integers(0, 2**14 - 1),
)
def test_streams_of_every_shape_come_out_as_parse_has_them(texts, shape, endpoint, gen, shown):
    """``shown`` says which of the stream's events the policy is shown, as a switch would have it."""
    writer = StreamWriter(
        ChunkShape.from_settings(GenSettings(**shape)),
        endpoint=endpoint, id="chatcmpl-1", created=1, model="sim", usage=gen, include_usage=True, texts=texts,
    )  # fmt: skip
    events = [writer.role_event(), *(writer.content_event(n, 1, n + 1 == len(texts)) for n in range(len(texts)))]
    events += writer.closing_events(len(texts))
    policy = make("prefilter-tail", CTX)
    for at, event in enumerate(events):
        if event is not None and not shown >> at & 1:
            assert same_as_parse(policy, event)


def chunks(count: int = 40, **shape):
    writer = StreamWriter(
        ChunkShape.from_settings(GenSettings(**shape)),
        endpoint="chat", id="chatcmpl-1", created=1, model="sim", usage=GEN, include_usage=True,
    )  # fmt: skip
    return [writer.content_event(n, 1, last=False) for n in range(10, 10 + count)]


@pytest.mark.parametrize(
    "shape",
    [
        {"usage": "absent"},
        {"usage": "null"},
        {"usage": "null", "dialect": "openai", "newline": "crlf"},
        {"usage": "final", "extras": "nested"},
        {"usage": "null", "chunk_bytes": 4096},
    ],
    ids=str,
)
def test_after_one_decoded_chunk_no_other_is_decoded(shape):
    counters = PolicyCounters()
    policy = make("prefilter-tail", CTX, counters)
    assert all(policy(event) is event for event in chunks(**shape))
    assert counters.parsed == 1


def test_usage_on_each_chunk_is_spliced_and_nothing_else_changes():
    counters = PolicyCounters()
    policy = make("prefilter-tail", CTX, counters)
    events = chunks(usage="continuous")
    outs = [policy(event) for event in events]

    assert counters.parsed == 2  # by orjson and, as there was a usage, by json
    assert outs == [event.replace(b'"cached_tokens":100', b'"cached_tokens":25') for event in events]
    assert policy(outs[-1]) is outs[-1]


@pytest.mark.parametrize(
    "usage",
    [
        b'{"prompt_tokens": 9,"completion_tokens": 7,"total_tokens":9,"prompt_tokens_details": {"cached_tokens": 9}}',
        b'{"total_tokens":9,"prompt_tokens_details":{"cached_tokens":9,"a":0},"prompt_tokens":9,"completion_tokens":7}',
        b'{"prompt_tokens":9,"completion_tokens":7,"total_tokens":16,"x":{"cached_tokens":9}}',
        b'{"x":{"completion_tokens":3},"completion_tokens":7,"prompt_tokens":9,"prompt_tokens_details":{}}',
        b'{"prompt_tokens":9,"completion_tokens":7.0,"total_tokens":16,"prompt_tokens_details":{"cached_tokens":9}}',
        b'{"prompt_tokens":9,"completion_tokens":-7,"total_tokens":2,"prompt_tokens_details":{"cached_tokens":9}}',
        b'{"x":{"completion_tokens":7},"prompt_tokens":9,"total_tokens":9,"prompt_tokens_details":{"cached_tokens":9}}',
        b'{"completion_tokens":7}',
        b"{}",
    ],
)
def test_a_usage_on_each_chunk_of_any_form_comes_out_as_parse_has_it(usage):
    head = b'data: {"choices":[{"delta":{"content":"'
    policy = make("prefilter-tail", CTX)
    for text, completion in ((b"a", b"7"), (rb"\n\u00e9", b"8"), (b"x" * 30, b"12"), (b"\xff", b"9"), (b"b", b"07")):
        own = usage.replace(b"7", completion)
        assert same_as_parse(policy, head + text + b'"}}],"usage":' + own + b"}\n\n")


def test_a_count_that_is_there_twice_is_not_taken_for_the_other():
    policy = make("prefilter-tail", CTX)
    event = (
        b'data: {"text":"a","usage":{"prompt_tokens":9,"completion_tokens":%d,"total_tokens":9,'
        b'"prompt_tokens_details":{"cached_tokens":9},"x":{"completion_tokens":%d}}}\n\n'
    )
    assert all(same_as_parse(policy, event % counts) for counts in ((7, 7), (7, 8), (8, 7)))


def test_a_stream_that_keeps_changing_shape_is_learned_a_bounded_number_of_times():
    counters = PolicyCounters()
    policy = make("prefilter-tail", CTX, counters)
    for n in range(10 * MAX_LEARNINGS):
        event = b'data: {"id":%d,"text":"ab","n":%d}\n\n' % (n, n)
        assert policy(event) is event
    assert counters.parsed == MAX_LEARNINGS


def test_two_choices_in_turn_are_both_known():
    counters = PolicyCounters()
    policy = make("prefilter-tail", CTX, counters)
    for n in range(40):
        policy(b'data: {"choices":[{"index":%d,"delta":{"content":"%d"}}]}\n\n' % (n % 2, n))
    assert counters.parsed == 2


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (b'data: {"a":"usage"}\n\n', False),
        (b'data: {"a":"u"}\n\n', True),
        (b'data: {"a":{"usage":null},"usage": null}\n\n', True),
        (b'data: {"usage":null,"usage":{}}\n\n', False),
        (rb'data: {"us\u0061ge":{}}', False),
        (rb'data: {"\u0075sage":{}}', False),
        (rb'data: {"a":"\u00e9\n"}', True),
        ('data: {"usage":{}}'.encode("utf-16-le"), False),
    ],
)
def test_the_search_says_no_usage_only_when_there_is_none(event, expected):
    assert holds_no_usage(event) is expected


def test_utf_16_that_json_takes_is_rewritten_as_by_parse():
    event = b"data: " + '{"usage":{"prompt_tokens":1}}'.encode("utf-16-le") + b"\n\n"
    assert make("prefilter-tail", CTX)(event) == make("parse", CTX)(event) != event
