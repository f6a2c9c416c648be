"""docs/metrics.md against what the collectors yield: names, types, labels; and label values that exist at zero."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from sim.core.histogram import LogHistogram
from sim.core.prefix_cache import PrefixCache
from sim.core.settings import CtxSettings, GenSettings
from sim.ctx_server.counters import CtxCollector, CtxCounters
from sim.ctx_server.prefill import PrefillQueue
from sim.gen_server.counters import GenCollector, GenCounters
from sim.service.health import GcPauses, LoopHealth
from sim.service.metrics import BOUNDS_S, LoopHealthCollector, histogram
from sim.service.proc import ProcFacts
from sim.service.wheel import TimerWheel
from tests.pure.fake_time import MS, FakeLoop

PAGE = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
ROW = re.compile(r"^\| `(disagg_\w+)` \| (\w+) \| (.*?) ?\| (.+) \|$", re.MULTILINE)


NO_FACTS = ProcFacts(process_cpu_ns=0, throttled_us=0, machine_ticks=(0, 0), rss_bytes=0)


def health_collector(facts=NO_FACTS, gc_clock=lambda: 0):
    health = LoopHealth(lambda: facts, GcPauses(gc_clock), start_ns=0, cpu_ns=0, wait_ns=0, sample_ns=100 * MS)
    return health, LoopHealthCollector(health)


def ctx_collector():
    loop = FakeLoop()
    queue = PrefillQueue(CtxSettings(), TimerWheel(loop, loop.clock))
    return CtxCollector(CtxCounters(queue, PrefixCache(512)))


SECTIONS = {
    "Every process: loop health": lambda: health_collector()[1],
    "The context server": ctx_collector,
    "The generation server": lambda: GenCollector(GenCounters(), GenSettings(), lambda: 0),
}


def text_of(section):
    return PAGE.split(f"\n## {section}\n", 1)[1].split("\n## ", 1)[0]


def documented(section):
    return {
        name: (kind, set(re.findall(r"`(\w+)`", labels))) for name, kind, labels, _ in ROW.findall(text_of(section))
    }


@pytest.mark.parametrize("section", SECTIONS)
def test_the_page_lists_exactly_what_is_served(section):
    served = {}
    for family in SECTIONS[section]().collect():
        labels = set(itertools.chain(*(sample.labels for sample in family.samples))) - {"le"}
        name = f"{family.name}_total" if family.type == "counter" else family.name
        served[name] = (family.type, labels)

    assert documented(section) == served


@pytest.mark.parametrize("section", SECTIONS)
def test_series_exist_at_zero_and_their_label_values_are_on_the_page(section):
    text = text_of(section)
    for family in SECTIONS[section]().collect():
        assert family.samples
        for sample in family.samples:
            if not sample.name.endswith("_slots"):
                assert sample.value == 0
            for label in sample.labels.keys() - {"le"}:
                assert f"`{sample.labels[label]}`" in text or f'{label}="{sample.labels[label]}"' in text


@pytest.mark.parametrize("section", SECTIONS)
def test_names_carry_base_units(section):
    for name, kind, _, what in ROW.findall(text_of(section)):
        stem = name.removesuffix("_total")
        assert stem.endswith("_seconds") == (", seconds" in what or what.endswith("seconds"))
        assert stem.endswith("_bytes") == (", bytes" in what)
        assert name.endswith("_total") == (kind == "counter")


def test_loop_health_values():
    facts = ProcFacts(process_cpu_ns=70 * MS, throttled_us=2_500, machine_ticks=(0, 0), rss_bytes=50_000_000)
    gc_times_ns = iter([0, 3 * MS, 10 * MS, 12 * MS])
    health, collector = health_collector(facts, lambda: next(gc_times_ns))
    health.tick(10 * MS, 18 * MS, cpu_ns=40 * MS, wait_ns=6 * MS)
    health.tick(20 * MS, 127 * MS, cpu_ns=50 * MS, wait_ns=6 * MS)
    for generation in (1, 0):
        health.gc.on_gc("start", {"generation": generation})
        health.gc.on_gc("stop", {"generation": generation})
    values = {(sample.name, *sample.labels.values()): sample.value for f in collector.collect() for sample in f.samples}

    assert values["disagg_loop_lag_seconds_count",] == 12
    assert values["disagg_loop_late_ticks_total", "kernel"] == 1
    assert values["disagg_loop_late_ticks_total", "loop"] == 11
    assert values["disagg_loop_lag_by_cause_seconds_sum", "kernel"] == pytest.approx(0.006)
    lag_s = (8 + sum(range(107, 0, -10))) / 1e3
    assert values["disagg_loop_lag_seconds_sum",] == pytest.approx(lag_s)
    assert values["disagg_loop_lag_by_cause_seconds_sum", "loop"] == pytest.approx(lag_s - 0.006)
    assert values["disagg_loop_cpu_seconds_total",] == pytest.approx(0.05)
    assert values["disagg_loop_run_queue_wait_seconds_total",] == pytest.approx(0.006)
    assert values["disagg_loop_utilization_ratio",] == pytest.approx(50 / 127)
    assert values["disagg_gc_pauses_total", "1"] == 1
    assert values["disagg_gc_pause_seconds_total",] == pytest.approx(0.005)
    assert values["disagg_gc_pause_max_seconds",] == pytest.approx(0.003)
    assert values["disagg_process_cpu_seconds_total",] == pytest.approx(0.07)
    assert values["disagg_process_throttled_seconds_total",] == pytest.approx(0.0025)
    assert values["disagg_process_resident_memory_bytes",] == 50_000_000


def test_histogram_buckets_are_cumulative_and_end_with_all():
    fine = LogHistogram()
    for late_ms in (0, 1, 3, 30, 3_000, 60_000):
        fine.record_ns(late_ms * MS)
    family = histogram("x_seconds", "x", fine)
    buckets = {sample.labels["le"]: sample.value for sample in family.samples if sample.name == "x_seconds_bucket"}

    assert len(buckets) == len(BOUNDS_S) + 1
    assert [buckets[le] for le in ("0.0005", "0.002", "0.005", "0.05", "5.0", "10.0", "+Inf")] == [1, 2, 3, 4, 5, 5, 6]
