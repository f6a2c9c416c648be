"""What the doctor reads, and what it makes of it: recorded texts and facts in, judgements out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from loadtest.experiment import doctor_findings as findings
from loadtest.experiment import thresholds
from loadtest.experiment.doctor import render_doctor
from loadtest.experiment.doctor_ceiling import Ceiling, Second, ceiling_finding, ceiling_of, seconds_of
from loadtest.experiment.doctor_machine import machine_findings, tool_findings
from loadtest.experiment.doctor_proc import (
    CpuTicks,
    Quota,
    busy_shares,
    cpu_list,
    cpu_ticks,
    ports_taken,
    quota_v1,
    quota_v2,
    steal,
)
from loadtest.experiment.text import WIDTH
from loadtest.experiment.topology import Pinning, pinning_of
from sim.core.histogram import LogHistogram

ROOT = Path(__file__).parents[2]

STAT = """\
cpu  189834 3 22147 151188 449 0 5729 462 0 0
cpu0 86540 2 12124 84005 66 0 2076 231 0 0
cpu1 103294 1 10023 67182 382 0 3653 231 0 0
intr 2049021 0 9 0 0
ctxt 3405870
cpufreq 1 2 3
"""
LATER = """\
cpu  190134 3 22247 151588 449 0 5729 562 0 0
cpu0 86540 2 12124 84405 66 0 2076 231 0 0
cpu1 103594 1 10123 67182 382 0 3653 331 0 0
"""
TCP = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:4E20 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 12 1 0 100 0 0 10 0
   1: 0100007F:4E21 0100007F:8000 01 00000000:00000000 00:00000000 00000000     0        0 13 1 0 20 4 30 10 -1
   2: 0100007F:4E21 0100007F:8001 01 00000000:00000000 00:00000000 00000000     0        0 14 1 0 20 4 30 10 -1
   3: 0100007F:8000 0100007F:4E21 01 00000000:00000000 00:00000000 00000000     0        0 15 1 0 20 4 30 10 -1
"""
TCP6 = """\
  sl  local_address                         remote_address                        st
   0: 00000000000000000000000000000000:4E22 00000000000000000000000000000000:0000 0A
"""


def test_ticks_are_read_by_cpu():
    assert cpu_ticks(STAT) == {
        0: CpuTicks(86540 + 2 + 12124 + 2076, 231, 86540 + 2 + 12124 + 84005 + 66 + 2076 + 231),
        1: CpuTicks(103294 + 1 + 10023 + 3653, 231, 103294 + 1 + 10023 + 67182 + 382 + 3653 + 231),
    }
    assert cpu_ticks("cpu0 10 0 5 85\n") == {0: CpuTicks(15, 0, 100)}


def test_shares_are_of_what_passed_in_between():
    before, after = cpu_ticks(STAT), cpu_ticks(LATER)

    assert busy_shares(before, after) == {0: 0.0, 1: 0.8}
    assert steal(before, after) == pytest.approx(100 / 900)
    assert steal(before, before) == 0.0


@pytest.mark.parametrize(("text", "cpus"), [("1\n", [1]), ("0-3", [0, 1, 2, 3]), ("0-1,4,6-7", [0, 1, 4, 6, 7])])
def test_a_cpu_list_is_read(text, cpus):
    assert cpu_list(text) == cpus


def test_quotas_are_in_cpus():
    assert quota_v2("150000 100000\n") == Quota(1.5, 0.1)
    assert quota_v2("max 100000") is None
    assert quota_v1("50000", "100000") == Quota(0.5, 0.1)
    assert quota_v1("-1", "100000") is None


def test_ports_are_counted_once_and_only_local_ones():
    assert ports_taken([TCP, TCP6], 20_000, 32_000) == 3
    assert ports_taken([TCP, TCP6], 0x8000, 0x8001) == 1
    assert ports_taken(["", TCP6], 20_000, 20_002) == 0


TWO = pinning_of([0, 1], wanted=True)
FOUR = pinning_of([0, 1, 2, 5], wanted=True)

