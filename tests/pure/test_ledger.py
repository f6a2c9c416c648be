"""Blocks as they run, on a loop and a clock that the test moves: switches, readings, lateness, abort."""

import dataclasses
from types import SimpleNamespace

import pytest

from sim.orchestrator import ledger
from sim.orchestrator.arms import build_arms
from sim.orchestrator.blocks import Reading, read_schedule
from sim.orchestrator.counters import Counters
from sim.orchestrator.credit import PolicyCredit
from sim.orchestrator.ledger import BlockRunner, Meter, ScheduleRunningError, spin_ns
from sim.service.health import GcPauses, LoopHealth
from sim.service.proc import ProcFacts
from tests.pure.test_blocks import BEFORE

MS = 1_000_000


class Timer:
    def __init__(self, loop, due_ns, callback, arguments):
        self.loop, self.due_ns, self.callback, self.arguments = loop, due_ns, callback, arguments

    def cancel(self):
        if self in self.loop.timers:
            self.loop.timers.remove(self)


class Loop:
    """Runs one timer at a time, ``late_ns`` after it was asked for; the clock moves only here."""

    def __init__(self):
        self.now_ns = 1_000 * MS
        self.late_ns = 0
        self.timers = []

    def call_later(self, delay_s, callback, *arguments):
        assert delay_s >= 0.001
        timer = Timer(self, self.now_ns + round(delay_s * 1e9), callback, arguments)
        self.timers.append(timer)
        return timer

    def run_next(self):
        (timer,) = self.timers
        self.timers.remove(timer)
        self.now_ns = max(self.now_ns, timer.due_ns + self.late_ns)
        timer.callback(*timer.arguments)


