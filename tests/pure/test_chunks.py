"""What a gen server streams: exact bytes of each shape, and whole streams that hold a client's invariants."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.core.chunks import ChunkShape, StreamWriter, full_answer
from sim.core.settings import GenSettings, from_mapping
from sim.core.sse import SseDecoder, data_of, is_done
from sim.core.usage import Usage

GEN_USAGE = Usage(prompt_tokens=100, cached_tokens=100)
NEWLINES = {"lf": b"\n", "crlf": b"\r\n", "cr": b"\r"}
OBJECTS = {"chat": "chat.completion.chunk", "completions": "text_completion"}


def writer(endpoint="chat", *, include_usage=True, texts=None, continuous=False, model="sim", **shape):
    return StreamWriter(
        ChunkShape.from_settings(from_mapping(GenSettings, shape, "gen")),
        endpoint=endpoint,
        id="chatcmpl-7",
        created=1700000000,
        model=model,
        usage=GEN_USAGE,
        include_usage=include_usage,
        texts=texts,
        continuous=continuous,
    )


def events_of(stream, tokens, per_chunk=1):
    """The stream's events, as a server would ask for them."""
    events = [] if stream.role_event() is None else [stream.role_event()]
    for first in range(0, tokens, per_chunk):
        count = min(per_chunk, tokens - first)
        events.append(stream.content_event(first, count, first + count == tokens))
    return events + stream.closing_events(tokens)


# --- exact bytes ---

CHAT = b'data: {"id":"chatcmpl-7","object":"chat.completion.chunk","created":1700000000,"model":"sim",'
TEXT = b'data: {"id":"chatcmpl-7","object":"text_completion","created":1700000000,"model":"sim",'
USAGE_0 = (
    b'{"prompt_tokens":100,"total_tokens":100,"completion_tokens":0,"prompt_tokens_details":{"cached_tokens":100}}'
)
USAGE_1 = (
    b'{"prompt_tokens":100,"total_tokens":101,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":100}}'
)
USAGE_2 = (
    b'{"prompt_tokens":100,"total_tokens":102,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":100}}'
)

TWO_TOKEN_STREAMS = {
    "trtllm chat": (
        {"endpoint": "chat"},
        [
            CHAT + b'"choices":[{"index":0,"delta":{"role":"assistant"}}]} ',
            CHAT + b'"choices":[{"index":0,"delta":{"content":" 0"}}]}',
            CHAT + b'"choices":[{"index":0,"delta":{"content":" 1"},"finish_reason":"length"}]}',
            CHAT + b'"choices":[],"usage":' + USAGE_2 + b"}",
            b"data: [DONE]",
        ],
    ),
    "trtllm chat, usage not asked for": (
        {"endpoint": "chat", "include_usage": False},
        [
            CHAT + b'"choices":[{"index":0,"delta":{"role":"assistant"}}]} ',
            CHAT + b'"choices":[{"index":0,"delta":{"content":" 0"}}]}',
            CHAT + b'"choices":[{"index":0,"delta":{"content":" 1"},"finish_reason":"length"}]}',
            b"data: [DONE]",
        ],
    ),
    "trtllm completions": (
        {"endpoint": "completions"},
        [
            TEXT + b'"choices":[{"index":0,"text":" 0"}]}',
            TEXT + b'"choices":[{"index":0,"text":" 1","finish_reason":"length"}]}',
            TEXT + b'"choices":[],"usage":' + USAGE_2 + b"}",
            b"data: [DONE]",
        ],
    ),
    "trtllm chat, continuous": (
        {"endpoint": "chat", "usage": "continuous"},
        [
            CHAT + b'"choices":[{"index":0,"delta":{"role":"assistant"}}],"usage":' + USAGE_0 + b"} ",
            CHAT + b'"choices":[{"index":0,"delta":{"content":" 0"}}],"usage":' + USAGE_1 + b"}",
            CHAT
            + b'"choices":[{"index":0,"delta":{"content":" 1"},"finish_reason":"length"}],"usage":'
            + USAGE_2
            + b"}",
            CHAT + b'"choices":[],"usage":' + USAGE_2 + b"}",
            b"data: [DONE]",
        ],
    ),
    "trtllm completions, own finish, usage absent": (
        {"endpoint": "completions", "finish": "own", "usage": "absent"},
        [
            TEXT + b'"choices":[{"index":0,"text":" 0"}]}',
            TEXT + b'"choices":[{"index":0,"text":" 1"}]}',
            TEXT + b'"choices":[{"index":0,"text":"","finish_reason":"length"}]}',
            b"data: [DONE]",
        ],
    ),
    "openai chat, own finish, usage null": (
        {"endpoint": "chat", "dialect": "openai", "finish": "own", "usage": "null"},
        [
            CHAT
            + b'"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}],"usage":null}',
            CHAT + b'"choices":[{"index":0,"delta":{"content":" 0"},"finish_reason":null}],"usage":null}',
            CHAT + b'"choices":[{"index":0,"delta":{"content":" 1"},"finish_reason":null}],"usage":null}',
            CHAT + b'"choices":[{"index":0,"delta":{},"finish_reason":"length"}],"usage":null}',
            CHAT + b'"choices":[],"usage":' + USAGE_2 + b"}",
            b"data: [DONE]",
        ],
    ),
    "openai completions": (
        {"endpoint": "completions", "dialect": "openai"},
        [
            TEXT + b'"choices":[{"index":0,"text":" 0","finish_reason":null}]}',
            TEXT + b'"choices":[{"index":0,"text":" 1","finish_reason":"length"}]}',
            TEXT + b'"choices":[],"usage":' + USAGE_2 + b"}",
            b"data: [DONE]",
        ],
    ),
    "escaped key": (
        {"endpoint": "completions", "usage_key": "escaped", "usage": "null"},
        [
            TEXT + b'"choices":[{"index":0,"text":" 0"}],"us\\u0061ge":null}',
            TEXT + b'"choices":[{"index":0,"text":" 1","finish_reason":"length"}],"us\\u0061ge":null}',
            TEXT + b'"choices":[],"us\\u0061ge":' + USAGE_2 + b"}",
            b"data: [DONE]",
        ],
    ),
}


