"""Usage arithmetic, and the rewrite of one event: what changes, what must not change by a byte."""

import json

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.core.sse import data_of
from sim.core.usage import Usage, rewrite_body, rewrite_event, rewrite_usage

CTX = Usage(prompt_tokens=100, cached_tokens=25)
# Gen's lie: every prompt token cached, and one token more (it counts ctx's first token as prompt).
GEN = {
    "prompt_tokens": 101,
    "total_tokens": 108,
    "completion_tokens": 7,
    "prompt_tokens_details": {"cached_tokens": 101},
}
TRUE = {
    "prompt_tokens": 100,
    "total_tokens": 107,
    "completion_tokens": 7,
    "prompt_tokens_details": {"cached_tokens": 25},
}
GEN_BYTES = (
    b'{"prompt_tokens":101,"total_tokens":108,"completion_tokens":7,"prompt_tokens_details":{"cached_tokens":101}}'
)
TRUE_BYTES = (
    b'{"prompt_tokens":100,"total_tokens":107,"completion_tokens":7,"prompt_tokens_details":{"cached_tokens":25}}'
)
DETAILS = {"cached_tokens": 25}

counts = st.integers(0, 2**63 - 1)


@st.composite
def usages(draw):
    prompt = draw(counts)
    return Usage(prompt, draw(st.integers(0, prompt)), draw(counts))


# --- the value ---


def test_total_is_prompt_and_completion():
    assert Usage(100, 25, 7).total_tokens == 107
    assert Usage(100, 25).total_tokens == 100


def test_json_is_the_openai_object_in_its_order():
    assert json.dumps(Usage(100, 25, 7).to_json(), separators=(",", ":")).encode() == TRUE_BYTES


@given(usages())
def test_json_reads_back_equal(usage):
    assert Usage.from_json(json.loads(json.dumps(usage.to_json()))) == usage


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"prompt_tokens": 9}, Usage(9, 0, 0)),
        ({"prompt_tokens": 9, "completion_tokens": None}, Usage(9, 0, 0)),
        ({"prompt_tokens": 9, "prompt_tokens_details": None}, Usage(9, 0, 0)),
        ({"prompt_tokens": 9, "prompt_tokens_details": {}}, Usage(9, 0, 0)),
        ({"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": None}}, Usage(9, 0, 0)),
        ({"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 9, "audio_tokens": 1}}, Usage(9, 9, 0)),
        ({"prompt_tokens": 0, "completion_tokens": 3, "total_tokens": "not read"}, Usage(0, 0, 3)),
        ({"prompt_tokens": 2**63 - 1}, Usage(2**63 - 1, 0, 0)),
    ],
    ids=repr,
)
def test_what_a_usage_object_may_leave_out_is_zero(value, expected):
    assert Usage.from_json(value) == expected


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "usage is NoneType, not an object"),
        ([], "usage is list, not an object"),
        (7, "usage is int, not an object"),
        ({}, "usage.prompt_tokens is missing"),
        ({"prompt_tokens": None}, "usage.prompt_tokens is missing"),
        ({"prompt_tokens": True}, "usage.prompt_tokens is True, not a whole number"),
        ({"prompt_tokens": 9.0}, "usage.prompt_tokens is 9.0, not a whole number"),
        ({"prompt_tokens": "9"}, "usage.prompt_tokens is '9', not a whole number"),
        ({"prompt_tokens": 9, "completion_tokens": False}, "usage.completion_tokens is False, not a whole number"),
        ({"prompt_tokens": 9, "prompt_tokens_details": []}, "usage.prompt_tokens_details is not an object"),
        (
            {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": "3"}},
            "usage.prompt_tokens_details.cached_tokens is '3', not a whole number",
        ),
        ({"prompt_tokens": -1}, "negative token count in Usage("),
        ({"prompt_tokens": 9, "completion_tokens": -1}, "negative token count in Usage("),
        ({"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": -1}}, "negative token count in Usage("),
        ({"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 10}}, "more cached than prompt tokens in"),
    ],
    ids=repr,
)
def test_a_usage_object_that_cannot_be_used_is_refused_with_the_reason(value, message):
    with pytest.raises(ValueError) as caught:
        Usage.from_json(value)
    assert str(caught.value).startswith(message)


