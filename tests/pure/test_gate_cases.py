"""The equality gate's comparison: what counts as the same stream, and what must not pass for it."""

from __future__ import annotations

import pytest

from loadtest.experiment.gate_cases import (
    CASES,
    Difference,
    Relayed,
    compare_streams,
    cut_events,
    mask_identity,
    outcomes,
    policy_failure,
)
from sim.core.requests import read_client_request
from sim.core.settings import GenSettings
from sim.core.usage import Usage

CTX = Usage(prompt_tokens=40, cached_tokens=10)

ROLE = b'data: {"id":"ID","created":0,"choices":[{"index":0,"delta":{"role":"assistant"}}]} \n\n'
COMMENT = b": ping\n\n"
TOKEN_0 = b'event: message\ndata: {"id":"ID","created":0,"choices":[{"index":0,"delta":{"content":" 0"}}]}\nid: 0\n\n'
TOKEN_1 = b'data: {"id":"ID","created":0,"choices":[{"index":0,"delta":{"content":" 1"}}]}\n\n'
USAGE = (
    b'event: message\r\ndata: {"id":"ID","choices":[],"usage":{"prompt_tokens":40,"total_tokens":42,'
    b'"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":40}}}\r\nid: 2\r\n\r\n'
)
REWRITTEN = USAGE.replace(b'"cached_tokens":40', b'"cached_tokens":10')
DONE = b"data: [DONE]\n\n"
WRITTEN = [ROLE, COMMENT, TOKEN_0, TOKEN_1, USAGE, DONE]


def relayed(*, usage=REWRITTEN):
    return [ROLE, COMMENT, TOKEN_0, TOKEN_1, usage, DONE]


# --- compare_streams ---


@pytest.mark.parametrize(
    "usage",
    [
        REWRITTEN,
        REWRITTEN.replace(b",", b", ").replace(b'":', b'": '),
        REWRITTEN.replace(b"data: ", b"data:"),
        REWRITTEN.replace(b'"choices":[],', b"").replace(b'{"id"', b'{"choices":[],"id"'),
        REWRITTEN.replace(b'"usage"', b'"us\\u0061ge"'),
    ],
    ids=["reference", "spaced", "no space after data:", "keys in another order", "a key spelled with an escape"],
)
def test_a_rewrite_may_spell_its_json_as_it_likes(usage):
    assert compare_streams("c", WRITTEN, relayed(usage=usage), CTX) == (1, None)


@pytest.mark.parametrize(
    ("got", "index", "expected_event", "got_event"),
    [
        ([ROLE, TOKEN_0, TOKEN_1, REWRITTEN, DONE], 1, COMMENT, TOKEN_0),
        ([ROLE, COMMENT, TOKEN_1, TOKEN_0, REWRITTEN, DONE], 2, TOKEN_0, TOKEN_1),
        (
            [ROLE, COMMENT, TOKEN_0, TOKEN_1.replace(b" 1", b" 7"), REWRITTEN, DONE],
            3,
            TOKEN_1,
            TOKEN_1.replace(b" 1", b" 7"),
        ),
        ([ROLE.replace(b" \n", b"\n"), *relayed()[1:]], 0, ROLE, ROLE.replace(b" \n", b"\n")),
        ([*relayed(), DONE], 6, b"", DONE),
        (relayed()[:-1], 5, DONE, b""),
        ([*relayed()[:-1], b"data: [DO"], 5, DONE, b"data: [DO"),
        ([], 0, ROLE, b""),
    ],
    ids=["dropped", "reordered", "a byte changed", "a space lost", "extra", "end lost", "unfinished tail", "nothing"],
)
def test_the_first_event_that_differs_is_shown(got, index, expected_event, got_event):
    changes, difference = compare_streams("the case", WRITTEN, got, CTX)

    assert changes == 1
    assert difference == Difference("the case", index, expected_event.decode(), got_event.decode())


