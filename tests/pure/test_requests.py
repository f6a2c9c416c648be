"""Client requests: what is read of a body, and that each wrong type is refused by the name of its field."""

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.core.requests import (
    DEFAULT_MAX_TOKENS,
    MAX_TOKENS_LIMIT,
    ClientRequest,
    RequestError,
    Script,
    openai_error,
    read_client_request,
)
from sim.core.settings import GenSettings

CHAT = {"messages": [{"role": "user", "content": "x" * 40}]}
COMPLETION = {"prompt": "x" * 40}
STREAM = {**COMPLETION, "stream": True}


def read(**changes):
    return read_client_request({**COMPLETION, **changes}, "completions")


# --- what is read ---


@pytest.mark.parametrize(("endpoint", "body"), [("chat", CHAT), ("completions", COMPLETION)])
def test_a_bare_body_gets_the_defaults(endpoint, body):
    assert read_client_request(body, endpoint) == ClientRequest(
        endpoint=endpoint,
        stream=False,
        include_usage=False,
        continuous_usage=False,
        max_tokens=DEFAULT_MAX_TOKENS,
        model="sim",
        prompt_tokens=10,
        script=None,
    )


def test_a_full_body_is_read_whole():
    body = {
        **CHAT,
        "model": "m",
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        "max_tokens": 9,
        "n": 1,
        "temperature": 0.5,
        "something": {"unknown": []},
    }
    assert read_client_request(body, "chat") == ClientRequest("chat", True, True, True, 9, "m", 10, None)


@pytest.mark.parametrize(
    ("dialect", "options", "include", "continuous"),
    [
        ("trtllm", None, False, False),
        ("trtllm", {}, True, False),
        ("trtllm", {"include_usage": False}, False, False),
        ("trtllm", {"include_usage": True}, True, False),
        ("trtllm", {"include_usage": False, "continuous_usage_stats": True}, False, True),
        ("openai", None, False, False),
        ("openai", {}, False, False),
        ("openai", {"include_usage": True}, True, False),
    ],
    ids=repr,
)
def test_stream_options_ask_for_usage_as_the_dialect_has_it(dialect, options, include, continuous):
    request = read_client_request({**STREAM, "stream_options": options}, "completions", dialect)
    assert (request.include_usage, request.continuous_usage) == (include, continuous)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"max_tokens": 1}, 1),
        ({"max_tokens": MAX_TOKENS_LIMIT}, MAX_TOKENS_LIMIT),
        ({"max_completion_tokens": 5}, 5),
        ({"max_completion_tokens": 5, "max_tokens": 9}, 5),
        ({"max_completion_tokens": None, "max_tokens": 9}, 9),
        ({"max_tokens": None}, DEFAULT_MAX_TOKENS),
    ],
    ids=repr,
)
def test_the_replys_length_is_max_completion_tokens_or_max_tokens(fields, expected):
    assert read(**fields).max_tokens == expected


@pytest.mark.parametrize(
    ("prompt", "tokens"), [("", 1), ("x" * 9, 3), (["x" * 9], 3), ([5], 1), ([1, 2, 3], 3)], ids=repr
)
def test_a_completions_prompt_is_a_string_one_string_or_token_ids(prompt, tokens):
    assert read(prompt=prompt).prompt_tokens == tokens


@pytest.mark.parametrize("content", ["text", [], [{"type": "text", "text": "a"}], None], ids=repr)
def test_a_chat_messages_content_is_text_parts_or_null(content):
    body = {"messages": [{"role": "assistant", "content": content, "tool_calls": []}]}
    assert read_client_request(body, "chat").prompt_tokens == 1


@pytest.mark.parametrize("key", ["stream", "stream_options", "max_tokens", "max_completion_tokens", "n", "disagg_sim"])
def test_null_is_as_if_left_out(key):
    assert read(**{key: None}) == read()


# --- what is refused ---

WRONG_TYPES = {
    "stream": ["true", 1, 0, [], {}],
    "model": [7, None, [], {}, True],
    "n": [2, 0, -1, "1", 1.0, True, [1]],
    "max_tokens": ["9", 0, -1, 1.0, True, [], {}, MAX_TOKENS_LIMIT + 1],
    "max_completion_tokens": ["9", 0, -1, 1.5, False, MAX_TOKENS_LIMIT + 1],
    "prompt": [None, 7, True, {}, [], ["a", "b"], ["a", 1], [1, "a"], [1, 2.0], [True], [[1, 2]], [None]],
    "disagg_sim": [7, "x", [], True],
}


