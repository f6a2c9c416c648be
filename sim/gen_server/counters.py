"""What a generation server counts, exactly, and how Prometheus sees it.

Counted where bytes are written, so the numbers can be held against the orchestrator's and the client's to the
unit, but for a client that hangs up: what is written until its handler is cancelled counts too.  Every request
is refused, or becomes a stream or a whole answer, and each of those ends in one outcome.  The interval
between tokens is kept as sums per stream (first to last), which costs nothing per token.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from sim.core.histogram import LogHistogram
from sim.core.settings import GenSettings
from sim.service.metrics import counter, gauge, histogram, summary

__all__ = ["LATE_AT_ONCE", "GenCollector", "GenCounters", "LiveReply", "Lives"]

OUTCOMES = ("complete", "drained", "client_gone", "stopped", "failed")
LATE_AT_ONCE = 4096
"""Due tokens whose lateness is counted in one go."""

_UPPER_HALF = 1 if sys.byteorder == "little" else 0
REFUSALS = ("bad_request", "no_slot", "client_gone", "failed")


class Lives:
    """Beginnings and ends of one kind of reply."""

    def __init__(self) -> None:
        self.started = 0
        self.ended = dict.fromkeys(OUTCOMES, 0)

    @property
    def live(self) -> int:
        """Those that have begun and not ended."""
        return self.started - sum(self.ended.values())

    def to_json(self) -> dict[str, Any]:
        """Part of the body of GET /admin/counters."""
        return {"started": self.started, "live": self.live, "ended": dict(self.ended)}


class LiveReply(Protocol):
    """A reply in progress; its intervals are a sum in ns and the number of them that it covers."""

    def asked(self) -> tuple[int, int]:
        """From the first token's due time to the last one's."""

    def delivered(self) -> tuple[int, int]:
        """From the first token's coming out to the last one's."""

    def drain(self) -> bool:
        """Let the next due token be the last."""


class GenCounters:
    """Counts of one server; the fields without a comment are what their names say."""

    def __init__(self) -> None:
        self.requests = 0
        self.refused = dict.fromkeys(REFUSALS, 0)
        self.streams = Lives()
        self.answers = Lives()  # non-streamed
        self.tokens = 0
        self.chunks = 0  # content events, of one or more tokens
        self.role_events = 0
        self.finish_events = 0
        self.usage_events = 0
        self.done_events = 0
        self.bytes = 0  # of events, HTTP framing not included
        self.held_events = 0  # not written when due, because the client reads too slowly
        self.late_ns: list[int] = []  # of due tokens, until `lateness` has counted them
        self._lateness = LogHistogram()
        self.replies: set[LiveReply] = set()
        self._asked = (0, 0)
        self._delivered = (0, 0)

    @property
    def lateness(self) -> LogHistogram:
        """How late due tokens were served, all so far."""
        if self.late_ns:
            self.count_late()
        return self._lateness

    def count_late(self) -> None:
        """Move ``late_ns`` into the histogram, many at a time, which is cheaper than one by one.

        The upper half of a 32-bit float is its exponent and seven bits below the first: all that the histogram
        looks at, so equal halves are one bucket.
        """
        late_ns = self.late_ns
        halves = Counter(memoryview(array("f", late_ns)).cast("B").cast("H")[_UPPER_HALF::2])
        counted = LogHistogram()
        for half, count in halves.items():
            ((value_ns,)) = struct.unpack("f", struct.pack("I", half << 16))
            counted.record_ns(int(value_ns), count)
        counted.sum_ns, counted.max_ns = sum(late_ns), max(late_ns)
        self._lateness.merge(counted)
        late_ns.clear()

    @property
    def events(self) -> int:
        """Server-sent events of all kinds."""
        return self.chunks + self.role_events + self.finish_events + self.usage_events + self.done_events

    def retire(self, reply: LiveReply) -> None:
        """Keep the sums of a reply that is over."""
        self.replies.discard(reply)
        self._asked = _plus(self._asked, reply.asked())
        self._delivered = _plus(self._delivered, reply.delivered())

    def asked(self) -> tuple[int, int]:
        """(ns asked for between tokens, intervals), all replies so far."""
        return _total(self._asked, (reply.asked() for reply in self.replies))

    def delivered(self) -> tuple[int, int]:
        """(ns between tokens as written, intervals), all replies so far."""
        return _total(self._delivered, (reply.delivered() for reply in self.replies))

    def to_json(self) -> dict[str, Any]:
        """The body of GET /admin/counters."""
        return {
            "requests": self.requests,
            "refused": dict(self.refused),
            "streams": self.streams.to_json(),
            "answers": self.answers.to_json(),
            "tokens": self.tokens,
            "chunks": self.chunks,
            "events": self.events,
            "role_events": self.role_events,
            "finish_events": self.finish_events,
            "usage_events": self.usage_events,
            "done_events": self.done_events,
            "bytes": self.bytes,
            "held_events": self.held_events,
            "pacing": {
                "asked_interval_s": _mean_s(self.asked()),
                "delivered_interval_s": _mean_s(self.delivered()),
                "intervals": self.delivered()[1],
                "tokens_due": self.lateness.count,
                "lateness": self.lateness.to_json(),
            },
        }


class GenCollector(Collector):
    """The gen series of /metrics; listed in docs/metrics.md."""

    def __init__(self, counters: GenCounters, settings: GenSettings, busy: Callable[[], int]) -> None:
        self._counters = counters
        self._settings = settings
        self._busy = busy

    def collect(self) -> Iterable[Metric]:
        """All families, as of now."""
        counters = self._counters
        yield counter("disagg_gen_requests", "Requests received.", counters.requests)
        yield counter("disagg_gen_requests_refused", "Requests that got no reply.", counters.refused, "reason")
        for kind, lives in (("streams", counters.streams), ("answers", counters.answers)):
            what = "Streams" if kind == "streams" else "Non-streamed answers"
            yield counter(f"disagg_gen_{kind}_started", f"{what} begun.", lives.started)
            yield gauge(f"disagg_gen_{kind}_live", f"{what} in progress.", lives.live)
            yield counter(f"disagg_gen_{kind}_ended", f"{what} ended, by outcome.", lives.ended, "outcome")
        yield gauge("disagg_gen_slots", "Replies that may run at the same time.", self._settings.slots)
        yield gauge("disagg_gen_slots_busy", "Replies running.", self._busy())
        yield counter("disagg_gen_tokens", "Tokens sent.", counters.tokens)
        events = {
            "content": counters.chunks,
            "role": counters.role_events,
            "finish": counters.finish_events,
            "usage": counters.usage_events,
            "done": counters.done_events,
        }
        yield counter("disagg_gen_events", "Server-sent events written, by kind.", events, "kind")
        yield counter("disagg_gen_event_bytes", "Bytes of those events, without HTTP framing.", counters.bytes)
        yield counter(
            "disagg_gen_events_held",
            "Content events not written when due: the client reads slowly.",
            counters.held_events,
        )
        yield counter("disagg_gen_tokens_due", "Tokens whose time has come.", counters.lateness.count)
        yield histogram("disagg_gen_token_lateness_seconds", "How late a due token was served.", counters.lateness)
        yield summary("disagg_gen_asked_interval_seconds", "Time between tokens, as asked for.", *counters.asked())
        yield summary(
            "disagg_gen_delivered_interval_seconds", "Time between tokens, as written.", *counters.delivered()
        )


def _plus(a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
    return a[0] + b[0], a[1] + b[1]


def _total(start: tuple[int, int], parts: Iterator[tuple[int, int]]) -> tuple[int, int]:
    for part in parts:
        start = _plus(start, part)
    return start


def _mean_s(sums: tuple[int, int]) -> float | None:
    return sums[0] / sums[1] / 1e9 if sums[1] else None
