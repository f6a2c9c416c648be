"""What has to be measured: how late timers are, and how much of the CPUs others use now.  About 4 s."""

from __future__ import annotations

import asyncio
import contextlib
import os
import statistics
import time
from pathlib import Path

import uvloop

from loadtest.experiment import doctor_findings as findings
from loadtest.experiment.doctor_findings import Finding
from loadtest.experiment.doctor_proc import busy_shares, cpu_ticks, steal
from loadtest.experiment.topology import pinning_of, usable_cpus
from sim.service.proc import ThreadCpu

__all__ = ["noise_findings", "timer_findings"]

SLEEPS = 300
SLEEP_S = 0.001
TIMERS = 60
TIMER_S = 0.0015
"""Between two of uvloop's whole milliseconds."""
NOISE_S = 3.0
SPELL_S = 0.1
_SPIN_ROUNDS = 28_000  # about 1 ms, as the orchestrator's own yardstick


def timer_findings() -> list[Finding]:
    """Sleeps of the kernel and timers of uvloop, on whatever CPU this process is given."""
    late_s = sorted(_sleep_late_s() for _ in range(SLEEPS))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        came_s = runner.run(_timers())
    return [
        findings.sleep_finding(late_s[len(late_s) // 2], late_s[int(len(late_s) * 0.99)]),
        findings.grain_finding(TIMER_S, statistics.median(came_s)),
    ]


def noise_findings() -> list[Finding]:
    """Spin on the orchestrator's CPU for a while: who else wants it, what is stolen, how even the work goes."""
    cpus = usable_cpus()
    pinning = pinning_of(cpus, wanted=True)
    stat = Path("/proc/stat")
    thread = ThreadCpu()
    before = os.sched_getaffinity(0)
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, pinning.orchestrator or before)
    try:
        ticks, (_, waited_ns), start_ns = cpu_ticks(stat.read_text()), thread.read(), time.monotonic_ns()
        spells_ns = _spells()
        (_, waits_ns), wall_ns = thread.read(), time.monotonic_ns() - start_ns
        now = cpu_ticks(stat.read_text())
    finally:
        os.sched_setaffinity(0, before)
        thread.close()
    busy = busy_shares(ticks, now)
    own = min(pinning.orchestrator, default=None)
    lines = [findings.wait_finding(own, (waits_ns - waited_ns) / wall_ns)]
    if pinning.others:
        lines.append(findings.busy_finding({cpu: busy[cpu] for cpu in sorted(pinning.others & busy.keys())}))
    return [*lines, findings.steal_finding(steal(ticks, now)), findings.yardstick_finding(spells_ns)]


def _sleep_late_s() -> float:
    start_ns = time.monotonic_ns()
    time.sleep(SLEEP_S)
    return (time.monotonic_ns() - start_ns) / 1e9 - SLEEP_S


async def _timers() -> list[float]:
    """How long uvloop takes for a timer of `TIMER_S`, s."""
    loop, came_s = asyncio.get_running_loop(), []
    for _ in range(TIMERS):
        fired = loop.create_future()
        start_ns = time.monotonic_ns()
        loop.call_later(TIMER_S, fired.set_result, None)
        await fired
        came_s.append((time.monotonic_ns() - start_ns) / 1e9)
    return came_s


def _spells() -> list[float]:
    """Mean CPU ns of the fixed work, by spells of `SPELL_S`."""
    spells_ns, end_ns = [], time.monotonic_ns() + round(NOISE_S * 1e9)
    while (now_ns := time.monotonic_ns()) < end_ns:
        start_ns, rounds = time.thread_time_ns(), 0
        while time.monotonic_ns() < now_ns + SPELL_S * 1e9:
            _spin()
            rounds += 1
        spells_ns.append((time.thread_time_ns() - start_ns) / rounds)
    return spells_ns


def _spin() -> None:
    total = 0
    for number in range(_SPIN_ROUNDS):
        total += number & 7
