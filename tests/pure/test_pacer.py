"""Pacing: absolute due times in both emissions, load, who joins and leaves when."""

from __future__ import annotations

from itertools import pairwise

import pytest

from sim.core.settings import GenSettings
from sim.gen_server.pacer import make_pacer
from sim.service.wheel import SLOT_NS, TimerWheel
from tests.pure.fake_time import MS, FakeLoop


class Taker:
    """Takes ``wanted`` tokens and keeps when they were due and when they came."""

    def __init__(self, wanted=1000):
        self.wanted = wanted
        self.due_ns = []
        self.came_ns = []

    def token_due(self, due_ns, now_ns):
        self.due_ns.append(due_ns)
        self.came_ns.append(now_ns)
        return len(self.due_ns) < self.wanted

    @property
    def gaps_ms(self):
        return [(b - a) / MS for a, b in zip(self.due_ns, self.due_ns[1:], strict=False)]


class Bench:
    def __init__(self, **settings):
        self.loop = FakeLoop()
        self.wheel = TimerWheel(self.loop, self.loop.clock)
        self.pacer = make_pacer(GenSettings(**settings), self.wheel, self.loop.clock)

    def join(self, ready_ms=0, wanted=1000):
        taker = Taker(wanted)
        self.pacer.join(taker, round(ready_ms * MS))
        return taker


@pytest.mark.parametrize("emission", ["paced", "lockstep"])
def test_token_zero_is_due_when_the_kv_is_here(emission):
    bench = Bench(emission=emission, itl_ms=20)
    taker = bench.join(ready_ms=7)
    bench.loop.run_until(50 * MS)

    assert taker.due_ns == [7 * MS, 27 * MS, 47 * MS]


@pytest.mark.parametrize("emission", ["paced", "lockstep"])
def test_a_late_wakeup_moves_no_later_token(emission):
    bench = Bench(emission=emission, itl_ms=20)
    taker = bench.join()
    bench.loop.run_until(30 * MS)
    bench.loop.now_ns = 113 * MS  # the loop stood still
    bench.loop.run_until(161 * MS)

    assert taker.due_ns == [k * 20 * MS for k in range(9)]
    assert [came >= due for came, due in zip(taker.came_ns, taker.due_ns, strict=True)] == [True] * 9
    assert taker.came_ns[-1] - taker.due_ns[-1] <= MS + SLOT_NS


@pytest.mark.parametrize("emission", ["paced", "lockstep"])
def test_the_last_token_frees_the_slot(emission):
    bench = Bench(emission=emission, itl_ms=20)
    taker = bench.join(wanted=3)
    assert len(bench.pacer) == 1
    bench.loop.run_until(200 * MS)

    assert taker.due_ns == [0, 20 * MS, 40 * MS]
    assert len(bench.pacer) == 0
    assert bench.loop.armed == []


@pytest.mark.parametrize("emission", ["paced", "lockstep"])
@pytest.mark.parametrize("until_ms", [2, 30], ids=["before its first token", "while running"])
def test_who_leaves_gets_nothing_more(emission, until_ms):
    bench = Bench(emission=emission, itl_ms=20)
    taker = bench.join(ready_ms=5)
    bench.loop.run_until(until_ms * MS)
    got = len(taker.due_ns)
    bench.pacer.leave(taker)
    bench.pacer.leave(taker)
    bench.loop.run_until(200 * MS)

    assert len(taker.due_ns) == got
    assert len(bench.pacer) == 0


def test_a_rate_that_is_no_whole_number_of_ms_is_kept():
    bench = Bench(tok_s=15)
    taker = bench.join()
    bench.loop.run_until(10_000 * MS)

    assert len(taker.due_ns) == 150
    assert taker.due_ns[-1] == pytest.approx(149 / 15 * 1e9, abs=149)


def test_paced_streams_keep_their_own_phases():
    bench = Bench(itl_ms=20)
    takers = [bench.join(ready_ms=ready) for ready in (0, 3, 11)]
    bench.loop.run_until(45 * MS)

    assert [[due / MS for due in taker.due_ns] for taker in takers] == [[0, 20, 40], [3, 23, 43], [11, 31]]