@pytest.mark.parametrize(
    ("key", "value"), [pytest.param(k, v, id=f"{k}={v!r}") for k, values in WRONG_TYPES.items() for v in values]
)
def test_a_field_of_a_wrong_type_is_refused_by_its_name(key, value):
    with pytest.raises(RequestError) as caught:
        read(**{key: value})
    assert caught.value.param == key
    assert str(caught.value).startswith(key)


@pytest.mark.parametrize("body", [None, [], "x", 7, True, [COMPLETION]], ids=repr)
@pytest.mark.parametrize("endpoint", ["chat", "completions"])
def test_a_body_that_is_no_object_is_refused(body, endpoint):
    with pytest.raises(RequestError, match=r"^the body must be a JSON object$") as caught:
        read_client_request(body, endpoint)
    assert caught.value.param is None


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        (..., "messages must be a non-empty array"),
        (None, "messages must be a non-empty array"),
        ([], "messages must be a non-empty array"),
        ("hi", "messages must be a non-empty array"),
        ({"role": "user"}, "messages must be a non-empty array"),
        (["hi"], "messages[0] must be an object with a role"),
        ([{"content": "hi"}], "messages[0] must be an object with a role"),
        ([{"role": 7, "content": "hi"}], "messages[0] must be an object with a role"),
        ([CHAT["messages"][0], None], "messages[1] must be an object with a role"),
        ([{"role": "user", "content": 7}], "messages[0].content must be a string or an array"),
        ([{"role": "user", "content": {"text": "a"}}], "messages[0].content must be a string or an array"),
        ([{"role": "user", "content": True}], "messages[0].content must be a string or an array"),
    ],
    ids=repr,
)
def test_messages_of_a_wrong_shape_are_refused_by_their_index(messages, message):
    with pytest.raises(RequestError) as caught:
        read_client_request({} if messages is ... else {"messages": messages}, "chat")
    assert (str(caught.value), caught.value.param) == (message, "messages")


@pytest.mark.parametrize("options", ["x", 7, [], True], ids=repr)
def test_stream_options_that_are_no_object_are_refused(options):
    with pytest.raises(RequestError, match=r"^stream_options must be an object$") as caught:
        read(stream=True, stream_options=options)
    assert caught.value.param == "stream_options"


@pytest.mark.parametrize("key", ["include_usage", "continuous_usage_stats"])
@pytest.mark.parametrize("value", ["true", 1, [], {}], ids=repr)
def test_a_stream_option_of_a_wrong_type_is_refused_by_its_name(key, value):
    with pytest.raises(RequestError, match=f"^{key} must be a boolean$") as caught:
        read(stream=True, stream_options={key: value})
    assert caught.value.param == key


@pytest.mark.parametrize("stream", [{}, {"stream": False}], ids=["unsaid", "false"])
@pytest.mark.parametrize("options", [{}, {"include_usage": True}], ids=repr)
def test_stream_options_without_a_stream_are_refused(stream, options):
    with pytest.raises(RequestError, match=r"^stream_options is only allowed when stream is true$") as caught:
        read(**stream, stream_options=options)
    assert caught.value.param == "stream_options"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
body_keys = st.sampled_from([*WRONG_TYPES, "messages", "stream_options", "prompt_token_ids"])


@given(st.dictionaries(body_keys, json_values), st.sampled_from(["chat", "completions"]))
def test_any_body_is_read_or_refused_and_nothing_else(fields, endpoint):
    body = {**(CHAT if endpoint == "chat" else COMPLETION), **fields}
    try:
        request = read_client_request(body, endpoint)
    except RequestError as refused:
        error = refused
    else:
        assert 1 <= request.max_tokens <= MAX_TOKENS_LIMIT
        assert request.prompt_tokens >= 1
        return
    assert error.param in fields
    assert json.loads(json.dumps(openai_error(str(error), param=error.param)))["error"]["message"] == str(error)


# --- a request's own answer ---


def test_a_script_gives_texts_token_counts_and_overrides():
    request = read(
        disagg_sim={
            "texts": ["a", "usage", ""],
            "cached_tokens": 3,
            "prompt_tokens": 99,
            "usage": "null",
            "split_at": 5,
        }
    )
    assert request.script == Script(("a", "usage", ""), 3, 99, {"usage": "null", "split_at": 5})
    assert request.prompt_tokens == 10
    assert request.max_tokens == 3


