"""The orchestrator's meter on the kernel's own clocks: CPU where work was done, none where it was not.

CPU clocks are compared with each other and with the time that passed; nothing here must be fast.
"""

from __future__ import annotations

import threading
import time

import pytest

from sim.orchestrator.arms import build_arms
from sim.orchestrator.counters import Counters
from sim.orchestrator.ledger import Meter
from sim.service.health import GcPauses, LoopHealth
from sim.service.proc import ProcFacts

WORK_NS = 40_000_000
READING_NS = 1_000_000


@pytest.fixture
def meter():
    arms = build_arms(["parse"], "parse", usage_by_gen=False)
    facts = ProcFacts(0, 0, (0, 0), 0)
    meter = Meter(Counters(), arms, LoopHealth(lambda: facts, GcPauses(), start_ns=0, cpu_ns=0, wait_ns=0))
    yield meter
    meter.close()


def work():
    until_ns = time.thread_time_ns() + WORK_NS
    while time.thread_time_ns() < until_ns:
        pass


def test_a_process_that_sleeps_uses_little_cpu(meter):
    before = meter.read()
    time.sleep(0.2)
    after = meter.read()
    wall_ns = after.t_ns - before.t_ns
    assert wall_ns >= 200_000_000
    assert 0 < after.loop_cpu_ns - before.loop_cpu_ns < wall_ns / 2
    assert 0 < after.cpu_ns - before.cpu_ns < wall_ns / 2
    assert after.machine_ticks[1] >= before.machine_ticks[1]


def test_work_of_the_loop_is_cpu_of_the_thread_and_of_the_process(meter):
    before = meter.read()
    work()
    after = meter.read()
    wall_ns = after.t_ns - before.t_ns
    # The clocks of one reading are read one after the other, so the two spans do not begin and end together.
    assert WORK_NS <= after.loop_cpu_ns - before.loop_cpu_ns <= wall_ns + READING_NS
    assert after.cpu_ns - before.cpu_ns >= WORK_NS
    assert after.user_s + after.sys_s > before.user_s + before.sys_s


def test_work_of_another_thread_is_cpu_of_the_process_alone(meter):
    before = meter.read()
    worker = threading.Thread(target=work)
    worker.start()
    worker.join()
    after = meter.read()
    assert after.cpu_ns - before.cpu_ns >= WORK_NS
    assert after.loop_cpu_ns - before.loop_cpu_ns < (after.cpu_ns - before.cpu_ns) / 2
