"""Loop health: the split of a late tick, missed ticks, windows, samples, GC pauses."""

from __future__ import annotations

import gc

import pytest

from sim.service.health import GcPauses, LoopHealth
from sim.service.proc import ProcFacts
from sim.service.ticker import LoopTicker
from tests.pure.fake_time import MS, FakeLoop

SECOND = 1_000 * MS


class Facts:
    """Process facts that a test moves."""

    def __init__(self):
        self.process_cpu_ns = 0
        self.throttled_us = 0
        self.machine_ticks = (0, 0)
        self.rss_bytes = 50_000_000

    def read(self):
        return ProcFacts(self.process_cpu_ns, self.throttled_us, self.machine_ticks, self.rss_bytes)


def make_health(facts=None, **options):
    return LoopHealth((facts or Facts()).read, GcPauses(lambda: 0), start_ns=0, cpu_ns=0, wait_ns=0, **options)


@pytest.mark.parametrize(
    ("late_ms", "waited_ms", "kernel_ms", "loop_ms", "late_ticks", "blamed_on_kernel"),
    [
        pytest.param(0, 0, 0, 0, 0, 0, id="on time"),
        pytest.param(8, 0, 0, 8, 1, 0, id="the loop was busy"),
        pytest.param(8, 8, 8, 0, 1, 1, id="the kernel ran others"),
        pytest.param(8, 30, 8, 0, 1, 1, id="more wait than lateness charges no more than the lateness"),
        pytest.param(8, 3, 3, 5, 1, 0, id="mostly the loop"),
        pytest.param(8, 5, 5, 3, 1, 1, id="mostly the kernel"),
        pytest.param(4, 4, 4, 0, 0, 0, id="within the timers' grain is not late"),
        pytest.param(-1, 0, 0, 0, 0, 0, id="early counts as on time"),
    ],
)
def test_lateness_is_split_between_loop_and_kernel(
    late_ms, waited_ms, kernel_ms, loop_ms, late_ticks, blamed_on_kernel
):
    health = make_health()
    due_ns = health.tick(10 * MS, (10 + late_ms) * MS, cpu_ns=0, wait_ns=waited_ms * MS)

    total = health.total
    assert due_ns == 20 * MS
    assert (total.lag.sum_ns, total.lag_kernel.sum_ns, total.lag_loop.sum_ns) == (
        max(0, late_ms) * MS,
        kernel_ms * MS,
        loop_ms * MS,
    )
    assert (total.late_ticks, total.late_ticks_kernel) == (late_ticks, blamed_on_kernel)


def test_only_the_wait_since_the_last_tick_counts():
    health = make_health()
    health.tick(10 * MS, 10 * MS, cpu_ns=0, wait_ns=100 * MS)
    health.tick(20 * MS, 28 * MS, cpu_ns=0, wait_ns=101 * MS)

    assert health.total.lag_kernel.sum_ns == 1 * MS
    assert health.total.lag_loop.sum_ns == 7 * MS


def test_a_stall_counts_every_tick_that_fell_due_in_it():
    """Without the missed ones a stall of any length is one sample, and p99 says all is well."""
    health = make_health()
    due_ns = health.tick(10 * MS, 55 * MS, cpu_ns=0, wait_ns=0)

    assert due_ns == 60 * MS
    assert health.total.lag.count == 5
    assert health.total.lag.sum_ns == (45 + 35 + 25 + 15 + 5) * MS
    assert health.total.late_ticks == 4


def test_a_window_sees_what_lies_between_its_opening_and_its_closing():
    health = make_health()
    health.tick(10 * MS, 16 * MS, cpu_ns=0, wait_ns=0)
    window = health.open_window()
    health.tick(20 * MS, 29 * MS, cpu_ns=0, wait_ns=9 * MS)
    health.close_window(window)
    health.tick(30 * MS, 37 * MS, cpu_ns=0, wait_ns=9 * MS)

    assert (window.lag.count, window.lag.sum_ns, window.lag_kernel.sum_ns) == (1, 9 * MS, 9 * MS)
    assert (window.late_ticks, window.late_ticks_kernel) == (1, 1)
    assert health.total.late_ticks == 3
    with pytest.raises(ValueError, match="not in list"):
        health.close_window(window)