def test_a_script_may_say_that_nothing_is_cached():
    assert read(disagg_sim={"cached_tokens": 0}).script == Script(None, 0, None, {})


def test_an_empty_script_changes_nothing():
    request = read(disagg_sim={}, max_tokens=9)
    assert request.script == Script(None, None, None, {})
    assert request.max_tokens == 9
    assert request.script.apply(GenSettings(slots=3)) == GenSettings(slots=3)


def test_a_script_overrides_the_settings_it_names_and_no_other():
    settings = GenSettings(slots=3, tok_s=20, usage="final", newline="lf", chunk_bytes=250)
    script = read(disagg_sim={"usage": "null", "newline": "cr", "tokens_per_chunk": "4"}).script
    assert script.apply(settings) == dataclasses.replace(settings, usage="null", newline="cr", tokens_per_chunk=4)


def test_a_scripts_own_interval_takes_the_place_of_either_way_to_say_it():
    script = read(disagg_sim={"itl_ms": 2}).script
    assert script.paces
    assert script.apply(GenSettings(tok_s=20)) == GenSettings(itl_ms=2)
    assert script.apply(GenSettings(itl_ms=50)) == GenSettings(itl_ms=2)
    assert not read(disagg_sim={"usage": "null"}).script.paces


def test_a_script_may_set_a_setting_back_to_its_default():
    script = read(disagg_sim={"usage": "final", "chunk_bytes": 0}).script
    assert script.apply(GenSettings(usage="null", chunk_bytes=250)) == GenSettings()


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ({"texts": "abc"}, "disagg_sim.texts must be a non-empty array of strings"),
        ({"texts": []}, "disagg_sim.texts must be a non-empty array of strings"),
        ({"texts": ["a", 1]}, "disagg_sim.texts must be a non-empty array of strings"),
        ({"cached_tokens": -1}, "disagg_sim.cached_tokens must be a whole number, 0 or more"),
        ({"cached_tokens": "3"}, "disagg_sim.cached_tokens must be a whole number, 0 or more"),
        ({"cached_tokens": True}, "disagg_sim.cached_tokens must be a whole number, 0 or more"),
        ({"prompt_tokens": 0}, "disagg_sim.prompt_tokens must be a whole number, 1 or more"),
        ({"prompt_tokens": "3"}, "disagg_sim.prompt_tokens must be a whole number, 1 or more"),
        ({"prompt_tokens": 1.0}, "disagg_sim.prompt_tokens must be a whole number, 1 or more"),
        ({"prompt_tokens": True}, "disagg_sim.prompt_tokens must be a whole number, 1 or more"),
        ({"slots": 1}, "disagg_sim.slots: unknown; known: texts, cached_tokens, prompt_tokens, usage, "),
        ({"tok_s": 1}, "disagg_sim.tok_s: unknown; known: "),
        ({"usage": "maybe"}, "disagg_sim.usage: 'maybe' is not one of absent, null, final, continuous"),
        ({"usage": None}, "disagg_sim.usage: None is not a string"),
        ({"newline": ["lf"]}, "disagg_sim.newline: ['lf'] is not a string"),
        ({"tokens_per_chunk": 0}, "disagg_sim.tokens_per_chunk: 0 is out of range; allowed: 1 to 1024"),
        ({"split_at": 1.5}, "disagg_sim.split_at: 1.5 is not a whole number"),
        ({"glue_done": 1}, "disagg_sim.glue_done: 1 is not a boolean (true or false)"),
    ],
    ids=repr,
)
def test_a_script_that_cannot_be_played_is_refused(script, message):
    with pytest.raises(RequestError) as caught:
        read(disagg_sim=script)
    assert str(caught.value).startswith(message)
    assert caught.value.param == "disagg_sim"


# --- the error body ---


def test_an_error_has_the_four_keys_that_clients_read():
    assert openai_error("no", param="n") == {
        "error": {"message": "no", "type": "invalid_request_error", "param": "n", "code": None}
    }
    assert openai_error("late", "server_error", code=504)["error"] == {
        "message": "late",
        "type": "server_error",
        "param": None,
        "code": 504,
    }
