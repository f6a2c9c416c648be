"""Loop health on /metrics: a collector that reads `LoopHealth` when scraped, so that a tick costs nothing here.

Names, units and labels are listed in docs/metrics.md, which a test holds against this.  Series exist from the
start, at zero; no label takes a value that is not known beforehand.  Metrics of one kind of server live with
that server.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector

from sim.core.histogram import LogHistogram
from sim.service.health import LoopHealth

__all__ = ["BOUNDS_S", "LoopHealthCollector", "counter", "gauge", "histogram", "summary"]

V = TypeVar("V")

BOUNDS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


class LoopHealthCollector(Collector):
    """The loop-health series of one process."""

    def __init__(self, health: LoopHealth) -> None:
        self._health = health

    def collect(self) -> Iterable[Metric]:
        """All families, as of the last tick."""
        health, total = self._health, self._health.total
        loop_late = total.late_ticks - total.late_ticks_kernel
        yield histogram("disagg_loop_lag_seconds", "Lateness of the loop's 10 ms canary.", total.lag)
        yield histogram(
            "disagg_loop_lag_by_cause_seconds",
            "That lateness, split: the loop was busy, or the kernel did not run it.",
            {"loop": total.lag_loop, "kernel": total.lag_kernel},
            "cause",
        )
        yield counter(
            "disagg_loop_late_ticks",
            "Canaries more than 5 ms late, by who is to blame for most of it.",
            {"loop": loop_late, "kernel": total.late_ticks_kernel},
            "cause",
        )
        yield counter("disagg_loop_cpu_seconds", "CPU time of the loop's thread.", health.loop_cpu_ns / 1e9)
        yield counter(
            "disagg_loop_run_queue_wait_seconds",
            "Time that the loop's thread could have run but the kernel ran others.",
            health.run_queue_wait_ns / 1e9,
        )
        yield gauge("disagg_loop_utilization_ratio", "CPU share of the loop's thread, last second.", health.utilization)
        yield counter("disagg_gc_pause_seconds", "Time in garbage collections.", health.gc.total_ns / 1e9)
        yield counter(
            "disagg_gc_pauses",
            "Garbage collections, by generation.",
            {str(generation): count for generation, count in enumerate(health.gc.count)},
            "generation",
        )
        yield gauge("disagg_gc_pause_max_seconds", "Longest garbage collection.", health.gc.max_ns / 1e9)
        yield counter("disagg_process_cpu_seconds", "CPU time of the process.", health.facts.process_cpu_ns / 1e9)
        yield gauge("disagg_process_resident_memory_bytes", "Resident memory.", health.facts.rss_bytes)
        yield counter(
            "disagg_process_throttled_seconds",
            "Time that a CPU quota of the control group held the process back.",
            health.facts.throttled_us / 1e6,
        )


def counter(name: str, text: str, value: float | Mapping[str, float], label: str = "") -> Metric:
    """A counter family ("_total" is added on the wire), plain or by one ``label``."""
    family = CounterMetricFamily(name, text, labels=[label] if label else None)
    for labels, number in _by_label(value):
        family.add_metric(labels, number)
    return family


def gauge(name: str, text: str, value: float | Mapping[str, float], label: str = "") -> Metric:
    """A gauge family, plain or by one ``label``."""
    family = GaugeMetricFamily(name, text, labels=[label] if label else None)
    for labels, number in _by_label(value):
        family.add_metric(labels, number)
    return family


def histogram(name: str, text: str, value: LogHistogram | Mapping[str, LogHistogram], label: str = "") -> Metric:
    """A histogram family at `BOUNDS_S`, plain or by one ``label``.

    A fine bucket that straddles a bound counts above it, so a bound's share is understated by at most the
    histogram's own 1.6 %.
    """
    family = HistogramMetricFamily(name, text, labels=[label] if label else None)
    for labels, fine in _by_label(value):
        family.add_metric(labels, list(_coarse(fine)), fine.sum_ns / 1e9)
    return family


def summary(name: str, text: str, sum_ns: int, count: int) -> Metric:
    """A sum and a count, from which a mean over any stretch can be had."""
    return SummaryMetricFamily(name, text, count_value=count, sum_value=sum_ns / 1e9)


def _by_label(value: V | Mapping[str, V]) -> Iterator[tuple[list[str], V]]:
    if isinstance(value, Mapping):
        for label, one in value.items():
            yield [label], one
    else:
        yield [], value


def _coarse(fine: LogHistogram) -> Iterator[tuple[str, float]]:
    buckets = iter(fine.buckets())
    upper_s, cumulative = next(buckets, (float("inf"), 0))
    below = 0
    for bound_s in BOUNDS_S:
        while upper_s <= bound_s:
            below = cumulative
            upper_s, cumulative = next(buckets, (float("inf"), cumulative))
        yield str(bound_s), below
    yield "+Inf", fine.count