@pytest.mark.parametrize("newline", NEWLINES)
@pytest.mark.parametrize(("how", "lines"), TWO_TOKEN_STREAMS.values(), ids=TWO_TOKEN_STREAMS)
def test_a_stream_of_two_tokens_is_exactly_these_bytes(how, lines, newline):
    end = NEWLINES[newline] * 2
    assert events_of(writer(**how, newline=newline), 2) == [line + end for line in lines]


def test_several_tokens_share_one_event():
    assert events_of(writer(), 5, per_chunk=3)[1:3] == [
        CHAT + b'"choices":[{"index":0,"delta":{"content":" 0 1 2"}}]}\n\n',
        CHAT + b'"choices":[{"index":0,"delta":{"content":" 3 4"},"finish_reason":"length"}]}\n\n',
    ]


@pytest.mark.parametrize("first", [0, 9, 99_999, 9_999_999])
def test_a_token_says_its_number(first):
    expected = CHAT + b'"choices":[{"index":0,"delta":{"content":" %d"}}]}\n\n' % first
    assert writer().content_event(first, 1, False) == expected


def test_a_token_that_is_exactly_usage_is_on_the_wire_as_such():
    event = writer("completions", texts=["usage"]).content_event(0, 1, False)
    assert event == TEXT + b'"choices":[{"index":0,"text":"usage"}]}\n\n'


def test_what_a_scripted_text_holds_is_escaped():
    event = writer("completions", texts=['say "usage"\n\n', "\u00e9\u2028\U0001f600"]).content_event(0, 2, False)
    text = b'say \\"usage\\"\\n\\n\\u00e9\\u2028\\ud83d\\ude00'
    assert event == TEXT + b'"choices":[{"index":0,"text":"' + text + b'"}]}\n\n'


def test_model_and_id_are_escaped():
    event = writer(model='a"b\\\n\u00e9').content_event(0, 1, False)
    assert b'"model":"a\\"b\\\\\\n\\u00e9",' in event
    assert json.loads(data_of(event))["model"] == 'a"b\\\n\u00e9'


# --- every combination, as a client reads it ---

COMBINATIONS = list(
    itertools.product(
        ("trtllm", "openai"), ("absent", "null", "final", "continuous"), ("last", "own"), OBJECTS, NEWLINES
    )
)
every_shape = pytest.mark.parametrize(("dialect", "usage", "finish", "endpoint", "newline"), COMBINATIONS, ids="-".join)


def usage_of(completion_tokens):
    return Usage(GEN_USAGE.prompt_tokens, GEN_USAGE.cached_tokens, completion_tokens).to_json()


def text_of(chunk, endpoint):
    choice = chunk["choices"][0]
    return choice["delta"].get("content", "") if endpoint == "chat" else choice["text"]


