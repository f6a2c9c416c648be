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
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from loadtest.outcomes import ABORTED, CANCELLED, OK
from loadtest.reply_events import ReplyEvents
from loadtest.stream_reader import StreamReader
from loadtest.time_log import TimeLog
from sim.core.histogram import LogHistogram

__all__ = ["KINDS", "Recorder", "StreamRecord", "Totals", "write_json"]

NEAR_END_TOKENS = 50
"""A stream cancelled with fewer tokens to come than this may be over before the servers hear of it."""
KINDS = ("chunks", "role_events", "finish_events", "usage_events", "done_events", "other_events")


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRecord:
    """One line of streams.jsonl.  Times are CLOCK_MONOTONIC ns, None for what did not happen.

    ``sent_ns`` is when the load set out to send (connecting included), ``checked`` how closely the reply was
    looked at: "bytes" or "counted".
    """

    seq: int
    planned_ns: int
    sent_ns: int
    first_byte_ns: int | None
    first_token_ns: int | None
    last_token_ns: int | None
    end_ns: int
    prompt_tokens: int
    asked_tokens: int
    tokens: int
    chunks: int
    events: int
    outcome: str
    checked: str
    detail: str = ""

    def line(self) -> str:
        """The JSON line, ``detail`` only where there is one."""
        fields = dataclasses.asdict(self)
        if not self.detail:
            del fields["detail"]
        return json.dumps(fields, separators=(",", ":")) + "\n"


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
    """Totals of the whole load; ``lines`` takes streams.jsonl, if anything does."""

    def __init__(self, lines: TextIO | None = None) -> None:
        self.planned = 0
        self.started = 0
        self.outcomes: Counter[str] = Counter()
        self.ended_early = 0  # of those that are ok: streams with fewer tokens than asked
        self.cancelled_near_end = 0
        self.left_tokens = 0  # asked for and not taken, by streams that were cancelled
        self.usages = 0  # replies whose usage came, and the cached tokens that they were told in all
        self.cached_tokens = 0
        self.ended = Totals()
        self.gaps = TimeLog()
        self.transits = TimeLog()
        self.lateness = LogHistogram()
        self.ttft = LogHistogram()
        self.ttft_from_sent = LogHistogram()
        self.e2e = LogHistogram()
        self.e2e_from_sent = LogHistogram()
        self._lines = lines

    @property
    def itl(self) -> LogHistogram:
        """Inter-token latency, every gap."""
        return self.gaps.histogram

    @property
    def transit(self) -> LogHistogram:
        """From gen's write to the read here, every token; empty unless gen stamps its events."""
        return self.transits.histogram

    def fold(self) -> None:
        """Put the times of tokens that are pending into their histograms."""
        self.gaps.fold()
        self.transits.fold()

    def start(self, planned_ns: int, sent_ns: int) -> None:
        """A request sets out."""
        self.started += 1
        self.lateness.record_ns(sent_ns - planned_ns)

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
        if self._lines is not None:
            self._lines.write(record.line())
            self._lines.flush()

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
            "transit": self.transit.to_json() if self.transit.count else None,
            "lateness": self.lateness.to_json(),
            "ttft": self.ttft.to_json(),
            "ttft_from_sent": self.ttft_from_sent.to_json(),
            "e2e": self.e2e.to_json(),
            "e2e_from_sent": self.e2e_from_sent.to_json(),
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