@pytest.mark.parametrize(
    "usage",
    [
        USAGE,
        REWRITTEN.replace(b'"total_tokens":42', b'"total_tokens":43'),
        REWRITTEN.replace(b'"choices":[],', b""),
        REWRITTEN.replace(b"\r\n", b"\n"),
        REWRITTEN.replace(b"id: 2\r\n", b""),
        REWRITTEN.replace(b"event: message\r\n", b""),
        b"retry: 5\r\n" + REWRITTEN,
        b": rewritten\r\n" + REWRITTEN,
        REWRITTEN.replace(b"\r\nid: 2", b"\nid: 2"),
        REWRITTEN[:-2],
        REWRITTEN.replace(b"}}}", b"}}"),
        b"event: message\r\nid: 2\r\n\r\n",
        b"",
    ],
    ids=[
        "missing", "another number", "a key lost", "LF for CRLF", "id lost", "event name lost", "retry added",
        "comment added", "one line ending", "no blank line", "no JSON", "no data", "dropped",
    ],
)  # fmt: skip
def test_a_rewrite_must_be_there_and_keep_the_events_frame(usage):
    changes, difference = compare_streams("c", WRITTEN, relayed(usage=usage), CTX)

    assert changes == 1
    assert difference == Difference("c", 4, REWRITTEN.decode(), usage.decode())


def test_what_the_reference_leaves_alone_may_not_be_rewritten():
    """Usage that is right already, and a usage that is not the event's own."""
    right, nested = REWRITTEN, TOKEN_1.replace(b"}]}", b',"usage":{"prompt_tokens":1}}]}')
    assert compare_streams("c", [right, nested], [right, nested], CTX) == (0, None)

    spaced = right.replace(b'":', b'": ')
    assert compare_streams("c", [right], [spaced], CTX) == (0, Difference("c", 0, right.decode(), spaced.decode()))
    fooled = nested.replace(b'"prompt_tokens":1', b'"prompt_tokens":40')
    assert compare_streams("c", [nested], [fooled], CTX) == (0, Difference("c", 0, nested.decode(), fooled.decode()))


def test_a_long_event_is_shown_by_its_beginning_and_length():
    _, difference = compare_streams("c", [b"data: " + b"x" * 700 + b"\n\n"], [], CTX)

    assert difference == Difference("c", 0, "data: " + "x" * 394 + " ... (708 characters)", "")


# --- cut_events ---


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"", []),
        (COMMENT + TOKEN_0 + DONE, [COMMENT, TOKEN_0, DONE]),
        (b"data: 1\r\n\r\ndata: 2\r\n\r\n", [b"data: 1\r\n\r\n", b"data: 2\r\n\r\n"]),
        (b"data: 1\r\rdata: 2\r\r", [b"data: 1\r\r", b"data: 2\r\r"]),
        (b"\n\ndata: 1\n\n\ndata: 2\n\n", [b"data: 1\n\n", b"data: 2\n\n"]),
        (b"data: 1\n\ndata: 2", [b"data: 1\n\n", b"data: 2"]),
        (b"data: 1\n\ndata: 2\n", [b"data: 1\n\n", b"data: 2\n"]),
        (b"data: 1\n\n\n\r\n", [b"data: 1\n\n"]),
        (b'{"error":1}', [b'{"error":1}']),
    ],
)
def test_a_stream_is_cut_into_its_events_and_an_unfinished_tail(stream, events):
    assert cut_events(stream) == events


# --- mask_identity ---


def test_only_this_streams_identity_is_masked():
    own = b'data: {"id":"chatcmpl-7","created":1700000000,"n":1700000000,"ref":"chatcmpl-70"}\n\n'
    other = b'data: {"id":"chatcmpl-8","created":1700000001}\n\n'

    assert mask_identity([COMMENT, own, other]) == [
        COMMENT,
        b'data: {"id":"ID","created":0,"n":1700000000,"ref":"chatcmpl-70"}\n\n',
        other,
    ]


def test_identity_is_masked_however_a_rewrite_spaces_it_and_its_spacing_stays():
    first = b'data: {"id":"a-1","created":17,"choices":[]}\n\n'
    spaced = b'data: {"id": "a-1", "choices": [], "created": 17}\n\n'

    assert mask_identity([first, spaced])[1] == b'data: {"id": "ID", "choices": [], "created": 0}\n\n'


def test_a_longer_number_is_not_the_creation_time():
    first = b'data: {"id":"a-1","created":17}\n\n'
    assert mask_identity([first, b'data: {"created":170}\n\n'])[1] == b'data: {"created":170}\n\n'


@pytest.mark.parametrize(
    "first",
    [DONE, COMMENT, b"data: [1]\n\n", b'data: {"id":"a-1"}\n\n', b'data: {"id":"a-1","created":"x"}\n\n', b"{}"],
)
def test_a_stream_without_identity_stays(first):
    assert mask_identity([first, b'data: {"id":"a-1"}\n\n']) == [first, b'data: {"id":"a-1"}\n\n']


