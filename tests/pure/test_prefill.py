"""The prefill queue: slots, order, start at the predecessor's due time, room given back."""

from __future__ import annotations

import pytest

from sim.core.settings import CtxSettings
from sim.ctx_server.prefill import Prefill, PrefillQueue, QueueFullError
from sim.service.wheel import SLOT_NS, TimerWheel
from tests.pure.fake_time import MS, FakeLoop


class Bench:
    """A queue on a clock that the test moves; ``done`` lists (name, time) as prefills end."""

    def __init__(self, **settings):
        self.loop = FakeLoop()
        self.wheel = TimerWheel(self.loop, self.loop.clock)
        self.queue = PrefillQueue(
            CtxSettings(**{"overhead_ms": 10, "prefill_us_per_token": 1000, **settings}), self.wheel
        )
        self.done = []

    def arrive(self, name, uncached_tokens=0):
        prefill = Prefill(self.queue, uncached_tokens, lambda: self.done.append((name, self.loop.now_ns)))
        self.queue.arrive(prefill, self.loop.now_ns)
        return prefill


def test_time_is_overhead_plus_uncached_tokens():
    bench = Bench()
    prefill = bench.arrive("a", uncached_tokens=5)

    assert prefill.due_ns - prefill.start_ns == 15 * MS


def test_time_grows_with_the_share_of_busy_slots():
    bench = Bench(slots=4, load_slope=2.0)
    times = [(prefill := bench.arrive(name)).due_ns - prefill.start_ns for name in "abcd"]

    assert times == [15 * MS, 20 * MS, 25 * MS, 30 * MS]


def test_jitter_follows_the_seed():
    def times(seed):
        bench = Bench(slots=50, jitter=0.5, seed=seed)
        return [bench.arrive("x").due_ns for _ in range(20)]

    assert times(1) == times(1)
    assert times(1) != times(2)


def test_slots_run_at_once_and_the_rest_wait_in_order():
    bench = Bench(slots=2)
    for name in "abcde":
        bench.arrive(name)
    assert (bench.queue.running, bench.queue.queued) == (2, 3)

    bench.loop.run_until(100 * MS)

    assert [name for name, _ in bench.done] == ["a", "b", "c", "d", "e"]
    assert (bench.queue.running, bench.queue.queued) == (0, 0)


def test_a_queued_prefill_starts_when_its_predecessor_was_due():
    """A loop that wakes up late must not push back everyone behind."""
    bench = Bench(slots=1)
    waiting = [bench.arrive(name) for name in "abcd"][1:]
    bench.loop.now_ns = 17 * MS  # the first was due at 10 ms
    bench.loop.run_until(60 * MS)

    assert [prefill.start_ns for prefill in waiting] == [10 * MS, 20 * MS, 30 * MS]
    assert [prefill.due_ns for prefill in waiting] == [20 * MS, 30 * MS, 40 * MS]
    assert bench.queue.asked_ns == 40 * MS
    assert bench.queue.lateness.max_ns == 7 * MS
    # A wake-up comes at the end of a slot of the wheel: each of the three after the first may add as much.
    assert 0 <= bench.queue.delivered_ns - 47 * MS <= 3 * SLOT_NS
    assert (bench.queue.waited.count, bench.queue.waited.sum_ns) == (4, (0 + 10 + 20 + 30) * MS)


def test_short_prefills_of_one_slot_are_not_held_to_the_timers_grain():
    bench = Bench(slots=1, overhead_ms=0.1)
    for number in range(100):
        bench.arrive(number)
    bench.loop.run_until(12 * MS)

    assert len(bench.done) == 100


def test_a_prefill_does_not_start_before_it_came():
    bench = Bench(slots=1)
    bench.arrive("a")
    bench.loop.now_ns = 14 * MS  # "a" was due at 10 ms, but the loop has not noticed
    late = bench.arrive("b")
    bench.loop.run_until(40 * MS)

    assert late.start_ns == 14 * MS
    assert late.due_ns == 24 * MS


def test_a_full_queue_refuses():
    bench = Bench(slots=1, queue_limit=1)
    bench.arrive("running")
    bench.arrive("queued")

    with pytest.raises(QueueFullError):
        bench.arrive("refused")
    assert (bench.queue.running, bench.queue.queued) == (1, 1)


def test_who_leaves_the_queue_is_skipped():
    bench = Bench(slots=1)
    _, gone, _ = (bench.arrive(name) for name in "abc")
    bench.queue.leave(gone, bench.loop.now_ns)
    bench.loop.run_until(40 * MS)

    assert [name for name, _ in bench.done] == ["a", "c"]


def test_who_leaves_a_slot_frees_it_at_once():
    bench = Bench(slots=1)
    gone, waiting = bench.arrive("a"), bench.arrive("b")
    bench.loop.run_until(4 * MS)
    bench.queue.leave(gone, bench.loop.now_ns)

    assert (waiting.start_ns, waiting.due_ns) == (4 * MS, 14 * MS)
    bench.loop.run_until(40 * MS)
    assert [name for name, _ in bench.done] == ["b"]
    assert (bench.queue.lateness.count, bench.loop.armed) == (1, [])


def test_leaving_when_done_changes_nothing():
    bench = Bench(slots=1)
    prefill = bench.arrive("a")
    bench.loop.run_until(40 * MS)
    bench.queue.leave(prefill, bench.loop.now_ns)

    assert bench.queue.running == 0
    assert bench.queue.asked_ns == 10 * MS
