"""Workers' reports added up: counts, histograms bucket by bucket, lines with their worker, and what a dead one lost."""

from __future__ import annotations

import json
import math
from collections import Counter
from random import Random

import pytest

from loadtest.load_settings import LoadSettings
from loadtest.lost_streams import GivenCopy, streams_due
from loadtest.machine_clock import MachineClock
from loadtest.recorder import Recorder, Totals
from loadtest.recorder_state import add_state, counting, state_of, totals_json
from loadtest.worker_reports import WorkerReports
from loadtest.workload import plan_requests
from sim.core.histogram import LogHistogram
from tests.pure.replies import MS, events_of, read, reads_of
from tests.pure.test_load_metrics import health
from tests.pure.test_recorder import record


def filled(rng):
    """A recorder in which every attribute that counts has counted something."""
    recorder = Recorder()
    for name, value in counting(recorder).items():
        if isinstance(value, int):
            setattr(recorder, name, rng.randrange(1, 1000))
        elif isinstance(value, Counter):
            value.update({"ok": rng.randrange(1, 9), f"http_{rng.randrange(500, 503)}": 1})
        elif isinstance(value, Totals):
            value.add(read(reads_of(events_of(rng.randrange(2, 20)))))
        else:
            histogram = value if isinstance(value, LogHistogram) else value.histogram
            for _ in range(rng.randrange(1, 200)):
                histogram.record_ns(rng.randrange(10**9))
    return recorder


def test_everything_that_a_recorder_counts_is_in_its_state_and_adds_up():
    rng = Random(1)
    recorders = [filled(rng) for _ in range(3)]
    merged = Recorder()
    for recorder in recorders:
        add_state(merged, json.loads(json.dumps(state_of(recorder))))

    for name, value in counting(merged).items():
        parts = [getattr(recorder, name) for recorder in recorders]
        if isinstance(value, int):
            assert value == sum(parts) > 0, name
        elif isinstance(value, Counter):
            assert value == sum(parts, Counter()), name
        elif isinstance(value, Totals):
            assert value.by_kind["chunks"] == sum(part.by_kind["chunks"] for part in parts) > 0
            assert value.bytes == sum(part.bytes for part in parts)
        else:
            histogram = value if isinstance(value, LogHistogram) else value.histogram
            assert histogram.count == sum(getattr(part, "histogram", part).count for part in parts) > 0, name


def test_a_state_that_does_not_count_the_same_things_is_refused():
    state = state_of(Recorder())
    del state["started"]
    with pytest.raises(KeyError, match="started"):
        add_state(Recorder(), state)