class Bench:
    """A runner whose meter reads the loop's clock, one CPU ns per ms and the counters."""

    def __init__(self, *names):
        self.loop = Loop()
        self.arms = build_arms(names, names[0], usage_by_gen=False)
        self.counters = Counters()
        facts = ProcFacts(0, 0, (0, 0), 0)
        self.health = LoopHealth(lambda: facts, GcPauses(), start_ns=0, cpu_ns=0, wait_ns=0)
        self.credit = PolicyCredit(self.arms, self.health, self.read)
        self.runner = BlockRunner(
            self.loop, self.arms, self.counters, self.health, self, self.credit, lambda: self.loop.now_ns
        )

    def read(self):
        now = self.loop.now_ns
        return dataclasses.replace(BEFORE, t_ns=now, cpu_ns=now // MS, chunks=self.counters.chunks)

    def start(self, *policies, settle_ns=100 * MS, length_ns=1000 * MS):
        rows = [
            {"round": 0, "slot": slot, "arm": name, "policy": name, "length_ns": length_ns}
            for slot, name in enumerate(policies)
        ]
        body = {"start_ns": self.loop.now_ns + 500 * MS, "settle_ns": settle_ns, "blocks": rows}
        self.runner.start(read_schedule(body, self.arms.index_of, self.arms.names, self.loop.now_ns))


def times(record):
    return record["policy"], record["start_ns"] // MS, record["end_ns"] // MS


def test_each_block_is_measured_from_switch_plus_settling_to_the_next_switch():
    bench = Bench("parse", "prefilter")
    bench.start("prefilter", "parse")
    seen = []
    while bench.loop.timers:
        bench.loop.run_next()
        seen.append((bench.loop.now_ns // MS, bench.arms.policy, bench.runner.state))
    assert seen == [
        (1500, "prefilter", "running"),
        (1600, "prefilter", "running"),
        (2500, "parse", "running"),
        (2600, "parse", "running"),
        (3500, "parse", "done"),
    ]
    assert [times(record) for record in bench.runner.records] == [("prefilter", 1600, 2500), ("parse", 2600, 3500)]
    assert [record["cpu_ns"] for record in bench.runner.records] == [900, 900]


def test_the_policy_from_before_comes_back_when_the_schedule_ends():
    bench = Bench("parse", "prefilter", "prefilter-find")
    bench.credit.switch(2)
    bench.start("prefilter", "parse")
    while bench.loop.timers:
        bench.loop.run_next()
    assert (bench.runner.state, bench.arms.policy) == ("done", "prefilter-find")


def test_a_timer_that_fires_early_is_asked_again():
    bench = Bench("parse", "prefilter")
    bench.start("prefilter")
    bench.loop.late_ns = -2 * MS
    bench.loop.run_next()
    assert (bench.loop.now_ns // MS, bench.arms.policy) == (1498, "parse")
    bench.loop.late_ns = 0
    bench.loop.run_next()
    assert (bench.loop.now_ns // MS, bench.arms.policy) == (1500, "prefilter")


def test_a_late_switch_settles_in_full_and_the_next_switch_keeps_its_time():
    bench = Bench("parse", "prefilter")
    bench.start("prefilter", "parse")
    bench.loop.late_ns = 40 * MS
    bench.loop.run_next()  # 1540 instead of 1500
    bench.loop.late_ns = 0
    while bench.loop.timers:
        bench.loop.run_next()
    assert [times(record) for record in bench.runner.records] == [("prefilter", 1640, 2500), ("parse", 2600, 3500)]


def test_a_loop_that_overslept_a_whole_block_still_records_true_times():
    bench = Bench("parse", "prefilter")
    bench.start("prefilter", "parse")
    bench.loop.run_next()
    bench.loop.late_ns = 1500 * MS
    bench.loop.run_next()  # settled at 3100, when the second switch was already due
    bench.loop.late_ns = 0
    while bench.loop.timers:
        bench.loop.run_next()
    assert [times(record) for record in bench.runner.records] == [("prefilter", 3100, 3101), ("parse", 3201, 3500)]


def test_an_abort_keeps_the_finished_blocks_and_restores_the_policy():
    bench = Bench("parse", "prefilter")
    bench.start("prefilter", "parse", "prefilter")
    for _ in range(4):
        bench.loop.run_next()
    bench.runner.abort()
    assert (bench.runner.state, bench.arms.policy, bench.loop.timers) == ("aborted", "parse", [])
    assert [times(record) for record in bench.runner.records] == [("prefilter", 1600, 2500)]
    bench.runner.abort()
    assert bench.runner.state == "aborted"


def test_an_abort_before_the_first_block_leaves_nothing():
    bench = Bench("parse", "prefilter")
    bench.start("prefilter")
    bench.runner.abort()
    assert (bench.runner.state, bench.runner.records, bench.arms.policy) == ("aborted", [], "parse")


def test_one_schedule_runs_at_a_time_and_another_may_follow():
    bench = Bench("parse", "prefilter")
    bench.start("prefilter")
    with pytest.raises(ScheduleRunningError, match="already running"):
        bench.start("parse")
    while bench.loop.timers:
        bench.loop.run_next()
    bench.start("parse")
    assert (bench.runner.state, bench.runner.records) == ("running", [])


def test_lag_and_live_streams_of_a_block_are_its_own():
    bench = Bench("parse", "prefilter")
    bench.start("prefilter", "parse")
    bench.loop.run_next()
    bench.health.tick(1500 * MS, 1520 * MS, 0, 0)  # in the settling: nobody's
    bench.loop.run_next()
    bench.health.tick(2000 * MS, 2006 * MS, 0, 0)
    bench.counters.live = 3
    bench.loop.run_next()
    (record,) = bench.runner.records
    assert (record["lag"]["count"], record["lag"]["max_ns"], record["late_ticks"]) == (1, 6 * MS, 1)
    assert record["live_streams"] == 3


def test_blocks_are_credited_to_their_policy_when_they_close_and_settling_to_nobody():
    bench = Bench("parse", "prefilter")
    bench.loop.now_ns += 50 * MS
    bench.start("prefilter", "parse", "prefilter")
    while bench.loop.timers:
        bench.loop.run_next()
    parse, prefilter = bench.credit.totals
    assert (prefilter.blocks, prefilter.cpu_ns, prefilter.wall_ns) == (2, 1800, 1800 * MS)
    # Its block, and the 550 ms before the schedule began, when it was the active one.
    assert (parse.blocks, parse.cpu_ns, parse.wall_ns) == (1, 900 + 550, 1450 * MS)


def test_a_scrape_inside_a_schedule_credits_nothing_and_outside_it_does():
    bench = Bench("parse", "prefilter")
    bench.loop.now_ns += 30 * MS
    bench.credit.bring_up_to_date()
    assert bench.credit.totals[0].cpu_ns == 30
    bench.start("prefilter")
    bench.loop.run_next()
    bench.loop.run_next()
    bench.loop.now_ns += 10 * MS
    bench.credit.bring_up_to_date()
    assert (bench.credit.totals[0].cpu_ns, bench.credit.totals[1].cpu_ns) == (530, 0)


def test_a_manual_switch_credits_each_policy_with_its_own_time():
    bench = Bench("parse", "prefilter")
    bench.loop.now_ns += 30 * MS
    bench.credit.switch(1)
    bench.loop.now_ns += 20 * MS
    bench.credit.bring_up_to_date()
    assert [totals.cpu_ns for totals in bench.credit.totals] == [30, 20]


def test_the_yardstick_is_cpu_time_of_work_that_no_machine_does_for_nothing():
    # 28 000 rounds of the interpreter's loop: 2 ns each is beyond any machine.
    assert spin_ns() > 28_000 * 2


def test_a_block_keeps_the_yardstick_of_its_own_settling(monkeypatch):
    yardsticks = iter((777, 888))
    monkeypatch.setattr(ledger, "spin_ns", lambda: next(yardsticks))
    bench = Bench("parse", "prefilter")
    bench.start("prefilter", "parse")
    while bench.loop.timers:
        bench.loop.run_next()
    assert [record["spin_ns"] for record in bench.runner.records] == [777, 888]


class Source:
    """A file of the kernel's, as a meter reads it; ``closed`` tells that it was let go."""

    def __init__(self, value):
        self.value = value
        self.closed = False

    def read(self):
        return self.value

    read_us = read

    def close(self):
        self.closed = True


def test_each_figure_of_a_reading_has_its_own_source(monkeypatch):
    thread, throttle, machine = Source((101, 102)), Source(103), Source((104, 105))
    monkeypatch.setattr(ledger, "ThreadCpu", lambda: thread)
    monkeypatch.setattr(ledger, "CpuThrottle", lambda: throttle)
    monkeypatch.setattr(ledger, "MachineCpu", lambda: machine)
    clocks = SimpleNamespace(monotonic_ns=lambda: 106, process_time_ns=lambda: 107, thread_time_ns=lambda: 108)
    monkeypatch.setattr(ledger, "time", clocks)
    usage = {"self": SimpleNamespace(ru_utime=1.5, ru_stime=2.5)}
    monkeypatch.setattr(ledger, "resource", SimpleNamespace(RUSAGE_SELF="self", getrusage=usage.__getitem__))
    bench = Bench("parse", "prefilter")
    bench.health.gc.total_ns = 109
    counters = bench.counters
    counters.cut_events, counters.cut_reads, counters.requests, counters.cut_bytes_in, counters.cut_bytes_out = (
        200,
        111,
        112,
        113,
        114,
    )
    counters.held_events, counters.role_events = 30, 40
    counters.finish_events, counters.usage_events, counters.done_events = 1, 2, 3
    parse, prefilter = bench.arms.counters
    parse.cut, parse.changed, parse.failed, parse.parsed = 150, 20, 5, 60
    prefilter.cut = 1000
    meter = Meter(counters, bench.arms, bench.health)
    reading = Reading(
        t_ns=106, cpu_ns=107, loop_cpu_ns=108, run_queue_wait_ns=102, user_s=1.5, sys_s=2.5, machine_ticks=(104, 105),
        throttled_us=103, gc_pause_ns=109, chunks=124, events=200, reads=111, requests=112, bytes_in=113,
        bytes_out=114, unchanged=125, changed=20, parsed=60,
    )  # fmt: skip
    assert meter.read() == reading
    bench.arms.active = 1
    assert meter.read() == dataclasses.replace(reading, unchanged=1000, changed=0, parsed=0)
    meter.close()
    assert (thread.closed, throttle.closed, machine.closed) == (True, True, True)
