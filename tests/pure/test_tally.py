"""Events counted by kind: exact when a stream ends, never taken back while it runs."""

from __future__ import annotations

import itertools

import pytest

from sim.orchestrator.counters import Counters
from sim.orchestrator.tally import LONGEST_HELD, EventTally

ROLE = b'data: {"choices":[{"delta":{"role":"assistant"}}]}\n\n'
TOKEN = b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'
FINISH = b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":1}}\n\n'
DONE = b"data: [DONE]\n\n"

STREAMS = {
    "nothing": [],
    "role": [ROLE],
    "roles": [ROLE, ROLE],
    "cut": [ROLE, TOKEN],
    "done": [DONE],
    "no_tokens": [ROLE, FINISH, USAGE, DONE],
    "one_token": [ROLE, TOKEN, FINISH, USAGE, DONE],
    "no_role": [TOKEN] * 3 + [USAGE, DONE],
    "a_role_later_is_none": [ROLE, TOKEN, ROLE, TOKEN, TOKEN, TOKEN, DONE],
    "long": [ROLE, *[TOKEN] * 7, USAGE, DONE],
}
COUNTED = {
    "nothing": (0, 0, 0, 0, 0, 0),
    "role": (1, 0, 1, 0, 0, 0),
    "roles": (2, 0, 2, 0, 0, 0),
    "cut": (2, 1, 1, 0, 0, 0),
    "done": (1, 0, 0, 0, 0, 1),
    "no_tokens": (4, 0, 1, 1, 1, 1),
    "one_token": (5, 1, 1, 1, 1, 1),
    "no_role": (5, 3, 0, 0, 1, 1),
    "a_role_later_is_none": (7, 5, 1, 0, 0, 1),
    "long": (10, 7, 1, 0, 1, 1),
}


def kinds(c):
    return c.events, c.chunks, c.role_events, c.finish_events, c.usage_events, c.done_events


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("per_read", [1, 2, 3, 10])
def test_a_stream_that_has_ended_is_counted_exactly_and_no_count_ever_went_down(name, per_read):
    events, counters = STREAMS[name], Counters()
    tally = EventTally(counters)
    seen = [kinds(counters)]
    for at in range(0, len(events), per_read):
        tally.add(events[at : at + per_read])
        seen.append(kinds(counters))
        assert counters.events == min(at + per_read, len(events))
    tally.close()
    seen.append(kinds(counters))
    assert kinds(counters) == COUNTED[name]
    assert counters.held_events == 0
    for before, after in itertools.pairwise(seen):
        assert all(x <= y for x, y in zip(before, after, strict=True))


def test_a_live_stream_lags_by_the_three_events_it_holds():
    counters = Counters()
    tally = EventTally(counters)
    chunks = []
    for event in (ROLE, *[TOKEN] * 6):
        tally.add([event])
        chunks.append((counters.chunks, counters.held_events, tally.steady))
    assert chunks == [
        (0, 0, False), (0, 1, False), (0, 2, False), (0, 3, True), (1, 3, True), (2, 3, True), (3, 3, True),
    ]  # fmt: skip


def test_streams_hold_events_of_their_own():
    counters = Counters()
    first, second = EventTally(counters), EventTally(counters)
    first.add([ROLE, *[TOKEN] * 5])
    second.add([ROLE, TOKEN])
    assert (counters.chunks, counters.held_events) == (2, 4)
    second.close()
    assert (counters.chunks, counters.held_events) == (3, 3)
    first.close()
    assert (counters.chunks, counters.held_events) == (6, 0)


def test_a_long_event_is_a_chunk_and_is_not_kept():
    padded = DONE[:-2] + b" " * (LONGEST_HELD - len(DONE)) + b"\n\n"
    longer = padded[:-2] + b" \n\n"
    counters = Counters()
    tally = EventTally(counters)
    tally.add([TOKEN, longer, padded])
    assert list(tally.latest) == [TOKEN, None, padded]
    tally.close()
    assert kinds(counters) == (3, 2, 0, 0, 0, 1)


@pytest.mark.parametrize(
    ("events", "done"), [([], False), ([TOKEN], False), ([DONE], True), ([DONE, b": x\n\n"], True)]
)
def test_the_end_marker_is_known_among_the_latest_events(events, done):
    tally = EventTally(Counters())
    tally.add(events)
    assert tally.done is done
