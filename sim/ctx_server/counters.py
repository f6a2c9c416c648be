"""What a context server counts, exactly, and how Prometheus sees it.

Every request ends in one outcome, so requests = live + the sum of the outcomes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from sim.core.prefix_cache import PrefixCache
from sim.ctx_server.prefill import PrefillQueue
from sim.service.metrics import counter, gauge, histogram

__all__ = ["CtxCollector", "CtxCounters"]

REFUSALS = ("bad_request", "queue_full")
OUTCOMES = ("answered", "client_gone", "failed", *REFUSALS)


class CtxCounters:
    """Counts of one server, beside those its queue and its prefix cache keep."""

    def __init__(self, queue: PrefillQueue, cache: PrefixCache) -> None:
        self.queue = queue
        self.cache = cache
        self.requests = 0
        self.live = 0
        self.ended = dict.fromkeys(OUTCOMES, 0)
        self.prompt_tokens = {"cached": 0, "computed": 0}

    def to_json(self) -> dict[str, Any]:
        """The body of GET /admin/counters."""
        queue = self.queue
        return {
            "requests": self.requests,
            "live": self.live,
            "queued": queue.queued,
            "answered": self.ended["answered"],
            "client_gone": self.ended["client_gone"],
            "failed": self.ended["failed"],
            "refused": {reason: self.ended[reason] for reason in REFUSALS},
            "prompt_tokens": dict(self.prompt_tokens),
            "prefix_cache": {"blocks": self.cache.blocks, "evicted": self.cache.evicted},
            "slots": {"total": queue.settings.slots, "busy": queue.running},
            "prefill": {
                "asked_s": queue.asked_ns / 1e9,
                "delivered_s": queue.delivered_ns / 1e9,
                "lateness": queue.lateness.to_json(),
                "queue_wait": queue.waited.to_json(),
            },
        }


class CtxCollector(Collector):
    """The ctx series of /metrics; listed in docs/metrics.md."""

    def __init__(self, counters: CtxCounters) -> None:
        self._counters = counters

    def collect(self) -> Iterable[Metric]:
        """All families, as of now."""
        counters, queue = self._counters, self._counters.queue
        yield counter("disagg_ctx_requests", "Prefill requests received.", counters.requests)
        yield counter("disagg_ctx_requests_ended", "Prefill requests ended, by outcome.", counters.ended, "outcome")
        yield counter(
            "disagg_ctx_prompt_tokens",
            "Prompt tokens answered for: found in the prefix cache, or computed.",
            counters.prompt_tokens,
            "source",
        )
        cache = counters.cache
        yield gauge("disagg_ctx_prefix_cache_blocks", "Blocks that the prefix cache holds.", cache.blocks)
        yield counter("disagg_ctx_prefix_cache_evictions", "Blocks it had to let go of.", cache.evicted)
        yield gauge("disagg_ctx_slots", "Prefills that may run at the same time.", queue.settings.slots)
        yield gauge("disagg_ctx_slots_busy", "Prefills running.", queue.running)
        yield gauge("disagg_ctx_queue_depth", "Prefills waiting for a slot.", queue.queued)
        yield histogram("disagg_ctx_queue_wait_seconds", "Modelled wait of a prefill for its slot.", queue.waited)
        yield counter("disagg_ctx_prefill_asked_seconds", "Prefill time asked for by the model.", queue.asked_ns / 1e9)
        yield counter("disagg_ctx_prefill_delivered_seconds", "Prefill time delivered.", queue.delivered_ns / 1e9)
        yield histogram(
            "disagg_ctx_prefill_lateness_seconds", "How long after its due time a prefill ended.", queue.lateness
        )