def has_null(value):
    if isinstance(value, dict):
        return any(map(has_null, value.values()))
    return any(map(has_null, value)) if isinstance(value, list) else value is None


def check_stream(stream, shape, tokens, *, include_usage, texts):
    """Assert what any client may rely on; ``stream`` is bytes, ``texts`` the text of each content event."""
    decoder = SseDecoder(1 << 24)
    events = decoder.feed(stream)
    assert decoder.finish() == b""
    assert [is_done(event) for event in events] == [False] * (len(events) - 1) + [True]
    assert all(event.endswith(NEWLINES[shape["newline"]] * 2) for event in events)
    chunks = [json.loads(data_of(event)) for event in events[:-1]]
    assert {(chunk["id"], chunk["created"], chunk["model"], chunk["object"]) for chunk in chunks} == {
        ("chatcmpl-7", 1700000000, "sim", OBJECTS[shape["endpoint"]])
    }
    if include_usage and shape["usage"] != "absent":
        last = chunks.pop()
        assert (last["choices"], last["usage"]) == ([], usage_of(tokens))
    if shape["usage"] == "null":
        assert [chunk["usage"] for chunk in chunks] == [None] * len(chunks)
    elif shape["usage"] in ("absent", "final"):
        assert not any("usage" in chunk for chunk in chunks)
    if shape["dialect"] == "trtllm" and shape["usage"] != "null":
        assert not any(map(has_null, chunks))
    finishes = [chunk["choices"][0].get("finish_reason") for chunk in chunks]
    assert finishes == [None] * (len(chunks) - 1) + ["length"]
    if shape["dialect"] == "openai":
        assert all("finish_reason" in chunk["choices"][0] for chunk in chunks)
    if shape["endpoint"] == "chat":
        role = chunks.pop(0)["choices"][0]["delta"]
        assert role == {"role": "assistant", **({"content": ""} if shape["dialect"] == "openai" else {})}
        assert data_of(events[0]).endswith(b"} ") == (shape["dialect"] == "trtllm")
        assert not any("role" in chunk["choices"][0]["delta"] for chunk in chunks)
    if shape["finish"] == "own":
        own = chunks.pop()
        assert text_of(own, shape["endpoint"]) == ""
        if shape["usage"] == "continuous":
            assert own["usage"] == usage_of(tokens)
    assert [text_of(chunk, shape["endpoint"]) for chunk in chunks] == texts
    return chunks


@every_shape
@pytest.mark.parametrize("include_usage", [True, False], ids=["usage asked", "not asked"])
@pytest.mark.parametrize("usage_key", ["plain", "escaped"])
@pytest.mark.parametrize("chunk_bytes", [0, 400])
def test_a_stream_of_any_shape_holds_a_clients_invariants(
    dialect, usage, finish, endpoint, newline, include_usage, usage_key, chunk_bytes
):
    shape = {"dialect": dialect, "usage": usage, "finish": finish, "endpoint": endpoint, "newline": newline}
    stream = writer(**shape, include_usage=include_usage, usage_key=usage_key, chunk_bytes=chunk_bytes)
    events = events_of(stream, 12, per_chunk=5)
    chunks = check_stream(
        b"".join(events), shape, 12, include_usage=include_usage, texts=[" 0 1 2 3 4", " 5 6 7 8 9", " 10 11"]
    )
    if usage == "continuous":
        assert [chunk["usage"] for chunk in chunks] == [usage_of(5), usage_of(10), usage_of(12)]
    sizes = {len(event) for event in events if b"obfuscation" in event}
    assert sizes == ({chunk_bytes} if chunk_bytes else set())
    assert b"".join(events).count(b'"usage"') == 0 or usage_key == "plain"


@every_shape
def test_scripted_texts_come_through_any_shape(dialect, usage, finish, endpoint, newline):
    shape = {"dialect": dialect, "usage": usage, "finish": finish, "endpoint": endpoint, "newline": newline}
    texts = ["", "usage", '"usage"', "data: [DONE]", "\r\n\r\n", '{"usage": {"prompt_tokens": 1}}', "\ud83d", "\x00\\"]
    stream = b"".join(events_of(writer(**shape, texts=texts), len(texts)))
    check_stream(stream, shape, len(texts), include_usage=True, texts=texts)


@pytest.mark.parametrize("usage", ["null", "final", "continuous"])
def test_a_client_may_ask_for_continuous_usage_where_the_server_reports_usage_at_all(usage):
    chunks = [json.loads(data_of(event)) for event in events_of(writer(usage=usage, continuous=True), 2)[:-1]]
    assert [chunk["usage"] for chunk in chunks] == [usage_of(0), usage_of(1), usage_of(2), usage_of(2)]


