"""What the load counts and keeps: totals, histograms, one line per stream, and client.json at the end.

Streams are recorded once, when they have ended and been judged; nothing here is called per token, whose times come
in by lots.  Lines are appended as streams end, so that what was measured outlives a crash; client.json is put in
place whole or not at all.  No clock and no sockets here.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TextIO

from loadtest.goodput import LEFT_OUT, MISSES, GoodputLimits
from loadtest.outcomes import ABORTED, CANCELLED, OK
from loadtest.reply_events import ReplyEvents
from loadtest.stream_reader import StreamReader
from loadtest.stream_record import StreamRecord
from loadtest.time_log import TimeLog, TokenGaps
from sim.core.histogram import LogHistogram

__all__ = ["KINDS", "Recorder", "Totals", "write_json"]

NO_LIMITS = GoodputLimits()
NEAR_END_TOKENS = 50
"""A stream cancelled with fewer tokens to come than this may be over before the servers hear of it."""
KINDS = ("chunks", "role_events", "finish_events", "usage_events", "done_events", "other_events")


class Totals:
    """Sums over replies: tokens, events by kind, bytes of events."""

    __slots__ = ("by_kind", "bytes", "events", "tokens")

    def __init__(self) -> None:
        self.tokens = 0
        self.events = 0
        self.bytes = 0
        self.by_kind = dict.fromkeys(KINDS, 0)

    def add(self, reader: StreamReader) -> None:
        """Add one reply."""
        self.tokens += reader.tokens
        self.events += reader.events
        self.bytes += reader.event_bytes
        for kind in KINDS:
            self.by_kind[kind] += _count(reader, kind)


class Recorder:
    """Totals of the whole load; ``lines`` takes streams.jsonl, if anything does.

    ``planned`` are the requests that came due, ``unsent`` those of them that a cap on concurrency kept to the end.
    ``within_slo``, ``missed_slo``: streams by the goodput ``limits``, and ``missed`` what of it they missed.
    """

    def __init__(self, lines: TextIO | None = None, limits: GoodputLimits = NO_LIMITS) -> None:
        self.planned = 0
        self.started = 0
        self.unsent = 0
        self.outcomes: Counter[str] = Counter()
        self.ended_early = 0  # of those that are ok: streams with fewer tokens than asked
        self.cancelled_near_end = 0
        self.left_tokens = 0  # asked for and not taken, by streams that were cancelled
        self.usages = 0  # replies whose usage came, and the cached tokens that they were told in all
        self.cached_tokens = 0
        self.ended = Totals()
        self.within_slo = 0
        self.missed_slo = 0
        self.missed: Counter[str] = Counter()
        self.gaps = TimeLog()
        self.shared_gaps = LogHistogram()
        self.chunk_gaps = LogHistogram()
        self.transits = TimeLog()
        self.lateness = LogHistogram()  # of sends, from ready_ns
        self.held = LogHistogram()  # by the cap, of the requests that were held
        self.ttft = LogHistogram()
        self.ttft_from_sent = LogHistogram()
        self.e2e = LogHistogram()
        self.e2e_from_sent = LogHistogram()
        self.tpot = LogHistogram()
        self._token_gaps = TokenGaps(self.gaps, self.shared_gaps, self.chunk_gaps)
        self._lines = lines
        self._limits = limits

    @property
    def token_gaps(self) -> TokenGaps:
        """What readers note the gaps of their tokens in."""
        return self._token_gaps

    @property
    def itl(self) -> LogHistogram:
        """Inter-token latency, every token but a stream's first."""
        return self._token_gaps.itl

    @property
    def inter_chunk(self) -> LogHistogram:
        """Inter-chunk latency, every chunk but a stream's first."""
        return self._token_gaps.inter_chunk

    @property
    def transit(self) -> LogHistogram:
        """From gen's write to the read here, every token; empty unless gen stamps its events."""
        return self.transits.histogram

    def fold(self) -> None:
        """Put the times of tokens that are pending into their histograms."""
        self.gaps.fold()
        self.transits.fold()

    def start(self, planned_ns: int, ready_ns: int, sent_ns: int) -> None:
        """A request sets out."""
        self.started += 1
        self.lateness.record_ns(sent_ns - ready_ns)
        if ready_ns > planned_ns:
            self.held.record_ns(ready_ns - planned_ns)

    def leave_unsent(self) -> None:
        """A request that came due is not sent: there was no slot for it until the sending ended."""
        self.planned += 1
        self.unsent += 1
        self._judge_slo(["unsent"])

    def first_token(self, planned_ns: int, sent_ns: int, first_token_ns: int) -> None:
        """A stream's first token has come."""
        self.ttft.record_ns(first_token_ns - planned_ns)
        self.ttft_from_sent.record_ns(first_token_ns - sent_ns)

    def end(self, record: StreamRecord, reader: StreamReader) -> None:
        """A stream has ended and been judged."""
        self.outcomes[record.outcome] += 1
        self.ended.add(reader)
        cached = _cached_tokens(reader.usage)
        if cached is not None:
            self.usages += 1
            self.cached_tokens += cached
        if record.outcome == CANCELLED:
            left = max(0, record.asked_tokens - record.tokens)
            self.left_tokens += left
            self.cancelled_near_end += left < NEAR_END_TOKENS
        if record.outcome == OK:
            self.ended_early += record.tokens < record.asked_tokens
            self.e2e.record_ns(record.end_ns - record.planned_ns)
            self.e2e_from_sent.record_ns(record.end_ns - record.sent_ns)
            if record.tpot_ns is not None:
                self.tpot.record_ns(round(record.tpot_ns))
        if record.outcome not in LEFT_OUT:
            self._judge_slo(["failed"] if record.outcome != OK else self._limits_missed(record))
        if self._lines is not None:
            self._lines.write(record.line())
            self._lines.flush()

    def _limits_missed(self, record: StreamRecord) -> list[str]:
        first_ns, planned_ns = record.first_token_ns, record.planned_ns
        ttft_ns = None if first_ns is None else first_ns - planned_ns
        return list(self._limits.missed(ttft_ns, record.tpot_ns, record.end_ns - planned_ns))

    def _judge_slo(self, missed: list[str]) -> None:
        if self._limits:
            self.missed.update(missed)
            self.missed_slo += bool(missed)
            self.within_slo += not missed

    def totals(self, live: Iterable[StreamReader] = ()) -> Totals:
        """What has come so far, of streams ended and ``live``."""
        totals = Totals()
        totals.tokens, totals.events, totals.bytes = self.ended.tokens, self.ended.events, self.ended.bytes
        totals.by_kind = dict(self.ended.by_kind)
        for reader in live:
            totals.add(reader)
        return totals

    def to_json(self) -> dict[str, Any]:
        """The load's part of client.json; every stream has ended by then."""
        not_failed = (OK, ABORTED, CANCELLED)
        failed = {outcome: n for outcome, n in sorted(self.outcomes.items()) if outcome not in not_failed}
        return {
            "streams": {
                "planned": self.planned,
                "started": self.started,
                "unsent": self.unsent,
                "ok": self.outcomes[OK],
                "ended_early": self.ended_early,
                "failed": failed,
                "aborted": self.outcomes[ABORTED],
                "cancelled": self.outcomes[CANCELLED],
                "cancelled_near_end": self.cancelled_near_end,
            },
            "left_tokens": self.left_tokens,
            "usages": self.usages,
            "cached_tokens": self.cached_tokens,
            "tokens": self.ended.tokens,
            "events": self.ended.events,
            **self.ended.by_kind,
            "bytes": self.ended.bytes,
            "itl": self.itl.to_json(),
            "inter_chunk": self.inter_chunk.to_json(),
            "tpot": self.tpot.to_json(),
            "transit": self.transit.to_json() if self.transit.count else None,
            "lateness": self.lateness.to_json(),
            "held": self.held.to_json(),
            "ttft": self.ttft.to_json(),
            "ttft_from_sent": self.ttft_from_sent.to_json(),
            "e2e": self.e2e.to_json(),
            "e2e_from_sent": self.e2e_from_sent.to_json(),
            "goodput": self._goodput_json() if self._limits else None,
        }

    def _goodput_json(self) -> dict[str, Any]:
        return {
            "limits": dataclasses.asdict(self._limits),
            "within": self.within_slo,
            "of": self.within_slo + self.missed_slo,
            "missed": {what: self.missed[what] for what in MISSES},
        }


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Put the file in place whole: whoever looks sees the old one or the new one.  OSError if that cannot be."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(json.dumps(value) + "\n")
    partial.replace(path)


def _cached_tokens(usage: Any) -> int | None:
    """The cached tokens that a usage tells; None if it tells none."""
    details = usage.get("prompt_tokens_details") if isinstance(usage, dict) else None
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    return cached if type(cached) is int else None


def _count(reply: ReplyEvents, kind: str) -> int:
    value = getattr(reply, kind)
    assert isinstance(value, int)
    return value