def test_a_sample_covers_its_second():
    facts = Facts()
    health = make_health(facts)
    due_ns = 10 * MS
    while due_ns < SECOND:
        late_ns = 20 * MS if due_ns == 500 * MS else 0
        due_ns = health.tick(due_ns, due_ns + late_ns, cpu_ns=due_ns // 4, wait_ns=due_ns // 100)
    assert list(health.samples) == []

    facts.process_cpu_ns, facts.throttled_us, facts.machine_ticks = 300 * MS, 2_000, (5, 200)
    health.gc.total_ns = 3 * MS
    health.tick(due_ns, SECOND, cpu_ns=SECOND // 4, wait_ns=SECOND // 100)

    (sample,) = health.samples
    assert sample == {
        "t_ns": SECOND,
        "wall_s": 1.0,
        "cpu_s": 0.3,
        "loop_cpu_s": 0.25,
        "run_queue_wait_s": 0.01,
        "lag_max_s": 0.02,
        "lag_p99_s": 0.01,
        "ticks": 100,
        "late_ticks": 2,
        "late_ticks_kernel": 0,
        "gc_pause_s": 0.003,
        "throttled_s": 0.002,
        "steal_share": 0.025,
        "rss_bytes": 50_000_000,
    }
    assert health.utilization == 0.25


def test_the_second_sample_counts_from_the_first_one():
    health = make_health(sample_ns=10 * MS)
    health.tick(10 * MS, 18 * MS, cpu_ns=1 * MS, wait_ns=1 * MS)
    health.tick(20 * MS, 20 * MS, cpu_ns=1 * MS, wait_ns=1 * MS)
    health.tick(30 * MS, 30 * MS, cpu_ns=7 * MS, wait_ns=1 * MS)

    first, second = health.samples
    assert (first["late_ticks"], second["late_ticks"], second["ticks"]) == (1, 0, 2)
    assert (second["wall_s"], second["loop_cpu_s"], second["run_queue_wait_s"]) == (0.012, 0.006, 0.0)


def test_only_the_newest_samples_are_kept():
    health = make_health(sample_ns=10 * MS, kept_samples=3)
    for tick in range(1, 8):
        health.tick(tick * 10 * MS, tick * 10 * MS, cpu_ns=0, wait_ns=0)

    assert [sample["t_ns"] for sample in health.samples] == [50 * MS, 60 * MS, 70 * MS]


def test_gc_pauses_are_summed_by_generation():
    times = iter([100, 130, 200, 205])
    pauses = GcPauses(lambda: next(times))
    for generation in (2, 0):
        pauses.on_gc("start", {"generation": generation})
        pauses.on_gc("stop", {"generation": generation})

    assert (pauses.count, pauses.total_ns, pauses.max_ns) == ([1, 0, 1], 35, 30)


def test_gc_pauses_hear_of_collections_while_installed():
    pauses = GcPauses()
    pauses.install()
    gc.collect()
    pauses.remove()
    gc.collect()

    assert pauses.count[2] == 1
    assert pauses.total_ns > 0


def test_the_ticker_keeps_an_absolute_schedule():
    loop, health = FakeLoop(), make_health()
    ticker = LoopTicker(loop, health, lambda: (0, 0), loop.clock)
    loop.run_until(25 * MS)
    loop.now_ns = 47 * MS  # the loop stood still: ticks of 30 and 40 ms are late
    loop.run_until(60 * MS)

    assert health.total.lag.count == 6
    assert health.total.lag.sum_ns == (17 + 7) * MS
    ticker.stop()
    assert loop.armed == []


def test_a_timer_that_fires_early_is_not_a_tick():
    """Uvloop's timers count whole milliseconds and may do so."""
    loop, health = FakeLoop(), make_health()
    LoopTicker(loop, health, lambda: (0, 0), loop.clock)
    early = loop.handles.pop()
    loop.now_ns = 9_500_000
    early.callback()

    assert health.total.lag.count == 0
    assert loop.armed == [10_500_000]