# --- the arithmetic ---


@pytest.mark.parametrize(
    ("gen", "expected"),
    [
        pytest.param(GEN, TRUE, id="gens lie"),
        pytest.param(TRUE, TRUE, id="true already"),
        pytest.param(
            {"completion_tokens": 7, "prompt_tokens": 1},
            {"completion_tokens": 7, "prompt_tokens": 100, "total_tokens": 107, "prompt_tokens_details": DETAILS},
            id="total and details missing",
        ),
        pytest.param(
            {}, {"prompt_tokens": 100, "total_tokens": 100, "prompt_tokens_details": DETAILS}, id="empty object"
        ),
        pytest.param(
            {"completion_tokens": None},
            {
                "completion_tokens": None,
                "prompt_tokens": 100,
                "total_tokens": 100,
                "prompt_tokens_details": DETAILS,
            },
            id="completion null",
        ),
        pytest.param(
            {"completion_tokens": True},
            {
                "completion_tokens": True,
                "prompt_tokens": 100,
                "total_tokens": 100,
                "prompt_tokens_details": DETAILS,
            },
            id="a boolean is no count",
        ),
        pytest.param(
            {**GEN, "completion_tokens": "7"},
            {**TRUE, "completion_tokens": "7", "total_tokens": 100},
            id="a string is no count",
        ),
        pytest.param({**GEN, "prompt_tokens_details": None}, TRUE, id="details null"),
        pytest.param({**GEN, "prompt_tokens_details": [1]}, TRUE, id="details not an object"),
        pytest.param(
            {**GEN, "prompt_tokens_details": {"audio_tokens": 3, "cached_tokens": 101, "x": {"usage": GEN}}},
            {**TRUE, "prompt_tokens_details": {"audio_tokens": 3, "cached_tokens": 25, "x": {"usage": GEN}}},
            id="unknown detail keys kept",
        ),
        pytest.param(
            {**GEN, "reasoning_tokens": 4, "completion_tokens_details": {"reasoning_tokens": 4}, "usage": GEN},
            {**TRUE, "reasoning_tokens": 4, "completion_tokens_details": {"reasoning_tokens": 4}, "usage": GEN},
            id="unknown keys kept",
        ),
    ],
)
def test_prompt_total_and_cached_are_ctxs_and_all_else_is_gens(gen, expected):
    before = json.dumps(gen)
    assert rewrite_usage(gen, CTX) == expected
    assert json.dumps(gen) == before


def test_keys_keep_their_order():
    assert list(rewrite_usage({"total_tokens": 1, "x": 0, "completion_tokens": 7}, CTX)) == [
        "total_tokens", "x", "completion_tokens", "prompt_tokens", "prompt_tokens_details",
    ]  # fmt: skip


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
usage_keys = st.sampled_from(
    ["prompt_tokens", "total_tokens", "completion_tokens", "prompt_tokens_details", "cached_tokens", "reasoning_tokens"]
)
gen_usages = st.dictionaries(usage_keys | st.text(max_size=5), counts | json_values, max_size=6)


@given(gen_usages, usages())
def test_the_arithmetic_is_idempotent_and_keeps_what_is_not_its_own(gen, ctx):
    once = rewrite_usage(gen, ctx)
    assert rewrite_usage(once, ctx) == once
    assert once["prompt_tokens"] == ctx.prompt_tokens
    assert once["prompt_tokens_details"]["cached_tokens"] == ctx.cached_tokens
    for key in gen.keys() - {"prompt_tokens", "total_tokens", "prompt_tokens_details"}:
        assert once[key] == gen[key]


@given(usages(), usages())
def test_a_real_usage_comes_out_with_ctxs_prompt_and_gens_completion(gen, ctx):
    expected = Usage(ctx.prompt_tokens, ctx.cached_tokens, gen.completion_tokens)
    assert rewrite_usage(gen.to_json(), ctx) == expected.to_json()