def test_percentiles_of_the_sum_are_those_of_all_samples_and_not_an_average():
    """Three workers with unlike times; the histogram knows a value to 1.6 %."""
    rng = Random(2)
    raw = [[round(rng.lognormvariate(mu, 0.8) * MS) for _ in range(n)] for mu, n in ((1, 4000), (3, 900), (5, 100))]
    merged = Recorder()
    for values in raw:
        one = Recorder()
        one.ttft.record_all_ns(values)
        add_state(merged, state_of(one))

    together = sorted(value for values in raw for value in values)
    assert merged.ttft.count == len(together)
    assert merged.ttft.max_ns == together[-1]
    for q in (0.5, 0.9, 0.99, 0.999):
        exact_s = together[math.ceil(q * len(together)) - 1] / 1e9
        assert exact_s <= merged.ttft.quantile_s(q) <= exact_s * (1 + 1 / 64)
    averaged_s = sum(sorted(values)[len(values) // 2] for values in raw) / 3e9
    assert averaged_s > 5 * merged.ttft.quantile_s(0.5)


def report(recorder=None, *, lines="", samples=(), live=0, settled=-1, share=None):
    return {
        "share": share, "pid": 7, "host": "box", "ops": "http://127.0.0.1:9", "start_ns": 5, "cpu_s": 1.5,
        "counted": None if recorder is None else state_of(recorder), "live": live,
        "totals": totals_json(Totals() if recorder is None else recorder.totals()), "lines": lines,
        "health": {**health().to_json(), "samples": list(samples), "late_ticks": 2}, "settled": settled,
    }  # fmt: skip


def counted(*outcomes, planned=0):
    recorder = Recorder()
    recorder.planned = planned
    for outcome in outcomes:
        recorder.start(0, 0, 2 * MS)
        recorder.end(record(outcome), read(reads_of(events_of(13))))
    return recorder


def test_the_newest_report_of_each_worker_counts_and_lines_and_samples_are_kept_once():
    reports = WorkerReports(Recorder)
    for worker in "ab":
        reports.take(worker, report())
    reports.workers["a"].index, reports.workers["b"].index = 0, 1
    assert reports.take("a", report(counted("ok", planned=3), lines='{"seq":0}\n', samples=[{"t_ns": 1}])) == (
        '{"seq":0,"worker":0}\n'
    )
    assert reports.take("b", report(counted("cut", planned=3), lines='{"seq":1}\n', live=2)) == '{"seq":1,"worker":1}\n'
    assert (reports.live(), reports.totals().tokens) == (2, 26)
    reports.take("a", report(counted("ok", "ok", planned=3), lines='{"seq":2}\n', samples=[{"t_ns": 2}]))
    found = reports.to_json()

    assert found["streams"] == {
        **found["streams"],
        "planned": 6,
        "started": 3,
        "ok": 2,
        "failed": {"cut": 1},
        "lost": 0,
    }
    assert (found["tokens"], found["lateness"]["count"], found["cpu_s"], found["late_ticks"]) == (39, 3, 3.0, 4)
    first, second = found["workers"]
    assert (first["index"], first["planned"], first["ended"], first["health"]) == (0, 3, 2, [{"t_ns": 1}, {"t_ns": 2}])
    assert (second["id"], second["gone"], second["lost"], second["pid"]) == ("b", False, 0, 7)


def test_of_a_worker_that_is_gone_everything_without_a_line_is_lost():
    reports = WorkerReports(Recorder)
    for index, worker in enumerate("ab"):
        reports.take(worker, report())
        reports.workers[worker].index = index
    reports.take("a", report(counted("ok", "ok", "cut", planned=10), lines='{"seq":0}\n{"seq":2}\n{"seq":4}\n', live=7))
    reports.take("b", report(counted(*["ok"] * 10, planned=10), lines='{"seq":1}\n' * 10))
    reports.workers["a"].lose(10)
    found = reports.to_json()["streams"]

    assert (found["planned"], found["lost"]) == (20, 7)
    assert found["planned"] == found["ok"] + sum(found["failed"].values()) + found["aborted"] + found["lost"]
    assert reports.live() == 0
    assert reports.to_json()["workers"][0]["gone"]


def test_what_a_cap_kept_unsent_is_not_lost_too():
    reports = WorkerReports(Recorder)
    recorder = counted("ok", "ok", planned=2)
    for _ in range(3):
        recorder.leave_unsent()
    reports.take("a", report(recorder, lines='{"seq":0}\n{"seq":2}\n'))
    reports.workers["a"].lose(7)
    streams = reports.to_json()["streams"]

    assert (streams["planned"], streams["unsent"], streams["ok"], streams["lost"]) == (7, 3, 2, 2)


def test_a_worker_that_dies_before_its_first_report_has_planned_its_share_all_the_same():
    reports = WorkerReports(Recorder)
    reports.take("a", report())
    reports.workers["a"].index = 0
    reports.workers["a"].lose(4)
    found = reports.to_json()

    assert (found["streams"]["planned"], found["streams"]["lost"], found["streams"]["ok"]) == (4, 4, 0)
    assert found["workers"][0]["planned"] == 4


SETTINGS = LoadSettings(arrivals="poisson", request_rate=20, duration_s=3)


def test_what_was_due_is_the_workers_shares_of_every_copy_up_to_its_end():
    copies = [
        GivenCopy(0, 1_000, ("a", "a/0"), ["a", "b", "c"]),
        GivenCopy(1, 1_000, ("b", "b/0"), ["a", "c"], stopped_ns=1_000 + 10**9),
    ]
    first, second = (plan_requests(SETTINGS, SETTINGS.seed + number) for number in (0, 1))
    due = {
        "a": len(first[0::3]) + sum(request.due_ns < 10**9 for request in second[0::2]),
        "b": len(first[1::3]),
        "c": len(first[2::3]) + sum(request.due_ns < 10**9 for request in second[1::2]),
    }

    assert {worker: streams_due(SETTINGS, (), copies, worker) for worker in "abcd"} == {**due, "d": 0}
    assert 0 < due["a"] - len(first[0::3]) < len(second[0::2])


def test_a_closed_loop_plans_nothing_that_could_be_due():
    settings = LoadSettings(arrivals="closed", max_concurrency=4, duration_s=3)
    assert streams_due(settings, (), [GivenCopy(0, 1, ("a", "a/0"), ["a"])], "a") is None


def test_clocks_of_two_machines_meet_by_the_wall_clock_and_one_machines_are_the_same():
    here, there = MachineClock("boot a", 1_000), MachineClock("boot b", 400)

    assert here.to(there) == 600
    assert there.to(here) == -600
    assert here.to(MachineClock("boot a", 1_007)) == 0  # two readings of one clock differ by their jitter
    assert MachineClock.from_json(json.loads(json.dumps(here.to_json()))) == here
    assert MachineClock.here().boot_id == MachineClock.here().boot_id != ""
