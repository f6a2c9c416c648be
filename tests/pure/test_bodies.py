import json

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sim.core.bodies import BAD_JSON, JsonObject, as_received, read_body
from sim.core.handoff import Handoff, ctx_request, gen_request, read_ctx_answer
from sim.core.requests import RequestError, read_client_request
from sim.core.tokens import prompt_tokens_of
from sim.core.usage import Usage

BIG = 2**63 - 1
COUNTS = Usage(100, 25, 1)
QUICKLY = settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False, width=32)
    | texts
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=6
)
token_ids = st.lists(st.integers(-9, 200_000), max_size=6)
contents = texts | st.none() | st.lists(values, max_size=2)
messages = st.lists(st.fixed_dictionaries({"role": texts, "content": contents}, optional={"name": texts}), max_size=3)
KNOWN = {
    "messages": messages | values,
    "prompt": texts | token_ids | st.lists(texts, max_size=2) | values,
    "prompt_token_ids": token_ids | values,
    "stream": st.booleans() | values,
    "stream_options": st.fixed_dictionaries({}, optional={"include_usage": st.booleans()}) | values,
    "disaggregated_params": values,
    "model": texts | values,
    "max_tokens": st.integers(0, 20) | values,
    "n": st.integers(0, 2) | values,
    "temperature": scalars,
}
known = st.fixed_dictionaries({}, optional=KNOWN)
bodies = st.builds(lambda named, other: {**other, **named}, known, st.dictionaries(texts, values, max_size=2))


def written(body, escaped=True, indent=None):
    return json.dumps(body, ensure_ascii=escaped, indent=indent).encode()


def cut(body, **style):
    found = read_body(written(body, **style))
    assert isinstance(found, JsonObject)
    return found


def outcome(body, endpoint, **options):
    try:
        return read_client_request(body, endpoint, **options)
    except RequestError as error:
        return str(error), error.param


@QUICKLY
@given(bodies, st.booleans(), st.sampled_from([None, 1]))
def test_a_cut_body_decodes_to_what_a_decoded_one_is(body, escaped, indent):
    raw = written(body, escaped, indent)
    assert dict(read_body(raw)) == msgspec.json.decode(raw)


@QUICKLY
@given(bodies, st.sampled_from(["chat", "completions"]), st.booleans(), st.sampled_from([None, 1]))
def test_a_cut_body_is_read_or_refused_as_a_decoded_one(body, endpoint, escaped, indent):
    raw = written(body, escaped, indent)
    assert outcome(read_body(raw), endpoint) == outcome(msgspec.json.decode(raw), endpoint)


@QUICKLY
@given(bodies, st.integers(0, BIG), st.booleans(), st.sampled_from([None, 1]))
def test_ctx_is_sent_what_a_decoded_body_gives_with_every_other_member_untouched(body, number, escaped, indent):
    raw = written(body, escaped, indent)
    sent = msgspec.json.encode(ctx_request(read_body(raw), number))
    assert json.loads(sent) == json.loads(msgspec.json.encode(ctx_request(msgspec.json.decode(raw), number)))
    assert_untouched(raw, sent, {"stream", "stream_options", "disaggregated_params"})


@QUICKLY
@given(bodies, st.none() | token_ids, st.sampled_from(["chat", "completions"]), st.booleans(), st.booleans())
def test_gen_is_sent_what_a_decoded_body_gives_with_every_other_member_untouched(body, ids, endpoint, era_c, escaped):
    raw = written(body, escaped)
    params = {"ctx_request_id": BIG, "disagg_request_id": 2**53 + 1, "first_gen_tokens": [7]}
    plain = Handoff(params, COUNTS, ids, needs_gen=True)
    handed = Handoff(params, COUNTS, None if ids is None else msgspec.Raw(written(ids)), needs_gen=True)
    sent = msgspec.json.encode(gen_request(read_body(raw), handed, endpoint, with_ctx_usage=era_c))
    before = gen_request(msgspec.json.decode(raw), plain, endpoint, with_ctx_usage=era_c)
    assert json.loads(sent) == json.loads(msgspec.json.encode(before))
    changed = {"disaggregated_params"}
    if ids is not None:
        changed.add("prompt" if endpoint == "completions" else "prompt_token_ids")
    assert_untouched(raw, sent, changed)


def assert_untouched(raw, sent, changed):
    names = json.loads(sent, object_pairs_hook=lambda pairs: [name for name, _ in pairs])
    assert len(names) == len(set(names)), "a key came twice"
    before, after = (msgspec.json.decode(one, type=dict[str, msgspec.Raw]) for one in (raw, sent))
    for name in before.keys() - changed:
        assert bytes(after[name]) == bytes(before[name])