JUDGED = {
    "tested Python": (findings.version_finding("python", "3.12.1"), "ok", "tested with 3.11, 3.12, 3.13"),
    "newer Python": (findings.version_finding("python", "3.14.0"), "limits", "run the tests first"),
    "3.1 is not 3.11": (findings.version_finding("python", "3.1.1"), "limits", "run the tests first"),
    "no uvloop": (findings.version_finding("uvloop", "not installed"), "limits", "run the tests first"),
    "fine clock": (findings.clock_finding(1e-9, "tsc"), "ok", "good to that"),
    "coarse clock": (findings.clock_finding(0.004, None), "limits", "that coarse"),
    "exact sleeps": (findings.sleep_finding(6e-5, 3e-4), "ok", "2 ms"),
    "late sleeps": (findings.sleep_finding(1e-4, 4.9e-3), "limits", "the machine's, not the orchestrator's"),
    "hopeless sleeps": (findings.sleep_finding(1e-3, 0.021), "bad", "20 ms late"),
    "grain of a millisecond": (findings.grain_finding(0.0015, 0.002), "ok", "whole ms"),
    "coarser grain": (findings.grain_finding(0.0015, 0.01), "limits", "bursts"),
    "two CPUs": (findings.cpus_finding([0, 1], TWO, may_pin=True), "ok", "gets CPU 1, all else CPU 0"),
    "four CPUs": (findings.cpus_finding([0, 1, 2, 5], FOUR, may_pin=True), "ok", "gets CPU 5, all else CPU 0-2"),
    "one CPU": (findings.cpus_finding([3], Pinning(frozenset(), frozenset()), may_pin=True), "limits", "share it"),
    "no pinning": (findings.cpus_finding([0, 1], TWO, may_pin=False), "limits", "may not be pinned"),
    "no quota": (findings.quota_finding(None), "ok", "nothing is throttled"),
    "wide quota": (findings.quota_finding(Quota(4.0, 0.1)), "ok", "more than the seed scenario needs"),
    "tight quota": (findings.quota_finding(Quota(1.2, 0.1)), "limits", "above about 12,320 tok/s"),
    "hopeless quota": (findings.quota_finding(Quota(0.5, 0.1)), "bad", "less than the orchestrator alone needs"),
    "unknown governor": (findings.governor_finding(None), "ok", "shows if it moves"),
    "held clock": (findings.governor_finding("performance"), "ok", "held"),
    "moving clock": (findings.governor_finding("powersave"), "limits", "cpupower"),
    "many files": (findings.descriptors_finding(1_024, 20_000), "ok", "at most 9,950 streams"),
    "few files": (findings.descriptors_finding(1_024, 4_096), "limits", "at most 1,998 streams"),
    "hardly any files": (findings.descriptors_finding(64, 100), "bad", "at most 0 streams"),
    "usual ports": (findings.ports_finding(32_768, 60_999), "ok", "at most 28,232 streams"),
    "few ports": (findings.ports_finding(60_000, 60_999), "limits", "at most 1,000 streams"),
    "ports of the servers": (findings.ports_finding(1_024, 65_535), "limits", "the servers' ports"),
    "free ports": (findings.server_ports_finding(14), "ok", "20000 to 32000"),
    "no free ports": (findings.server_ports_finding(11_950), "bad", "a run needs 7"),
    "quiet CPU": (findings.wait_finding(1, 0.002), "ok", "suspect from 5%"),
    "shared CPU": (findings.wait_finding(1, 0.06), "limits", "suspect"),
    "busy CPU": (findings.wait_finding(None, 0.5), "bad", "void"),
    "quiet others": (findings.busy_finding({0: 0.01, 2: 0.9}), "ok", "left for fakes and load"),
    "busy others": (findings.busy_finding({0: 0.5}), "limits", "quieter time"),
    "no steal": (findings.steal_finding(0.0006), "ok", "suspect from 1%"),
    "some steal": (findings.steal_finding(0.02), "limits", "suspect"),
    "much steal": (findings.steal_finding(0.2), "bad", "void"),
    "even work": (findings.yardstick_finding([1e6, 1.01e6, 0.99e6]), "ok", "about 1% of a chunk's cost"),
    "uneven work": (findings.yardstick_finding([1e6, 1.3e6, 0.9e6]), "limits", "resolves about 12%"),
    "found tool": (findings.tool_finding("nginx", "/usr/sbin/nginx", "bench", "apt"), "ok", "bench"),
    "missing tool": (findings.tool_finding("nginx", None, "nginx bench", "apt"), "limits", "no nginx bench; apt"),
    "counters": (findings.counter_finding(["breakpoint", "cpu", "power"]), "ok", "counts instructions"),
    "no counters": (findings.counter_finding(["breakpoint", "power"]), "limits", "valgrind"),
    "same core": (findings.siblings_finding(1, [0, 1], [0]), "limits", "CPU 0 of the same core"),
    "own core": (findings.siblings_finding(5, [5], [0, 1, 2]), "ok", "as far as this machine shows"),
    "high ceiling": (ceiling_finding(Ceiling(61_000.0, None)), "ok", "neither was late"),
    "enough": (ceiling_finding(Ceiling(24_000.0, "gen")), "ok", "then gen is late"),
    "low ceiling": (ceiling_finding(Ceiling(9_000.0, "load")), "limits", "the seed scenario's 15,400 are"),
}  # fmt: skip