# --- policy_failure ---

POLICIES = ("parse", "my.plug:in")
ERROR = b'{"error":{"message":"policy \'my.plug:in\' raised KeyError","type":"server_error","code":"policy_error"}}'


@pytest.mark.parametrize("events", [[ROLE, b"data: " + ERROR + b"\n\n"], [ERROR]], ids=["event", "refusal"])
def test_a_failure_is_the_named_policys(events):
    assert policy_failure(events, POLICIES) == ("my.plug:in", "policy 'my.plug:in' raised KeyError")


@pytest.mark.parametrize(
    "events",
    [
        [],
        WRITTEN,
        [ERROR.replace(b"policy_error", b"upstream_cut")],
        [ERROR.replace(b"my.plug:in", b"my.plug:index")],
        [b"data: " + ERROR + b"\n\n", DONE],
        [b"data: 1\n\n"],
        [b'data: {"error":"no"}\n\n'],
        [b"\xff"],
    ],
)
def test_nothing_else_is_a_policys_failure(events):
    assert policy_failure(events, POLICIES) is None


# --- outcomes ---

OWN_NAMES = {"filter-on": "prefilter", "my.plug:in": "my.plug:in"}
FAILURE = Difference("c", 3, "a complete stream", "policy 'my.plug:in' raised KeyError")


def entry(state, events, changed, expected_changes, first_difference=None):
    return {
        "state": state,
        "events": events,
        "changed": changed,
        "expected_changes": expected_changes,
        "first_difference": first_difference,
    }


def test_policies_whose_streams_hold_are_equal():
    played = {name: ([Relayed(9, 2, None), Relayed(5, 0, None)], 2) for name in OWN_NAMES}

    assert outcomes(OWN_NAMES, played) == {name: entry("equal", 14, 2, 2) for name in OWN_NAMES}


def test_the_first_case_that_differs_is_its_policys():
    first, second = (Difference(case, 1, "a", "b") for case in ("x", "y"))
    played = {
        "filter-on": ([Relayed(9, 2, None)], 2),
        "my.plug:in": ([Relayed(9, 2, None), Relayed(9, 1, first), Relayed(9, 1, second)], 4),
    }

    assert outcomes(OWN_NAMES, played) == {
        "filter-on": entry("equal", 9, 2, 2),
        "my.plug:in": entry("differs", 27, 4, 4, {"case": "x", "event_index": 1, "expected": "a", "got": "b"}),
    }


def test_a_policy_that_says_it_changed_another_number_of_events_differs():
    got = outcomes({"parse": "parse"}, {"parse": ([Relayed(9, 2, None)], 3)})

    first = {"case": "all", "event_index": 0, "expected": "2 events changed", "got": "3 events changed"}
    assert got == {"parse": entry("differs", 9, 3, 2, first)}


@pytest.mark.parametrize(
    ("streams", "own"),
    [
        ({"filter-on": Relayed(0, 2, FAILURE, "my.plug:in"), "my.plug:in": Relayed(9, 0, None)}, (9, 0)),
        ({"filter-on": Relayed(9, 0, None), "my.plug:in": Relayed(3, 2, FAILURE, "my.plug:in")}, (3, 2)),
    ],
    ids=["while another was active", "itself"],
)
def test_a_failure_is_held_against_the_policy_that_failed(streams, own):
    got = outcomes(OWN_NAMES, {name: ([one], 0) for name, one in streams.items()})

    shown = {"case": "c", "event_index": 3, "expected": "a complete stream",
             "got": "policy 'my.plug:in' raised KeyError"}  # fmt: skip
    assert got["my.plug:in"] == entry("differs", own[0], 0, own[1], shown)
    assert got["filter-on"]["state"] == "equal"
    assert got["filter-on"]["first_difference"] is None


# --- the cases ---


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_case_can_be_played_and_asks_for_a_short_interval(case):
    request = read_client_request(case.body(), case.endpoint)

    assert request.stream == case.stream
    assert request.script.apply(GenSettings(tok_s=0.1)).itl_s == 0.002


def test_case_names_are_unique_and_one_reply_is_long():
    assert len({case.name for case in CASES}) == len(CASES)
    assert [case.tokens for case in CASES if case.tokens != 12] == [300]