def test_lockstep_emits_for_all_and_who_comes_waits_for_the_next_step():
    bench = Bench(emission="lockstep", itl_ms=20)
    first, second, third = (bench.join(ready_ms=ready) for ready in (0, 3, 40))
    bench.loop.run_until(65 * MS)

    assert [due / MS for due in first.due_ns] == [0, 20, 40, 60]
    assert [due / MS for due in second.due_ns] == [20, 40, 60]
    assert [due / MS for due in third.due_ns] == [40, 60]


@pytest.mark.parametrize(
    ("ready_us", "first_due_ms"),
    [
        pytest.param(39_800, 40, id="just before, in the step's own slot of the wheel"),
        pytest.param(40_000, 40, id="at the step's due time"),
        pytest.param(40_100, 60, id="just after"),
    ],
)
def test_who_is_ready_by_a_steps_due_time_is_in_it_whenever_it_joined(ready_us, first_due_ms):
    bench = Bench(emission="lockstep", itl_ms=20)
    bench.join()
    bench.loop.run_until(30 * MS)  # the step of 40 ms is scheduled already
    late = bench.join(ready_ms=ready_us / 1000)
    bench.loop.run_until(70 * MS)

    assert late.due_ns == [due_ms * MS for due_ms in range(first_due_ms, 61, 20)]


def test_an_overdue_step_takes_in_who_was_ready_by_then_and_nobody_else():
    bench = Bench(emission="lockstep", itl_ms=20)
    first = bench.join()
    bench.loop.run_until(30 * MS)
    bench.loop.now_ns = 113 * MS  # the loop stood still
    takers = [bench.join(ready_ms=ready) for ready in (39, 41, 112)]
    bench.loop.run_until(130 * MS)

    assert [taker.due_ns[0] / MS for taker in (first, *takers)] == [0, 40, 60, 120]


def test_who_starts_an_idle_lockstep_engine_takes_nobody_along_before_its_time():
    bench = Bench(emission="lockstep", itl_ms=20)
    first, second = bench.join(ready_ms=7.05, wanted=1), bench.join(ready_ms=7.1, wanted=1)
    bench.loop.run_until(100 * MS)

    assert (first.due_ns, second.due_ns) == ([7_050_000], [7_100_000])


def test_an_idle_lockstep_engine_starts_with_whoever_comes():
    bench = Bench(emission="lockstep", itl_ms=20)
    bench.join(wanted=2)
    bench.loop.run_until(100 * MS)
    late = bench.join(ready_ms=107, wanted=2)
    bench.loop.run_until(200 * MS)

    assert [due / MS for due in late.due_ns] == [107, 127]


@pytest.mark.parametrize("emission", ["paced", "lockstep"])
def test_the_gap_grows_with_the_share_of_busy_slots(emission):
    bench = Bench(emission=emission, itl_ms=20, load_slope=1.0, slots=4)
    alone = bench.join()
    bench.loop.run_until(60 * MS)
    others = [bench.join(ready_ms=60, wanted=3) for _ in range(3)]
    bench.loop.run_until(400 * MS)

    assert alone.gaps_ms[0] == 25
    assert max(alone.gaps_ms) == 40
    assert alone.gaps_ms[-1] == 25
    assert all(len(other.due_ns) == 3 for other in others)


@pytest.mark.parametrize("emission", ["paced", "lockstep"])
def test_the_load_counts_replies_whose_kv_is_on_its_way(emission):
    bench = Bench(emission=emission, itl_ms=20, load_slope=1.0, slots=4)
    alone = bench.join()
    for _ in range(3):
        bench.join(ready_ms=10_000)
    bench.loop.run_until(100 * MS)

    assert alone.gaps_ms == [40, 40]


def test_jitter_keeps_the_mean_and_follows_the_seed():
    def gaps(seed):
        bench = Bench(itl_ms=10, jitter=0.3, seed=seed)
        taker = bench.join(wanted=4001)
        bench.loop.run_until(60_000 * MS)
        return taker.gaps_ms

    one = gaps(1)
    assert one == gaps(1)
    assert one != gaps(2)
    assert sum(one) / len(one) == pytest.approx(10, rel=0.02)
    assert min(one) < 7 < 14 < max(one)