@pytest.mark.parametrize(("finding", "state", "words"), JUDGED.values(), ids=JUDGED)
def test_a_fact_is_judged(finding, state, words):
    assert (finding.state, words in finding.meaning) == (state, True), finding


def test_a_machine_that_hides_its_cores_gets_no_line_about_them():
    assert findings.siblings_finding(1, None, [0]) is None


def test_limits_are_those_of_the_verdict():
    at = thresholds.ORCHESTRATOR_WAIT_VOID

    assert [findings.wait_finding(1, share).state for share in (at, at + 1e-9)] == ["limits", "bad"]


def test_tested_versions_are_the_locked_ones_and_pythons_the_classifiers():
    lock = dict(re.findall(r"^(aiohttp|uvloop)==([\d.]+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE))
    pythons = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text())

    assert [findings.version_finding(name, version).state for name, version in sorted(lock.items())] == ["ok", "ok"]
    assert findings.TESTED["python"] == tuple(pythons)


GOOD, LATE_GEN, LATE_LOAD, DEAF = (0.001, 0.01), (0.03, 0.01), (0.001, 0.06), (0.001, None)


@pytest.mark.parametrize(
    ("lags", "ceiling"),
    [
        ([GOOD, GOOD, GOOD], Ceiling(3_000.0, None)),
        ([GOOD, GOOD, LATE_GEN, LATE_GEN, GOOD], Ceiling(2_000.0, "gen")),
        ([GOOD, LATE_LOAD, LATE_GEN], Ceiling(1_000.0, "load")),
        ([GOOD, LATE_GEN, GOOD, GOOD], Ceiling(4_000.0, None)),
        ([GOOD, GOOD, DEAF], Ceiling(2_000.0, "load")),
        ([LATE_GEN, LATE_GEN], Ceiling(0.0, "gen")),
        ([], Ceiling(0.0, None)),
    ],
)
def test_the_ceiling_is_the_highest_rate_before_two_late_seconds(lags, ceiling):
    assert ceiling_of([Second(1_000.0 * (i + 1), *lag) for i, lag in enumerate(lags)]) == ceiling


def test_a_second_holds_only_its_own_tokens():
    late = LogHistogram()
    late.record_ns(900_000_000, 100)
    first = {"tokens": 100, "pacing": {"lateness": late.to_json()}}
    late.record_ns(1_000_000, 400)
    second = {"tokens": 500, "pacing": {"lateness": late.to_json()}}

    [found] = seconds_of([(10.0, first, 0.5), (10.5, second, 0.002)])
    assert found.tok_s == pytest.approx(800.0)
    assert found.gen_late_p99_s == pytest.approx(0.001, rel=0.02)
    assert found.client_lag_s == 0.002


def rendered(*found):
    states = [finding.state for finding in found]
    state = next(state for state in findings.STATES if state in states)
    return render_doctor({"machine": "m", "state": state, "findings": [finding.to_json() for finding in found]})


def test_every_line_fits_a_terminal_and_holds_what_was_found():
    text = rendered(*(finding for finding, _, _ in JUDGED.values()))

    assert max(map(len, text.splitlines())) <= WIDTH
    for finding, _, _ in JUDGED.values():
        for word in f"{finding.name} {finding.value} {finding.meaning}".split():
            assert word in text


def test_the_last_sentence_names_what_limits():
    assert rendered(JUDGED["two CPUs"][0]).endswith("OK: nothing here limits a run of the seed scenario.")
    assert rendered(JUDGED["few files"][0], JUDGED["missing tool"][0]).endswith("within what is said of open files.")
    assert "BAD: a run here and now would be void or fail, because of run-queue wait." in rendered(
        JUDGED["busy CPU"][0]
    )


def test_this_machine_is_read_without_an_error():
    names = [finding.name for finding in [*machine_findings(), *tool_findings()]]

    assert {"python", "aiohttp", "uvloop", "clock", "CPUs", "CPU quota", "open files", "local ports"} <= set(names)
    assert len(names) == len(set(names))
