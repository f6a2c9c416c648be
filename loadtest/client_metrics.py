"""The load's own series of /metrics: a collector that reads the load's counts when scraped.

Listed in docs/metrics.md.  Loop health of the process is `sim.service.metrics`'s.
"""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from loadtest.goodput import MISSES
from loadtest.load_view import LoadView
from loadtest.outcomes import ABORTED, CANCELLED, FAULTS, OK
from sim.service.metrics import counter, gauge, histogram

__all__ = ["LoadCollector"]

# One label value for every HTTP status: labels must be known beforehand.
_LABELS = (OK, ABORTED, CANCELLED, *(name for name in FAULTS if "<" not in name), "http_status")


class LoadCollector(Collector):
    """The series of one load process, or of all workers of a master."""

    def __init__(self, load: LoadView) -> None:
        self._load = load

    def collect(self) -> Iterable[Metric]:
        """All families, as of now."""
        recorder, totals = self._load.recorder, self._load.totals()
        outcomes = dict.fromkeys(_LABELS, 0)
        for outcome, count in recorder.outcomes.items():
            outcomes["http_status" if outcome.startswith("http_") else outcome] += count
        yield counter("disagg_client_streams_started", "Requests sent.", recorder.started)
        yield counter(
            "disagg_client_requests_unsent", "Requests due and not sent, for want of a slot.", recorder.unsent
        )
        yield gauge("disagg_client_streams_live", "Requests whose reply has not ended.", self._load.live())
        yield counter("disagg_client_streams_ended", "Replies ended and checked, by outcome.", outcomes, "outcome")
        yield counter("disagg_client_tokens", "Tokens received.", totals.tokens)
        kinds = {kind.removesuffix("_events").replace("chunks", "content"): n for kind, n in totals.by_kind.items()}
        yield counter("disagg_client_events", "Server-sent events received, by kind.", kinds, "kind")
        yield counter("disagg_client_event_bytes", "Bytes of those events, without HTTP framing.", totals.bytes)
        yield histogram(
            "disagg_client_send_lateness_seconds",
            "How late requests were sent, after their time and, with a cap on concurrency, their slot.",
            recorder.lateness,
        )
        yield histogram(
            "disagg_client_held_back_seconds", "How long the cap on concurrency held requests back.", recorder.held
        )
        yield histogram(
            "disagg_client_ttft_seconds",
            "Time to first token, from the planned and from the real send.",
            {"planned": recorder.ttft, "sent": recorder.ttft_from_sent},
            "since",
        )
        yield histogram("disagg_client_itl_seconds", "Inter-token latency, every token.", recorder.itl)
        yield histogram("disagg_client_inter_chunk_seconds", "Inter-chunk latency, every chunk.", recorder.inter_chunk)
        yield histogram("disagg_client_tpot_seconds", "Time per output token of replies that passed.", recorder.tpot)
        yield histogram(
            "disagg_client_e2e_seconds",
            "Duration of replies that passed their checks, from the planned and from the real send.",
            {"planned": recorder.e2e, "sent": recorder.e2e_from_sent},
            "since",
        )
        yield counter(
            "disagg_client_goodput_streams",
            "Streams by whether they kept every goodput limit.",
            {"within": recorder.within_slo, "missed": recorder.missed_slo},
            "slo",
        )
        yield counter(
            "disagg_client_goodput_missed",
            "What the streams that missed it missed; one may miss several.",
            {what: recorder.missed[what] for what in MISSES},
            "what",
        )