@QUICKLY
@given(st.dictionaries(texts, values, max_size=2), token_ids | values)
def test_a_cut_ctx_answer_gives_the_hand_off_of_a_decoded_one(other, ids):
    params = {"ctx_request_id": BIG, "disagg_request_id": 1, "first_gen_tokens": [7]}
    choice = {"finish_reason": "length", "disaggregated_params": params}
    raw = written({**other, "choices": [choice], "usage": COUNTS.to_json(), "prompt_token_ids": ids})
    handoff, expected = read_ctx_answer(read_body(raw)), read_ctx_answer(msgspec.json.decode(raw))
    assert (handoff.params, handoff.usage, handoff.needs_gen) == (expected.params, expected.usage, expected.needs_gen)
    assert (expected.prompt_token_ids is None) == (handoff.prompt_token_ids is None)
    if expected.prompt_token_ids is not None:
        assert json.loads(bytes(handoff.prompt_token_ids)) == json.loads(msgspec.json.encode(expected.prompt_token_ids))


@pytest.mark.parametrize(
    ("raw", "sent"),
    [
        (b'{"stream":true,"a":1,"stream":true}', b'"a":1'),
        (b'{"str\\u0065am":true,"temperature":1.0}', b'"temperature":1.0'),
        (b'{"seed": 123456789012345678901234567890 }', b'"seed":123456789012345678901234567890'),
        (b'{"a" : [1e2 , "\\u00e9\\/"]}', b'"a":[1e2 , "\\u00e9\\/"]'),
        ('{"ключ":"é"}'.encode(), '"ключ":"é"'.encode()),
    ],
)
def test_a_member_keeps_its_bytes_and_a_key_comes_once(raw, sent):
    body = msgspec.json.encode(ctx_request(read_body(raw), 1))
    assert sent in body
    assert body.count(b'"stream":') == 1


@pytest.mark.parametrize(
    "raw",
    [b"", b"{", b'{"a":}', b'{"a":NaN}', b'{"a":1,}', b'{"a":1}x', b'{"a":"\xff"}', b'{"a":"\\ud800"}', b'{"a":1e999}',
     b'{"messages":"\xed\xa0\x80"}', b'{"messages":"\\udc00\\ud800"}', b'{"a":01}', b'{"\xff":1}', b"[" * 100_000,
     b'{"messages":' + b"[" * 100_000],
)  # fmt: skip
def test_what_is_not_json_is_refused_as_before(raw):
    for decode in (read_body, msgspec.json.decode):
        with pytest.raises(BAD_JSON):
            decode(raw)


@pytest.mark.parametrize("raw", [b"[1]", b'"a"', b"1", b"null", b" true "])
def test_json_that_is_no_object_is_decoded(raw):
    assert read_body(raw) == msgspec.json.decode(raw)


@pytest.mark.parametrize(
    ("value", "count"),
    [("[1]", 1), ("[ 1 , -2 ,\n3 ]", 3), ("[0,0]", 2), ("[]", 0), ("[ ]", 0), ("[1.0]", 0),
     ("[1e2,3]", 0), ("[true]", 0), ('["1"]', 0), ("[[1]]", 0), ("[1,[2]]", 0), ("[[1,2],[3]]", 0), ("[[],1]", 0),
     ("1", 0), ("-1", 0), ("{}", 0), ('{"a":1}', 0), ("null", 0), ('""', 0), ("[null,1]", 0),
     ("[123456789012345678901234567890]", 1)],
)  # fmt: skip
def test_token_ids_are_counted_without_decoding_and_only_whole_numbers_are(value, count):
    assert read_body(b'{"prompt":%b}' % value.encode()).id_count("prompt") == count


def test_a_long_prompt_is_not_decoded_to_be_found_right():
    for body, endpoint in (
        ({"prompt": list(range(40_000))}, "completions"),
        ({"prompt": "x" * 200_000}, "completions"),
        ({"messages": [{"role": "user", "content": "é" * 200_000}]}, "chat"),
    ):
        found = cut(body)
        read_client_request(found, endpoint, count_prompt=False)
        assert found._decoded == {}


@pytest.mark.parametrize(
    ("body", "tokens"),
    [
        ({"prompt": list(range(40_000))}, 40_000),
        ({"prompt": [1, 2], "prompt_token_ids": [1, 2, 3]}, 3),
        ({"messages": [{"role": "user", "content": "12345"}], "prompt": [1, 2, 3]}, 2),
        ({"messages": [{"role": "user", "content": "é" * 8}]}, 4),
        ({"prompt": "12345678"}, 2),
        ({"prompt": [1, 2, 3], "prompt_token_ids": None}, 3),
    ],
)
def test_a_prompt_is_as_long_cut_as_decoded(body, tokens):
    assert prompt_tokens_of(cut(body)) == prompt_tokens_of(body) == tokens


def test_a_relay_may_leave_the_prompt_uncounted():
    body = {"prompt": "12345678"}
    assert read_client_request(cut(body), "completions", count_prompt=False).prompt_tokens == 0


def test_members_are_looked_up_like_those_of_a_dict():
    body = cut({"a": [1], "prompt": "x", "b": None})
    assert (len(body), list(body), body["a"], body["prompt"]) == (3, ["a", "prompt", "b"], [1], "x")
    assert (body.get("b", 1), body.get("c", 1), "c" in body, "prompt" in body) == (None, 1, False, True)
    assert body["prompt"] is body["prompt"]
    with pytest.raises(KeyError):
        body["c"]
    assert as_received(body) is body.members
    assert as_received({"a": 1}) == {"a": 1}
