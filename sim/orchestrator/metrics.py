"""The orchestrator's own series on /metrics, read from its counters when scraped.

Nothing is observed per chunk.  What a policy cost is credited when a ledger closes (`credit`), so a scrape
shows whole blocks only.  Names, units and labels are listed in docs/metrics.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from sim.orchestrator.arms import Arms
from sim.orchestrator.counters import Counters
from sim.orchestrator.credit import PolicyCredit
from sim.orchestrator.policies import BUILTIN
from sim.orchestrator.upstream import Upstream
from sim.service.metrics import counter, gauge, histogram

__all__ = ["OrchestratorCollector"]


class OrchestratorCollector(Collector):
    """Requests, streams, relay, upstreams and policies of one orchestrator."""

    def __init__(self, counters: Counters, arms: Arms, credit: PolicyCredit, upstreams: Sequence[Upstream]) -> None:
        self._counters = counters
        self._arms = arms
        self._credit = credit
        self._upstreams = upstreams

    def collect(self) -> Iterable[Metric]:
        """All families."""
        yield from self._requests()
        yield from self._relay()
        yield from self._servers()
        yield from self._policies()

    def _requests(self) -> Iterable[Metric]:
        c = self._counters
        yield counter("disagg_orchestrator_requests", "Completion requests received.", c.requests)
        yield counter("disagg_orchestrator_answers", "Non-streamed answers sent with status 200.", c.answers)
        yield counter(
            "disagg_orchestrator_failures",
            "Requests refused or failed before any byte of an answer.",
            c.failures,
            "reason",
        )
        yield counter("disagg_orchestrator_retries", "Further tries of a hop.", c.retries, "role")
        yield counter("disagg_orchestrator_streams_started", "Streams opened to a client.", c.started)
        yield gauge("disagg_orchestrator_streams_live", "Streams open now.", c.live)
        yield counter("disagg_orchestrator_streams_ended", "Streams by how they ended.", c.ended, "reason")

    def _relay(self) -> Iterable[Metric]:
        c = self._counters
        yield counter("disagg_orchestrator_reads", "Reads of gen streams that gave bytes.", c.reads)
        kinds = {
            "chunk": c.chunks,
            "role": c.role_events,
            "finish": c.finish_events,
            "usage": c.usage_events,
            "done": c.done_events,
        }
        yield counter("disagg_orchestrator_events", "Relayed SSE events; a chunk carries a token.", kinds, "kind")
        sizes = {"in": c.bytes_in, "out": c.bytes_out}
        yield counter("disagg_orchestrator_bytes", "Stream bytes from gen and to clients.", sizes, "direction")

    def _servers(self) -> Iterable[Metric]:
        ready = GaugeMetricFamily(
            "disagg_orchestrator_upstream_ready", "1 if the server answers /health with 200.", labels=["role", "url"]
        )
        outstanding = GaugeMetricFamily(
            "disagg_orchestrator_upstream_outstanding", "Requests the server has not finished.", labels=["role", "url"]
        )
        for upstream in self._upstreams:
            ready.add_metric([upstream.role, upstream.url], float(upstream.ready))
            outstanding.add_metric([upstream.role, upstream.url], upstream.outstanding)
        yield ready
        yield outstanding

    def _policies(self) -> Iterable[Metric]:
        self._credit.bring_up_to_date()
        arms, names = self._arms, self._arms.names
        active = {name: float(name == arms.policy) for name in names}
        yield gauge("disagg_policy_active", "1 for the active policy.", active, "policy")
        for outcome in ("unchanged", "changed", "failed"):
            yield counter(
                f"disagg_policy_events_{outcome}",
                f"Events that the policy was offered: {outcome}.",
                {name: getattr(c, outcome) for name, c in zip(names, arms.counters, strict=True)},
                "policy",
            )
        parsed = {name: c.parsed for name, c in zip(names, arms.counters, strict=True) if name in BUILTIN}
        yield counter("disagg_policy_events_parsed", "Events decoded by a built-in policy.", parsed, "policy")
        totals = dict(zip(names, self._credit.totals, strict=True))
        yield counter(
            "disagg_policy_cpu_seconds",
            "CPU of the process while the policy was active, credited when its ledger closed.",
            {name: t.cpu_ns / 1e9 for name, t in totals.items()},
            "policy",
        )
        yield counter(
            "disagg_policy_wall_seconds",
            "Time covered by that.",
            {n: t.wall_ns / 1e9 for n, t in totals.items()},
            "policy",
        )
        yield counter(
            "disagg_policy_chunks", "Chunks in that time.", {n: t.chunks for n, t in totals.items()}, "policy"
        )
        yield counter(
            "disagg_policy_blocks", "Blocks in that time.", {n: t.blocks for n, t in totals.items()}, "policy"
        )
        yield histogram(
            "disagg_policy_loop_lag_seconds",
            "Lateness of the loop's canary in that time.",
            {n: t.lag for n, t in totals.items()},
            "policy",
        )
