"""The timer wheel: never early, nothing adds up, the loop gets its turn."""

from __future__ import annotations

import pytest

from sim.service.wheel import SLOT_NS, TimerWheel
from tests.pure.fake_time import MS, FakeLoop


@pytest.fixture
def loop():
    return FakeLoop(now_ns=1_000 * MS)


@pytest.fixture
def wheel(loop):
    return TimerWheel(loop, loop.clock)


def test_an_entry_runs_after_its_due_time_and_within_a_slot_of_it(loop, wheel):
    seen = []
    begin_ns = 4_000 * SLOT_NS
    due_times_ns = [begin_ns + offset_ns for offset_ns in (0, 8 * SLOT_NS + 1, 9 * SLOT_NS - 1, 40 * SLOT_NS + 7)]
    for at_ns in due_times_ns:
        wheel.schedule(at_ns, lambda due_ns, now_ns: seen.append((due_ns, now_ns)))
    loop.run_until(1_100 * MS)

    assert [due_ns for due_ns, _ in seen] == due_times_ns
    assert all(0 <= now_ns - due_ns <= SLOT_NS for due_ns, now_ns in seen)


def test_an_entry_that_says_when_it_is_due_again_runs_again(loop, wheel):
    seen = []

    def emit(due_ns, _now_ns):
        seen.append(due_ns)
        return due_ns + 7 * MS if len(seen) < 3 else None

    wheel.schedule(1_002 * MS, emit)
    loop.run_until(1_100 * MS)

    assert seen == [1_002 * MS, 1_009 * MS, 1_016 * MS]
    assert loop.armed == []


def test_what_ran_again_can_be_cancelled_at_its_new_time(loop, wheel):
    seen = []

    def emit(due_ns, _now_ns):
        seen.append(due_ns)
        return due_ns + 7 * MS

    wheel.schedule(1_002 * MS, emit)
    loop.run_until(1_005 * MS)

    assert wheel.cancel(1_009 * MS, emit) is True
    loop.run_until(1_100 * MS)
    assert seen == [1_002 * MS]


def test_entries_of_one_slot_share_a_wakeup_and_keep_their_order(loop, wheel):
    seen = []
    for number in range(5):
        wheel.schedule(1_010 * MS - number, lambda *_, number=number: seen.append(number))
    loop.run_until(1_020 * MS)

    assert seen == [0, 1, 2, 3, 4]
    assert loop.fired == 1


def test_an_earlier_entry_moves_the_timer_forward(loop, wheel):
    wheel.schedule(6_000 * SLOT_NS, lambda *_: None)
    wheel.schedule(4_000 * SLOT_NS - 1, lambda *_: None)

    assert loop.armed == [4_000 * SLOT_NS]


def test_a_timer_is_never_asked_for_less_than_the_loops_grain(loop, wheel):
    """A shorter one is run at once by uvloop: the wheel would spin."""
    wheel.schedule(900 * MS, lambda *_: None)

    assert loop.armed == [1_001 * MS]


def test_what_is_behind_its_schedule_catches_up_in_one_wakeup(loop, wheel):
    seen = []

    def emit(due_ns, now_ns):
        seen.append(due_ns)
        if len(seen) < 30:
            wheel.schedule(due_ns + MS // 10, emit)

    wheel.schedule(1_000 * MS, emit)
    loop.run_until(1_003 * MS)
    loop.now_ns = 1_050 * MS
    loop.run_until(1_052 * MS)

    assert seen == [1_000 * MS + k * MS // 10 for k in range(30)]
    assert loop.fired <= 4


def test_a_long_wakeup_gives_the_loop_a_turn(loop, wheel):
    """An entry that can never catch up must not keep signals and sockets waiting."""
    seen = []

    def emit(due_ns, _now_ns):
        seen.append(due_ns)
        loop.now_ns += 2 * MS
        wheel.schedule(due_ns + MS, emit)

    wheel.schedule(1_000 * MS, emit)
    handle = loop.handles[0]
    loop.handles.clear()
    loop.now_ns = 1_001 * MS
    handle.callback()

    assert len(seen) == 3
    assert loop.armed == [loop.now_ns]


def test_a_cancelled_entry_does_not_run(loop, wheel):
    seen = []
    kept, dropped = seen.append, seen.remove
    wheel.schedule(1_005 * MS, lambda due_ns, _: kept(due_ns))
    wheel.schedule(1_005 * MS, dropped)

    assert wheel.cancel(1_005 * MS, dropped) is True
    assert wheel.cancel(1_005 * MS, dropped) is False
    loop.run_until(1_010 * MS)
    assert seen == [1_005 * MS]


def test_an_entry_can_cancel_another_of_its_slot(loop, wheel):
    seen = []

    def second(*_):
        seen.append("second")

    wheel.schedule(1_005 * MS, lambda *_: seen.append(wheel.cancel(1_005 * MS, second)))
    wheel.schedule(1_005 * MS, second)
    loop.run_until(1_010 * MS)

    assert seen == [True]


def test_an_entry_that_raises_takes_no_other_with_it(loop, wheel):
    seen = []

    def broken(*_):
        raise RuntimeError("broken entry")

    wheel.schedule(1_005 * MS, broken)
    wheel.schedule(1_005 * MS, lambda *_: seen.append("other"))
    with pytest.raises(RuntimeError, match="broken entry"):
        loop.run_until(1_010 * MS)
    loop.run_until(1_010 * MS)

    assert seen == ["other"]


def test_close_forgets_everything(loop, wheel):
    wheel.schedule(1_005 * MS, lambda *_: pytest.fail("ran after close"))
    wheel.close()
    loop.run_until(1_010 * MS)

    assert loop.armed == []