# --- a whole answer ---


def test_an_answers_usage_is_rewritten_and_the_answer_given_is_left_alone():
    body = {"id": "a", "choices": [{"usage": GEN}], "usage": GEN}
    assert rewrite_body(body, CTX) == {"id": "a", "choices": [{"usage": GEN}], "usage": TRUE}
    assert body["usage"] is GEN


@pytest.mark.parametrize(
    "body",
    [{}, {"usage": None}, {"usage": TRUE}, {"usage": 7}, {"usage": [GEN]}, {"choices": [{"usage": GEN}]}],
    ids=["none", "null", "true already", "a number", "an array", "nested"],
)
def test_an_answer_with_nothing_to_change_is_the_same_object(body):
    assert rewrite_body(body, CTX) is body


# --- one event: what changes ---


def test_an_event_is_rewritten_compactly_with_everything_else_in_its_order():
    event = b'data: {"id": "a", "choices": [], "usage": ' + GEN_BYTES + b', "z": [1.5, true, null]}\n\n'
    expected = b'data: {"id":"a","choices":[],"usage":' + TRUE_BYTES + b',"z":[1.5,true,null]}\n\n'
    assert rewrite_event(event, CTX) == expected


LIES, TRUTH = b'{"usage":' + GEN_BYTES + b"}", b'{"usage":' + TRUE_BYTES + b"}"


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        pytest.param(b"data: %s\r\n\r\n", b"data: %s\r\n\r\n", id="crlf"),
        pytest.param(b"data: %s\r\r", b"data: %s\r\r", id="cr"),
        pytest.param(b"data: %s\n\r\n", b"data: %s\n\r\n", id="mixed endings"),
        pytest.param(b"data:%s\n\n", b"data: %s\n\n", id="no space"),
        pytest.param(b"data: %s \n\n", b"data: %s\n\n", id="trailing space"),
        pytest.param(b"\ndata: %s\r\n\r\n", b"\ndata: %s\r\n\r\n", id="stray line feed in front"),
        pytest.param(b"\xef\xbb\xbfdata: %s\n\n", b"\xef\xbb\xbfdata: %s\n\n", id="byte-order mark"),
        pytest.param(b"data: %s", b"data: %s", id="cut before its line ending"),
        pytest.param(
            b": ping\r\nevent: e\r\nid: 1\r\ndata: %s\r\nretry: 5\r\n\r\n",
            b": ping\r\nevent: e\r\nid: 1\r\ndata: %s\r\nretry: 5\r\n\r\n",
            id="other lines kept",
        ),
    ],
)
def test_a_rewrite_keeps_other_lines_and_line_endings(event, expected):
    assert rewrite_event(event % LIES, CTX) == expected % TRUTH


@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b"\r"], ids=["lf", "crlf", "cr"])
def test_data_over_several_lines_becomes_one_line(ending):
    event = ending.join([b'data: {"usage":', b"id: 1", b"data: " + GEN_BYTES, b"data:}", b"", b""])
    assert rewrite_event(event, CTX) == ending.join([b"id: 1", b"data: " + TRUTH, b"", b""])


def test_data_lines_of_other_endings_than_the_blank_line_still_make_one_event():
    assert rewrite_event(b'data: {"usage":\rdata: ' + GEN_BYTES + b"}\n\n", CTX) == b"data: " + TRUTH + b"\n\n"


def test_an_escaped_key_is_a_key():
    assert rewrite_event(b'data: {"us\\u0061ge":' + GEN_BYTES + b"}\n\n", CTX) == b"data: " + TRUTH + b"\n\n"


def test_usage_on_a_content_chunk_is_rewritten_and_its_text_says_the_same():
    text = 'caf\u00e9 \u2028 \U0001f600 "usage": null </script>'
    chunk = {"choices": [{"delta": {"content": text}}], "usage": GEN}
    for ascii_only in (True, False):
        event = b"data: " + json.dumps(chunk, ensure_ascii=ascii_only).encode() + b"\n\n"
        assert json.loads(data_of(rewrite_event(event, CTX))) == {**chunk, "usage": TRUE}


