"""Prompts: pieces that are equal where their numbers are, sessions that grow, shared prefixes, who is cancelled."""

from __future__ import annotations

import dataclasses
import itertools

import pytest

from loadtest.load_settings import LoadSettings
from loadtest.prompts import PromptPlan, Prompts, shared_text, turn_text
from loadtest.workload import PlannedRequest, plan_requests

PROMPTS = Prompts(1)


def completed(count: int = 12, seed: int = 1, reply: int = 5, **keys: object) -> list[PlannedRequest]:
    plan = PromptPlan(LoadSettings(**keys), seed)
    return [plan.completed(PlannedRequest(n, 0, 10, reply)) for n in range(count)]


def text_of(request: PlannedRequest) -> str:
    return PROMPTS.make(request.seq, request.prompt_tokens, request.prefix)


@pytest.mark.parametrize("tokens", [1, 2, 4, 512, 20_000, 40_000])
def test_a_prompt_has_exactly_its_tokens_whatever_it_begins_with(tokens: int) -> None:
    for prefix in ((), ((3, 1),), ((3, 512), (-7, 4)), ((3, 50_000),)):
        text = PROMPTS.make(9, tokens, prefix)
        assert len(text) == len(text.encode("ascii")) == 4 * tokens


def test_equal_pieces_are_equal_and_others_differ_at_once() -> None:
    numbers = [*range(300), *range(-300, 0), 10**9, 65_536, -65_536]
    texts = {number: PROMPTS.make(0, 512, ((number, 512),)) for number in numbers}

    assert texts[3] == Prompts(1).make(77, 512, ((3, 512),))
    assert texts[3] != Prompts(2).make(0, 512, ((3, 512),))
    assert len({text[:16] for text in texts.values()}) == len(texts)


def test_a_piece_stands_in_its_place_and_the_requests_own_text_is_led_by_its_number() -> None:
    text = PROMPTS.make(9, 30, ((3, 8), (4, 12)))

    assert text[:32] == PROMPTS.make(1, 8, ((3, 8),))
    assert text[32:80] == PROMPTS.make(1, 12, ((4, 12),))
    assert text[80:] == PROMPTS.make(9, 10)
    assert text[80:].startswith("9 ")


def test_a_longer_piece_begins_with_the_shorter_one_of_its_number() -> None:
    assert PROMPTS.make(0, 900, ((5, 900),)).startswith(PROMPTS.make(1, 20, ((5, 20),)))


def test_numbers_of_blocks_groups_turns_and_requests_never_meet() -> None:
    groups = {shared_text(group) for group in range(500)}
    turns = {turn_text(request, copy) for request in range(500) for copy in range(3)}
    blocks = set(range(500))
    own = {PROMPTS.make(seq, 8) for seq in range(500)}
    pieces = {PROMPTS.make(0, 8, ((number, 8),)) for number in (*groups, *turns, *blocks)}

    assert len(turns) == 1500
    assert not groups & turns
    assert not (groups | turns) & blocks
    assert len(own | pieces) == len(own) + len(pieces) == 500 + 500 + 1500 + 500


def test_a_group_shares_its_prefix_and_the_prompts_own_length_stays() -> None:
    requests = completed(shared_prefix_tokens=100, prefix_groups=3)

    assert [request.prefix for request in requests[:4]] == [
        ((-1, 100),), ((-3, 100),), ((-5, 100),), ((-1, 100),)
    ]  # fmt: skip
    assert {request.prompt_tokens for request in requests} == {110}
    assert text_of(requests[0])[:400] == text_of(requests[3])[:400] != text_of(requests[1])[:400]
    assert text_of(requests[0])[400:] != text_of(requests[3])[400:]


def test_a_turn_repeats_all_that_was_said_before_it() -> None:
    requests = completed(turns=3, sessions=2)
    of_session_0, of_session_1 = requests[0:6:2], requests[1:6:2]

    for session in (of_session_0, of_session_1, requests[6::2]):
        assert [request.prompt_tokens for request in session] == [10, 25, 40]
        for earlier, later in itertools.pairwise(session):
            assert text_of(later).startswith(text_of(earlier))
    firsts = [text_of(requests[n])[:16] for n in (0, 1, 6, 7)]
    assert len(set(firsts)) == 4  # the third session begins where the first has ended
    assert requests[4].prefix == ((-2, 15), (-6, 15), (-10, 10))


def test_a_session_keeps_its_group_and_its_own_lengths() -> None:
    settings = LoadSettings(turns=2, sessions=3, shared_prefix_tokens=7, prefix_groups=2)
    plan = PromptPlan(settings, 1)
    requests = [plan.completed(PlannedRequest(n, 0, 10 + n, 100 + n)) for n in range(9)]

    assert [request.prefix[0][0] for request in requests] == [-1, -3, -1, -1, -3, -1, -3, -1, -3]
    assert requests[4].prefix[1:] == ((turn_text(1, 0), 11 + 101), (turn_text(4, 0), 14))
    assert requests[4].prompt_tokens == 7 + 11 + 101 + 14


def test_another_copys_sessions_are_other_ones_and_its_groups_the_same() -> None:
    keys = {"turns": 2, "shared_prefix_tokens": 4}
    first, second = (completed(seed=seed, **keys) for seed in (1, 2))

    assert [request.prefix[0] for request in first] == [request.prefix[0] for request in second]
    assert not {piece for r in first for piece in r.prefix[1:]} & {piece for r in second for piece in r.prefix[1:]}


def test_what_a_recording_begins_with_is_kept_behind_the_shared_prefix() -> None:
    plan = PromptPlan(LoadSettings(shared_prefix_tokens=5), 1)
    request = plan.completed(PlannedRequest(0, 0, 20, 1, ((8, 16),)))

    assert (request.prefix, request.prompt_tokens) == (((-1, 5), (8, 16)), 25)


def test_a_request_with_nothing_to_add_stays_what_it_is() -> None:
    request = PlannedRequest(0, 0, 20, 1, ((8, 16),))

    assert PromptPlan(LoadSettings(), 1).completed(request) is request


def test_a_share_of_the_streams_is_cancelled_and_the_seed_says_which() -> None:
    keys = {"cancel_share": 0.3, "cancel_after_tokens": 4}
    requests = completed(2000, **keys)
    cancelled = [request.seq for request in requests if request.cancel_after]

    assert {request.cancel_after for request in requests} == {0, 4}
    assert 530 < len(cancelled) < 670
    assert requests == completed(2000, **keys)
    assert cancelled != [request.seq for request in completed(2000, seed=2, **keys) if request.cancel_after]
    assert [r.seq for r in completed(50, cancel_share=1.0) if r.cancel_after] == list(range(50))


def test_a_reply_that_would_be_over_by_then_is_not_cancelled() -> None:
    keys = {"cancel_share": 1.0, "cancel_after_tokens": 5}

    assert {request.cancel_after for request in completed(reply=5, **keys)} == {0}
    assert {request.cancel_after for request in completed(reply=6, **keys)} == {5}


def test_a_schedule_has_prefixes_and_cancels() -> None:
    settings = LoadSettings(streams=4, shared_prefix_tokens=3, cancel_share=1.0, cancel_after_tokens=2)
    bare = plan_requests(dataclasses.replace(settings, shared_prefix_tokens=0, cancel_share=0.0), 1)
    planned = plan_requests(settings, 1)

    assert [request.due_ns for request in planned] == [request.due_ns for request in bare]
    assert [(r.prompt_tokens, r.prefix, r.cancel_after) for r in planned] == [(67, ((-1, 3),), 2)] * 4