@pytest.mark.parametrize("itl_ms", [5, 40], ids=["faster", "slower"])
def test_paced_streams_stay_evenly_spread_when_the_pace_changes(itl_ms):
    bench = Bench(itl_ms=20)
    takers = [bench.join(ready_ms=ready) for ready in (0, 5, 10, 15)]
    bench.loop.run_until(43 * MS)  # due next: 60, 45, 50, 55
    changed = bench.pacer.change_pace(GenSettings(itl_ms=itl_ms), bench.loop.clock())
    bench.loop.run_until(203 * MS)

    scale = itl_ms / 20
    for taker, due_ms in zip(takers, (60, 45, 50, 55), strict=True):
        later = [due / MS for due in taker.due_ns if due > 43 * MS]
        assert later[0] == pytest.approx(43 + (due_ms - 43) * scale)
        assert [b - a for a, b in pairwise(later)] == pytest.approx([itl_ms] * (len(later) - 1))
    assert changed == 4


def test_the_pace_of_lockstep_changes_within_the_step_under_way():
    bench = Bench(emission="lockstep", itl_ms=20)
    first, second = bench.join(), bench.join(ready_ms=3)
    bench.loop.run_until(50 * MS)
    changed = bench.pacer.change_pace(GenSettings(emission="lockstep", itl_ms=10), bench.loop.clock())
    bench.loop.run_until(80 * MS)

    assert [due / MS for due in first.due_ns] == [0, 20, 40, 55, 65, 75]
    assert [due / MS for due in second.due_ns] == [20, 40, 55, 65, 75]
    assert changed == 2


@pytest.mark.parametrize("emission", ["paced", "lockstep"])
def test_a_first_token_keeps_its_time_when_the_pace_changes(emission):
    bench = Bench(emission=emission, itl_ms=20)
    taker = bench.join(ready_ms=30)
    bench.loop.run_until(10 * MS)
    changed = bench.pacer.change_pace(GenSettings(emission=emission, itl_ms=5), bench.loop.clock())
    bench.loop.run_until(41 * MS)

    assert [due / MS for due in taker.due_ns] == [30, 35, 40]
    assert changed == 0


@pytest.mark.parametrize(
    ("emission", "due_ms"), [("paced", [0, 20, 40, 60, 80, 140, 240]), ("lockstep", [0, 20, 40, 140, 240])]
)
def test_overdue_tokens_keep_their_times_when_the_pace_changes(emission, due_ms):
    bench = Bench(emission=emission, itl_ms=20)
    taker = bench.join()
    bench.loop.run_until(30 * MS)
    bench.loop.now_ns = 90 * MS  # the loop stood still: 40 was due, then 60 and 80
    bench.pacer.change_pace(GenSettings(emission=emission, itl_ms=100), bench.loop.clock())
    bench.loop.run_until(250 * MS)

    assert [due / MS for due in taker.due_ns] == due_ms


def test_streams_that_are_all_overdue_stay_evenly_spread_when_the_pace_changes():
    bench = Bench(itl_ms=20)
    takers = [bench.join(ready_ms=ready) for ready in (0, 5, 10, 15)]
    bench.loop.run_until(30 * MS)
    bench.loop.now_ns = 101 * MS
    bench.pacer.change_pace(GenSettings(itl_ms=200), bench.loop.clock())
    bench.loop.run_until(400 * MS)

    nexts = sorted(next(due for due in taker.due_ns if due > 101 * MS) / MS for taker in takers)
    assert [b - a for a, b in pairwise(nexts)] == pytest.approx([50, 50, 50])


def test_a_stream_whose_last_token_is_overdue_ends_as_the_pace_changes():
    bench = Bench(itl_ms=20)
    taker = bench.join(wanted=3)
    bench.loop.run_until(30 * MS)
    bench.loop.now_ns = 90 * MS
    bench.pacer.change_pace(GenSettings(itl_ms=5), bench.loop.clock())
    bench.loop.run_until(200 * MS)

    assert [due / MS for due in taker.due_ns] == [0, 20, 40]
    assert len(bench.pacer) == 0
    assert bench.loop.armed == []


def test_jitter_goes_on_at_another_pace():
    bench = Bench(itl_ms=10, jitter=0.3)
    taker = bench.join(wanted=8001)
    bench.loop.run_until(10_000 * MS)
    bench.pacer.change_pace(GenSettings(itl_ms=30, jitter=0.3), bench.loop.clock())
    bench.loop.run_until(70_000 * MS)

    later = [gap for gap, due in zip(taker.gaps_ms[1:], taker.due_ns[1:], strict=False) if due > 10_100 * MS]
    assert sum(later) / len(later) == pytest.approx(30, rel=0.03)
    assert min(later) < 21 < 42 < max(later)