def test_lone_surrogates_beside_a_usage_stay_as_they_are():
    event = b'data: {"x":"\\ud83d \\udc00","usage":' + GEN_BYTES + b"}\n\n"
    assert rewrite_event(event, CTX) == b'data: {"x":"\\ud83d \\udc00","usage":' + TRUE_BYTES + b"}\n\n"


@pytest.mark.parametrize("number", [2**63 - 1, 2**64, -(2**70), 1.5, 1e-9], ids=repr)
def test_numbers_beside_a_usage_keep_their_value(number):
    event = b'data: {"x":%s,"usage":' % repr(number).encode() + GEN_BYTES + b"}\n\n"
    assert json.loads(data_of(rewrite_event(event, CTX)))["x"] == number


def test_of_two_usage_keys_the_last_counts_as_for_any_json_reader():
    event = b'data: {"usage":null,"usage":' + GEN_BYTES + b"}\n\n"
    assert rewrite_event(event, CTX) == b"data: " + TRUTH + b"\n\n"


# --- one event: what must not change ---

UNCHANGED = {
    "no usage": b'data: {"choices":[{"delta":{"content":" 7"}}]}\n\n',
    "usage null": b'data: {"choices":[],"usage":null}\n\n',
    "usage null with spaces": b'data: {"usage" : null }\n\n',
    "usage a string": b'data: {"usage":"usage"}\n\n',
    "usage a number": b'data: {"usage":7}\n\n',
    "usage an array": b'data: {"usage":[{"prompt_tokens":1}]}\n\n',
    "true already": b"data: " + TRUTH + b"\n\n",
    "true already, loosely written": b'data: { "usage" : ' + TRUE_BYTES.replace(b",", b" , ") + b"}\n\n",
    "token usage": b'data: {"choices":[{"delta":{"content":"usage"}}]}\n\n',
    "completion token usage": b'data: {"choices":[{"text":"usage"}]}\n\n',
    "text with a usage object": b'data: {"choices":[{"text":"{\\"usage\\": {\\"prompt_tokens\\": 1}}"}]}\n\n',
    "text with usage:": b'data: {"choices":[{"delta":{"content":"usage: 5"}}]}\n\n',
    "tool arguments": b'data: {"tool_calls":[{"function":{"arguments":"{\\"usage\\":{}}"}}]}\n\n',
    "tool arguments escaped twice": b'data: {"a":"{\\"b\\":\\"{\\\\\\"usage\\\\\\":{}}\\"}"}\n\n',
    "nested in a choice": b'data: {"choices":[{"index":0,"usage":' + GEN_BYTES + b"}]}\n\n",
    "nested in a delta": b'data: {"choices":[{"delta":{"x":{"usage":' + GEN_BYTES + b"}}}]}\n\n",
    "nested beside a null": b'data: {"x":{"usage":' + GEN_BYTES + b'},"usage":null}\n\n',
    "another case": b'data: {"Usage":' + GEN_BYTES + b"}\n\n",
    "error event": b'data: {"error":{"message":"usage","type":"server_error"}}\n\n',
    "done": b"data: [DONE]\n\n",
    "text done": b'data: {"choices":[{"delta":{"content":"data: [DONE]"}}]}\n\n',
    "comment": b': {"usage":{"prompt_tokens":1}}\n\n',
    "event line only": b"event: usage\n\n",
    "empty data": b"data:\n\n",
    "not json": b'data: {"usage":{"prompt_tokens":1}\n\n',
    "not json, python's quotes": b"data: {'usage': {'prompt_tokens': 1}}\n\n",
    "not an object": b'data: [{"usage":{}}]\n\n',
    "a bare string": b'data: "usage"\n\n',
    "a bare null": b"data: null\n\n",
    "two objects": b'data: {"usage":{}}{"usage":{}}\n\n',
    "json cut by a line": b'data: {"x":"a\ndata: b","usage":{}}\n\n',
    "not utf-8": b'data: {"x":"\xff","usage":{}}\n\n',
    "cut utf-8": b'data: {"x":"\xf0\x9f\x98","usage":{}}\n\n',
    "lone surrogates": b'data: {"x":"\\ud83d"}\n\n',
    "blank lines": b"\n\n",
    "nothing": b"",
    "a number of too many digits": b'data: {"x":' + b"9" * 5000 + b',"usage":{}}\n\n',
    "nested too deep": b'data: {"x":' + b"[" * 200_000 + b"]" * 200_000 + b',"usage":{}}\n\n',
    "nested too deep in the usage": b'data: {"usage":{"x":' + b'{"x":' * 200_000 + b"1" + b"}" * 200_002 + b"\n\n",
}


