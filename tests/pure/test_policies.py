"""Every policy against one table and against `parse`: JSON-equal events, and the same object where nothing changes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.core.sse import data_of
from sim.core.usage import Usage
from sim.orchestrator.counters import PolicyCounters
from sim.orchestrator.policies import ALIASES, BUILTIN, canonical, make

CTX = Usage(prompt_tokens=100, cached_tokens=25, completion_tokens=1)
REWRITING = [name for name in BUILTIN if name != "verbatim"]
EXACT = ["parse", "parse-orjson", "parse-msgspec", "prefilter-tail"]
FILTERING = ["prefilter", "prefilter-find", "prefilter-nullaware"]

GEN_USAGE = (
    b'{"prompt_tokens":100,"total_tokens":107,"completion_tokens":7,"prompt_tokens_details":{"cached_tokens":100}}'
)
RIGHT_USAGE = (
    b'{"prompt_tokens":100,"total_tokens":107,"completion_tokens":7,"prompt_tokens_details":{"cached_tokens":25}}'
)

UNCHANGED = {
    "plain": b'data: {"choices":[{"index":0,"delta":{"content":" 1"}}]}\n\n',
    "token_is_usage": b'data: {"choices":[{"index":0,"delta":{"content":"usage"}}]}\n\n',
    "text_holds_quoted_word": rb'data: {"choices":[{"delta":{"content":"{\"usage\": {\"a\": 1}}"}}]}' + b"\n\n",
    "tool_arguments": rb'data: {"choices":[{"delta":{"tool_calls":[{"function":{"arguments":"{\"usage\":{}}"}}]}}]}'
    b"\n\n",
    "nested_key": b'data: {"choices":[{"delta":{"x":{"usage":{"prompt_tokens":9}}}}]}\n\n',
    "nested_in_choice": b'data: {"choices":[{"usage":{"prompt_tokens":9}}],"usage":null}\n\n',
    "null": b'data: {"choices":[{"delta":{"content":"a"}}],"usage":null}\n\n',
    "null_spaced": b'data: {"choices": [], "usage": null}\n\n',
    "null_wider": b'data: {"choices": [], "usage"  :  null}\n\n',
    "usage_is_text": b'data: {"choices":[],"usage":"none"}\n\n',
    "usage_is_list": b'data: {"choices":[],"usage":[{"prompt_tokens":9}]}\n\n',
    "usage_is_number": b'data: {"choices":[],"usage":3}\n\n',
    "last_duplicate_is_null": b'data: {"usage":{"prompt_tokens":9},"usage":null}\n\n',
    "already_right": b'data: {"choices":[],"usage":' + RIGHT_USAGE + b"}\n\n",
    "done": b"data: [DONE]\n\n",
    "comment": b': "usage": {}\n\n',
    "no_data": b'event: "usage"\n\n',
    "empty_data": b"data:\n\n",
    "not_json": b'data: {"usage":{"prompt_tokens":1}\n\n',
    "not_an_object": b'data: ["usage",{"usage":{}}]\n\n',
    "bad_utf8": b'data: {"a":"\xff","usage":{"prompt_tokens":1}}\n\n',
    "control_character": b'data: {"a":"\x01","usage":{"prompt_tokens":1}}\n\n',
    "crlf": b'data: {"choices":[{"delta":{"content":"usage"}}]}\r\n\r\n',
    "cr": b'data: {"choices":[{"delta":{"content":"usage"}}]}\r\r',
    "done_in_text": b'data: {"choices":[{"delta":{"content":"data: [DONE] usage"}}]}\n\n',
    "nan": b'data: {"p":NaN,"usage":' + GEN_USAGE + b"}\n\n",
    "infinite": b'data: {"p":-Infinity,"usage":' + GEN_USAGE + b"}\n\n",
    "infinite_as_a_float": b'data: {"p":1e999,"usage":' + GEN_USAGE + b"}\n\n",
    "too_deep": b'data: {"usage":' + b"[" * 100_000 + b"\n\n",
}

CHANGED = {
    "final": b'data: {"choices":[],"usage":' + GEN_USAGE + b"}\n\n",
    "trailing_space": b'data: {"choices":[],"usage":' + GEN_USAGE + b"} \n\n",
    "no_space": b'data:{"choices":[],"usage":' + GEN_USAGE + b"}\n\n",
    "continuous": b'data: {"choices":[{"delta":{"content":"usage"}}],"usage":' + GEN_USAGE + b"}\n\n",
    "key_first": b'data: {"usage":' + GEN_USAGE + b',"choices":[{"delta":{"content":"x"}}]}\n\n',
    "null_nested_and_usage": b'data: {"x":{"usage":null},"usage":' + GEN_USAGE + b',"y":{"usage":null}}\n\n',
    "last_duplicate_counts": b'data: {"usage":null,"usage":' + GEN_USAGE + b"}\n\n",
    "spaced": b'data: {"choices": [], "usage" : ' + GEN_USAGE + b"}\n\n",
    "crlf": b'data: {"choices":[],"usage":' + GEN_USAGE + b"}\r\n\r\n",
    "cr": b'data: {"choices":[],"usage":' + GEN_USAGE + b"}\r\r",
    "with_other_lines": b': ping\nid: 7\nevent: chunk\ndata: {"usage":' + GEN_USAGE + b"}\nretry: 5\n\n",
    "multi_line_data": b'data: {"choices":[],\ndata: "usage":\ndata: ' + GEN_USAGE + b"}\n\n",
    "no_details": b'data: {"usage":{"prompt_tokens":1,"completion_tokens":7}}\n\n',
    "unknown_keys": b'data: {"usage":{"prompt_tokens":1,"completion_tokens":7,"reasoning_tokens":3},"z":1}\n\n',
    "big_integer": b'data: {"id":123456789012345678901234567890,"usage":' + GEN_USAGE + b"}\n\n",
    "big_negative_integer": b'data: {"id":-9223372036854775809,"usage":' + GEN_USAGE + b"}\n\n",
    "long_float": b'data: {"p":-0.12345678901234567890123,"q":1e-7,"r":1E5,"usage":' + GEN_USAGE + b"}\n\n",
    "lone_surrogate": rb'data: {"t":"\ud800","usage":' + GEN_USAGE + b"}\n\n",
    "non_ascii": 'data: {"t":"é🙂","usage":'.encode() + GEN_USAGE + b"}\n\n",
}

ESCAPED_KEY = rb'data: {"choices":[],"us\u0061ge":' + GEN_USAGE + b"}\n\n"


@pytest.mark.parametrize("event", UNCHANGED.values(), ids=UNCHANGED)
@pytest.mark.parametrize("name", BUILTIN)
def test_an_event_without_usage_of_its_own_comes_out_as_the_same_object(name, event):
    assert make(name, CTX)(event) is event


@pytest.mark.parametrize("event", CHANGED.values(), ids=CHANGED)
@pytest.mark.parametrize("name", REWRITING)
def test_a_usage_gets_ctx_numbers_and_equals_what_parse_makes_of_it(name, event):
    out = make(name, CTX)(event)
    data = data_of(out)
    assert data is not None
    usage = json.loads(data)["usage"]
    assert usage["prompt_tokens"] == 100
    assert usage["total_tokens"] == 107
    assert usage["completion_tokens"] == 7
    assert usage["prompt_tokens_details"]["cached_tokens"] == 25
    assert out == make("parse", CTX)(event)


@pytest.mark.parametrize("event", CHANGED.values(), ids=CHANGED)
@pytest.mark.parametrize("name", REWRITING)
def test_rewriting_again_changes_nothing(name, event):
    policy = make(name, CTX)
    once = policy(event)
    assert policy(once) is once


@pytest.mark.parametrize("name", REWRITING)
def test_other_lines_and_endings_of_a_rewritten_event_stay(name):
    out = make(name, CTX)(CHANGED["with_other_lines"])
    assert out == b': ping\nid: 7\nevent: chunk\ndata: {"usage":' + RIGHT_USAGE + b"}\nretry: 5\n\n"
    assert make(name, CTX)(CHANGED["crlf"]).endswith(b"}}}\r\n\r\n")
    assert make(name, CTX)(CHANGED["cr"]).endswith(b"}}}\r\r")


@pytest.mark.parametrize("name", REWRITING)
def test_integers_past_64_bits_stay_exact(name):
    out = make(name, CTX)(CHANGED["big_integer"])
    assert b'"id":123456789012345678901234567890,' in out


@pytest.mark.parametrize("name", EXACT)
def test_a_policy_that_parses_or_proves_sees_an_escaped_key(name):
    assert b'"cached_tokens":25' in make(name, CTX)(ESCAPED_KEY)


@pytest.mark.parametrize("name", FILTERING)
def test_a_byte_test_is_blind_to_an_escaped_key(name):
    assert make(name, CTX)(ESCAPED_KEY) is ESCAPED_KEY


def test_verbatim_passes_even_a_wrong_usage():
    assert make("verbatim", CTX)(CHANGED["final"]) is CHANGED["final"]


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        ("parse", {"plain", "token_is_usage", "null", "final"}),
        ("parse-orjson", {"plain", "token_is_usage", "null", "final"}),
        ("parse-msgspec", {"plain", "token_is_usage", "null", "final"}),
        ("prefilter", {"token_is_usage", "null", "final"}),
        ("prefilter-find", {"token_is_usage", "null", "final"}),
        ("prefilter-nullaware", {"token_is_usage", "final"}),
        ("prefilter-tail", {"plain", "token_is_usage", "null", "final"}),
        ("verbatim", set()),
    ],
)
def test_a_policy_counts_the_events_it_decodes(name, parsed):
    events = {key: UNCHANGED[key] for key in ("plain", "token_is_usage", "null", "done")} | {"final": CHANGED["final"]}
    counted = set()
    for key, event in events.items():
        counters = PolicyCounters()
        make(name, CTX, counters)(event)
        if counters.parsed:
            counted.add(key)
            assert counters.parsed == 1
    assert counted == parsed


def test_aliases_name_the_policies_of_the_seed_problem():
    assert {alias: canonical(alias) for alias in ALIASES} == {"filter-off": "parse", "filter-on": "prefilter"}
    assert make("filter-off", CTX)(CHANGED["final"]) == make("parse", CTX)(CHANGED["final"])


def test_an_unknown_name_is_refused_with_the_names_there_are():
    with pytest.raises(ValueError, match=r"'nope' is not a built-in policy; built-in: parse, prefilter, .*filter-on"):
        make("nope", CTX)


numbers = st.integers() | st.floats(allow_nan=True) | st.integers(-(2**200), 2**200)
texts = st.text(max_size=6) | st.sampled_from(["usage", '"usage"', "us\\u0061ge", "\ud800"])
keys = st.sampled_from(["usage", "choices", "prompt_tokens", "completion_tokens", "prompt_tokens_details", "a"])
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=12,
)


@given(body=st.dictionaries(keys, values, max_size=5), ascii_only=st.booleans(), spaced=st.booleans())
def test_all_decoders_agree_on_any_json(body, ascii_only, spaced):
    text = json.dumps(body, ensure_ascii=ascii_only, separators=None if spaced else (",", ":"))
    event = b"data: " + text.encode("utf-8", "surrogatepass") + b"\n\n"
    expected = make("parse", CTX)(event)
    for name in REWRITING:
        assert make(name, CTX)(event) == expected, name


@given(
    data=st.binary(max_size=40),
    around=st.sampled_from([b'{"usage":%b}', b'{"usage":{"a":"%b"}}', b'{"a":%b,"usage":{}}']),
)
def test_all_decoders_agree_on_what_is_hardly_json(data, around):
    event = b"data: " + around.replace(b"%b", data).translate(None, b"\r\n") + b"\n\n"
    expected = make("parse", CTX)(event)
    for name in EXACT:
        assert make(name, CTX)(event) == expected, name