def test_a_server_that_reports_no_usage_reports_none_when_asked_for_it():
    stream = b"".join(events_of(writer(usage="absent", continuous=True, include_usage=True), 2))
    assert b"usage" not in stream


@given(st.lists(st.text(max_size=8), min_size=1, max_size=12), st.integers(1, 5), st.data())
def test_any_texts_in_any_chunks_read_back(texts, per_chunk, data):
    choices = (("trtllm", "openai"), ("absent", "null", "final", "continuous"), ("last", "own"), OBJECTS, NEWLINES)
    names = ("dialect", "usage", "finish", "endpoint", "newline")
    shape = {name: data.draw(st.sampled_from(sorted(values))) for name, values in zip(names, choices, strict=True)}
    stream = b"".join(events_of(writer(**shape, texts=texts), len(texts), per_chunk))
    joined = ["".join(texts[first : first + per_chunk]) for first in range(0, len(texts), per_chunk)]
    check_stream(stream, shape, len(texts), include_usage=True, texts=joined)


# --- pad bytes ---


@every_shape
def test_each_padded_content_event_has_exactly_the_size_asked_for(dialect, usage, finish, endpoint, newline):
    shape = {"dialect": dialect, "usage": usage, "finish": finish, "endpoint": endpoint, "newline": newline}
    stream = writer(**shape, chunk_bytes=350)
    for first, count, last in [(0, 1, False), (9, 1, True), (99_999, 1, False), (9_999_999, 1, True), (98, 7, True)]:
        event = stream.content_event(first, count, last)
        assert len(event) == 350
        padding = json.loads(data_of(event))["obfuscation"]
        assert padding == "x" * len(padding)
        assert padding


BARE = CHAT + b'"obfuscation":"","choices":[{"index":0,"delta":{"content":" 0"}}]}\n\n'


@pytest.mark.parametrize("chunk_bytes", [len(BARE), len(BARE) + 1, 250, 4096, 1 << 20])
def test_any_size_from_the_bare_event_up_is_met(chunk_bytes):
    assert len(writer(chunk_bytes=chunk_bytes).content_event(0, 1, False)) == chunk_bytes


@pytest.mark.parametrize("chunk_bytes", [1, 100, len(BARE) - 1])
def test_an_event_that_is_larger_than_the_size_asked_for_is_whole_and_unpadded(chunk_bytes):
    assert writer(chunk_bytes=chunk_bytes).content_event(0, 1, False) == BARE


def test_a_text_larger_than_the_size_asked_for_is_whole():
    event = writer("completions", texts=["long " * 100], chunk_bytes=200).content_event(0, 1, False)
    assert json.loads(data_of(event))["choices"][0]["text"] == "long " * 100


def test_only_content_events_are_padded():
    events = events_of(writer(chunk_bytes=250, finish="own"), 3)
    assert [len(event) == 250 for event in events] == [False, True, True, True, False, False, False]


# --- extras: what relays must leave alone ---


def test_sse_extras_are_a_comment_and_lines_around_each_content_events_data():
    events = events_of(writer("completions", extras="sse", newline="crlf"), 2)

    assert events == [
        b": ping\r\n\r\nevent: message\r\n" + TEXT + b'"choices":[{"index":0,"text":" 0"}]}\r\nid: 0\r\n\r\n',
        b"event: message\r\n"
        + TEXT
        + b'"choices":[{"index":0,"text":" 1","finish_reason":"length"}]}\r\nid: 1\r\n\r\n',
        TEXT + b'"choices":[],"usage":' + USAGE_2 + b"}\r\n\r\n",
        b"data: [DONE]\r\n\r\n",
    ]


def test_nested_extras_are_a_usage_object_inside_each_choice():
    nested = b',"usage":{"prompt_tokens":1}}]}\n\n'
    events = events_of(writer(extras="nested", finish="own"), 2)

    assert events == [
        CHAT + b'"choices":[{"index":0,"delta":{"role":"assistant"}' + nested.replace(b"\n\n", b" \n\n"),
        CHAT + b'"choices":[{"index":0,"delta":{"content":" 0"}' + nested,
        CHAT + b'"choices":[{"index":0,"delta":{"content":" 1"}' + nested,
        CHAT + b'"choices":[{"index":0,"delta":{},"finish_reason":"length"' + nested,
        CHAT + b'"choices":[],"usage":' + USAGE_2 + b"}\n\n",
        b"data: [DONE]\n\n",
    ]