@pytest.mark.parametrize("event", UNCHANGED.values(), ids=UNCHANGED)
def test_an_event_with_nothing_to_change_comes_back_as_the_same_object(event):
    assert rewrite_event(event, CTX) is event


@pytest.mark.parametrize("event", UNCHANGED.values(), ids=UNCHANGED)
@pytest.mark.parametrize("ending", [b"\r\n", b"\r"], ids=["crlf", "cr"])
def test_so_it_does_with_other_line_endings(event, ending):
    event = event.replace(b"\n", ending)
    assert rewrite_event(event, CTX) is event


def test_a_count_that_is_equal_as_a_json_number_is_no_change():
    event = (
        b'data: {"usage":{"prompt_tokens":100.0,"total_tokens":100,"prompt_tokens_details":{"cached_tokens":25}}}\n\n'
    )
    assert rewrite_event(event, CTX) is event


@pytest.mark.parametrize("loads", [json.loads, orjson.loads, msgspec.json.decode], ids=["json", "orjson", "msgspec"])
@pytest.mark.parametrize("depth", [*range(900, 1030, 10), 5_000, 200_000])
def test_no_depth_of_nesting_raises_whatever_the_decoder_takes(loads, depth):
    event = b'data: {"x":' + b"[" * depth + b"]" * depth + b',"usage":' + GEN_BYTES + b"}\n\n"
    rewritten = event.replace(GEN_BYTES, TRUE_BYTES)
    assert rewrite_event(event, CTX, loads) in (event, rewritten)


@pytest.mark.parametrize("number", [b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-1e999"])
def test_an_event_that_could_only_be_written_as_invalid_json_passes_unchanged(number):
    event = b'data: {"x":[' + number + b'],"usage":' + GEN_BYTES + b"}\n\n"
    assert rewrite_event(event, CTX) is event


def test_a_completion_count_that_is_a_float_stays_as_it_is():
    event = b'data: {"usage":{"prompt_tokens":1,"completion_tokens":2.0}}\n\n'
    assert b'"completion_tokens":2.0,' in rewrite_event(event, CTX)


# --- properties of the event's rewrite ---


@given(st.dictionaries(st.text(max_size=5), json_values, max_size=4), gen_usages, usages())
def test_a_rewritten_event_differs_in_its_usage_alone_and_only_once(body, gen, ctx):
    body = {**body, "usage": gen}
    event = b"data: " + json.dumps(body).encode() + b"\n\n"
    once = rewrite_event(event, ctx)
    assert json.loads(data_of(once)) == {**body, "usage": rewrite_usage(gen, ctx)}
    assert rewrite_event(once, ctx) is once


@given(st.binary(max_size=60))
def test_any_bytes_at_all_pass_without_an_error(soup):
    assert isinstance(rewrite_event(soup, CTX), bytes)
    assert isinstance(rewrite_event(b"data: " + soup, CTX), bytes)
    assert isinstance(rewrite_event(b'data: {"usage":{' + soup + b"}}\n\n", CTX), bytes)


def test_the_decoder_given_is_the_one_used_and_sees_the_payload_alone():
    seen = []

    def loads(data):
        seen.append(data)
        return json.loads(data)

    rewrite_event(b"id: 1\ndata:  {}\n\n", CTX, loads)
    rewrite_event(b": comment\n\n", CTX, loads)
    rewrite_event(b"data: [DONE]\n\n", CTX, loads)
    assert seen == [b" {}"]
