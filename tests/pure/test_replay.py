"""Replay: a coarse clock's grid is spread, a window is cut out, speed scales; the order never changes."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest import replay
from loadtest.load_files import notes_of_recording
from loadtest.load_settings import LoadSettings
from loadtest.traces.reader import Recording, read_trace
from loadtest.traces.rows import TraceRow
from loadtest.workload import PlannedRequest, iter_requests, plan_requests

S = 1_000_000_000
MOONCAKE = Path(__file__).parents[3] / "shared" / "traces" / "mooncake_fast25_conversation_head240.jsonl"


@pytest.mark.parametrize(
    ("stamps", "spread"),
    [
        ([], []),
        ([5], [5]),
        ([7, 7, 7], [7, 7, 7]),
        ([0, 0, 0, 3, 3, 6], [0, 1, 2, 3, 4.5, 6]),
        ([0, 3, 6, 6], [0, 3, 6, 7.5]),
        ([0, 1, 2, 2, 90, 90], [0, 1, 2, 2.5, 90, 90.5]),
    ],
    ids=["none", "one", "one instant", "grid", "the last instant", "a long silence"],
)
def test_requests_of_one_instant_are_spread_over_the_clocks_step(stamps, spread):
    assert [stamp / S for stamp in replay.spread([stamp * S for stamp in stamps])] == spread


def test_a_few_odd_stamps_do_not_make_the_clocks_step():
    grid = [n * 3 * S for n in range(100)]

    assert replay.clock_step_ns(sorted([*grid, S, 30 * S + 1])) == 3 * S
    assert list(replay.spread([0, 0, S, S, *[3 * n * S for n in range(1, 50)]]))[:5] == [0, S // 2, S, 2 * S, 3 * S]


@given(st.lists(st.integers(0, 50), min_size=1).map(sorted))
def test_spreading_keeps_order_and_first_stamps(stamps):
    stamps_ns = [stamp * S for stamp in stamps]
    spread = list(replay.spread(stamps_ns))

    assert len(spread) == len(stamps_ns)
    assert spread == sorted(spread)
    assert set(stamps_ns) <= set(spread)
    assert len(set(spread)) == len(spread) or len(set(stamps_ns)) == 1


@pytest.mark.parametrize(
    ("from_s", "window_s", "places"),
    [(0, 0, range(4)), (0, 4, range(1)), (4, 1, range(1, 2)), (1, 5, range(1, 3)), (5, 0, range(2, 4)), (41, 0, None)],
)
def test_a_window_counts_from_the_first_request_and_leaves_out_its_end(from_s, window_s, places):
    stamps_ns = [100 * S, 104 * S, 105 * S, 140 * S]

    assert list(replay.window(stamps_ns, from_s, window_s)) == list(places or ())
    assert list(replay.window([], from_s, window_s)) == []


@pytest.mark.parametrize(
    ("from_s", "speed", "due_s"), [(0, 1.0, [0, 4, 5]), (0, 2.0, [0, 2, 2.5]), (3.0, 1.0, [1, 2]), (3.0, 0.5, [2, 4])]
)
def test_due_times_count_from_the_windows_start_and_scale(from_s, speed, due_s):
    stamps_ns = [100 * S, 104 * S, 105 * S]
    places = replay.window(stamps_ns, from_s, 0)

    assert [due / S for due in replay.due_times(stamps_ns, places, from_s, speed)] == due_s


ROWS = [TraceRow(n * 3 * S, 10 + n, 1 + n) for n in range(10) for _ in range(2)]


def settings(**changes) -> LoadSettings:
    return LoadSettings(trace="t", **changes)


def test_a_windows_requests_have_the_lengths_of_their_own_rows():
    plan = plan_requests(settings(window_from_s=4.0, window_s=6.0, speed=2.0), 1, ROWS)

    assert plan == [
        PlannedRequest(seq, int(due_s * S), prompt, reply)
        for seq, (due_s, prompt, reply) in enumerate([(0.25, 11, 2), (1, 12, 3), (1.75, 12, 3), (2.5, 13, 4)])
    ]


def test_a_window_does_not_move_what_is_in_it():
    whole = plan_requests(settings(), 1, ROWS)
    cut = plan_requests(settings(window_from_s=6.0, window_s=9.0), 1, ROWS)

    assert [request.due_ns + 6 * S for request in cut] == [r.due_ns for r in whole if 6 * S <= r.due_ns < 15 * S]


def test_a_recordings_instants_stay_where_they_are_not_to_be_spread():
    plan = plan_requests(settings(spread=False, limit=5), 1, ROWS)

    assert [request.due_ns // S for request in plan] == [0, 0, 3, 3, 6]


def test_hash_ids_become_the_prompts_beginning_the_last_block_perhaps_not_full():
    rows = [
        TraceRow(0, 1300, 1, (0, 7, 9)),
        TraceRow(1, 1300, 1, (0, 8)),
        TraceRow(2, 1024, 1, (0, 7)),
        TraceRow(3, 5, 1),
    ]

    assert [request.prefix for request in iter_requests(settings(), 1, rows)] == [
        ((0, 512), (7, 512), (9, 276)), ((0, 512), (8, 512)), ((0, 512), (7, 512)), ()
    ]  # fmt: skip


def test_the_notes_say_what_was_skipped_and_what_the_clock_did():
    broken = Recording((TraceRow(0, 1, 1),), skipped=1200, faults=("t:3: x", "t:4: y"))
    coarse = Recording(tuple(ROWS))

    assert notes_of_recording(settings(), Recording((TraceRow(0, 1, 1),))) == []
    assert notes_of_recording(settings(), broken) == ["t: broken rows left out: 1,200; the first: t:3: x; t:4: y"]
    assert notes_of_recording(settings(), coarse) == [
        "t: 20 requests are recorded at 10 instants; those of one instant are spread over the clock's step, 3 s"
    ]
    assert "replayed so" in notes_of_recording(settings(spread=False), coarse)[0]


@pytest.mark.skipif(not MOONCAKE.is_file(), reason="the recorded sample is not part of the project")
def test_no_two_requests_of_the_mooncake_sample_are_sent_at_one_instant():
    rows = read_trace(MOONCAKE).rows
    plan = plan_requests(settings(), 1, rows)
    due_ns = [request.due_ns for request in plan]

    assert [(r.prompt_tokens, r.output_tokens) for r in plan] == [(r.prompt_tokens, r.output_tokens) for r in rows]
    assert all(before < after for before, after in pairwise(due_ns))
    assert max(after - before for before, after in pairwise(due_ns)) <= 3.1 * S
    assert 84 * S < due_ns[-1] < 87 * S
    assert sum(tokens for _, tokens in plan[0].prefix) == plan[0].prompt_tokens == 6758