# --- settings to shape ---


def test_the_shape_is_the_settings_part_by_the_same_names():
    settings = GenSettings(
        dialect="openai",
        usage="null",
        usage_key="escaped",
        finish="own",
        chunk_bytes=9,
        newline="cr",
        tokens_per_chunk=3,
        extras="sse",
        stamp_sent=True,
    )
    assert ChunkShape.from_settings(settings) == ChunkShape(
        dialect="openai",
        usage="null",
        usage_key="escaped",
        finish="own",
        chunk_bytes=9,
        newline="cr",
        tokens_per_chunk=3,
        extras="sse",
        stamp_sent=True,
    )


# --- times on events ---


STAMPED = CHAT + b'"sent_ns":1234567890123,"choices":[{"index":0,"delta":{"content":" 7"}}]}\n\n'


def test_a_stamp_stands_right_after_the_model():
    assert writer(stamp_sent=True).content_event(7, 1, False, 1234567890123) == STAMPED


def test_only_content_events_are_stamped():
    stream = writer(stamp_sent=True, finish="own")
    events = [stream.role_event(), stream.content_event(0, 1, True, 99), *stream.closing_events(1)]

    assert [b'"sent_ns":99,' in event for event in events] == [False, True, False, False, False]
    assert sum(event.count(b"sent_ns") for event in events) == 1


@every_shape
@pytest.mark.parametrize("sent_ns", [5, 999_999_999_999, 1234567890123456789])
def test_a_stamped_event_is_padded_to_the_size_asked_for(dialect, usage, finish, endpoint, newline, sent_ns):
    shape = {"dialect": dialect, "usage": usage, "finish": finish, "endpoint": endpoint, "newline": newline}
    event = writer(**shape, chunk_bytes=380, stamp_sent=True).content_event(12, 1, False, sent_ns)

    assert len(event) == 380
    assert json.loads(data_of(event))["sent_ns"] == sent_ns
    assert b'"model":"sim","sent_ns":%d,"obfuscation":"x' % sent_ns in event


# --- templates ---


def from_template(template, token, sent_ns):
    stamp = b"%d" % sent_ns if template.middle else b""
    return template.before + stamp + template.middle + template.texts[token - template.base] + template.after


@pytest.mark.parametrize("stamp_sent", [False, True], ids=["plain", "stamped"])
@pytest.mark.parametrize("chunk_bytes", [0, 300])
@pytest.mark.parametrize("shape", [{}, {"endpoint": "completions", "dialect": "openai", "usage": "null"}], ids=str)
@pytest.mark.parametrize(
    ("first", "until"),
    [(0, 10), (4, 10), (10, 100), (99, 100), (100, 1000), (999, 1000), (1000, 2000), (9_500, 10_000), (10_000, 11_000)],
)
def test_a_template_gives_the_events_of_all_its_tokens(first, until, shape, chunk_bytes, stamp_sent):
    stream = writer(**shape, chunk_bytes=chunk_bytes, stamp_sent=stamp_sent)
    template = stream.template(first, 1_000_000)

    assert template.until == until
    for token in {first, (first + until) // 2, until - 1}:
        event = stream.content_event(token, 1, False, 9_999_999)
        assert from_template(template, token, 9_999_999) == event
        assert template.event_bytes == len(event)


@pytest.mark.parametrize("shape", [{"usage": "continuous"}, {"extras": "sse"}, {"texts": ["a", "b"]}], ids=str)
def test_events_that_differ_in_more_than_their_text_have_no_template(shape):
    assert writer(**shape).template(1) is None


# --- non-streamed ---


@pytest.mark.parametrize(
    ("endpoint", "kind", "choice"),
    [
        ("chat", "chat.completion", {"index": 0, "message": {"role": "assistant", "content": "hi"}}),
        ("completions", "text_completion", {"index": 0, "text": "hi"}),
    ],
    ids=["chat", "completions"],
)
def test_a_whole_answer_has_only_the_fields_that_tensorrt_llm_allows(endpoint, kind, choice):
    answer = full_answer(endpoint, id="a", created=5, model="m", text="hi", usage=Usage(10, 3, 2), finish_reason="stop")
    assert answer == {
        "id": "a",
        "object": kind,
        "created": 5,
        "model": "m",
        "choices": [{**choice, "finish_reason": "stop"}],
        "usage": {
            "prompt_tokens": 10,
            "total_tokens": 12,
            "completion_tokens": 2,
            "prompt_tokens_details": {"cached_tokens": 3},
        },
    }
