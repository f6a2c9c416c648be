"""What the events of one reply say: which tokens came, in what order, and what else was in the stream.

Rule: nothing is decoded that need not be.  The fakes' reply counts (token k is the text " k"), so a search for the
next number tells a token's event; only what that does not explain is read as JSON.  Events need not be a gen
server's own bytes: one that a router wrote anew, with other spaces or escapes, is understood too.

Inter-token latency is the gap between two events' arrivals, shared evenly by the tokens of the later one.  An event
has arrived when the read with its last byte returns; of several in one read the first has the gap, the others 0.

How bytes become events is in `stream_reader`, what is right in `stream_check`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sim.core.histogram import LogHistogram
from sim.core.sse import data_of, is_done

__all__ = ["ReplyEvents", "counted"]


def counted(first: int, count: int) -> bytes:
    """The text of tokens ``first`` .. ``first + count - 1``, without its leading space."""
    return b" ".join([b"%d" % k for k in range(first, first + count)])


class ReplyEvents:
    """Counts, faults and token times of one reply; ``gaps`` takes every inter-token gap."""

    __slots__ = (
        "chunks", "done_events", "fault", "fault_detail", "finish_events", "finished", "first_token_ns", "gaps",
        "last_token_ns", "lone_tokens", "other_events", "role_events", "tokens", "usage", "usage_events",
        "usage_in_chunks",
    )  # fmt: skip

    def __init__(self, gaps: LogHistogram) -> None:
        self.gaps = gaps
        self.first_token_ns: int | None = None
        self.last_token_ns = 0
        self.tokens = 0
        self.chunks = 0  # events with a token or more
        self.role_events = 0
        self.finish_events = 0
        self.usage_events = 0
        self.done_events = 0
        self.other_events = 0  # comments, errors, what is not known
        self.finished = False  # a finish_reason was seen
        self.usage: Any = None  # the usage event's object
        self.usage_in_chunks = False
        self.fault: str | None = None  # the first one
        self.fault_detail = ""
        self.lone_tokens = 0  # tokens of the last event, if the next one may look just like it

    @property
    def events(self) -> int:
        """Events of all kinds."""
        known = self.chunks + self.role_events + self.finish_events + self.usage_events + self.done_events
        return known + self.other_events

    def fail(self, fault: str, detail: str = "") -> None:
        """Note a fault, if it is the first."""
        if self.fault is None:
            self.fault, self.fault_detail = fault, detail

    def take_event(self, event: bytes, now_ns: int) -> None:
        """One whole event, arrived at ``now_ns``.  Never raises for what it holds."""
        self.lone_tokens = 0
        if self.done_events:
            self.fail("after_done")
        start = event.find(b'" %d' % self.tokens)
        if start >= 0:
            numbers = event[start + 2 : event.find(b'"', start + 1)]
            count = numbers.count(b" ") + 1
            if numbers == counted(self.tokens, count):
                finished, usage = _has_value(event, b'"finish_reason"'), _has_value(event, b'"usage"')
                self.finished |= finished
                self.usage_in_chunks |= usage
                self.lone_tokens = 0 if finished or usage else count
                self.take_tokens(count, now_ns)
                return
        self._take_by_json(event, now_ns)

    def take_tokens(self, count: int, now_ns: int) -> None:
        """One event with the next ``count`` tokens."""
        if self.first_token_ns is None:
            self.first_token_ns = now_ns
        else:
            self.gaps.record_ns((now_ns - self.last_token_ns) // count, count)
        self.last_token_ns = now_ns
        self.tokens += count
        self.chunks += 1

    def _take_by_json(self, event: bytes, now_ns: int) -> None:
        """Any event that is not evidently the next tokens."""
        if is_done(event):
            self.done_events += 1
            return
        data = data_of(event)
        if data is None:
            self.other_events += 1  # a comment: allowed anywhere
            return
        try:
            body = json.loads(data)
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, dict):
            self.other_events += 1
            self.fail("bad_event", f"not a JSON object: {data[:80]!r}")
        elif body.get("error"):
            self.other_events += 1
            self.fail("error_event", json.dumps(body["error"])[:300])
        elif isinstance(body.get("choices"), list):
            self._take_chunk(body["choices"], body.get("usage"), now_ns)
        else:
            self.other_events += 1

    def _take_chunk(self, choices: list[Any], usage: Any, now_ns: int) -> None:
        has_usage = isinstance(usage, dict)
        if not choices:
            if has_usage:
                self.usage_events += 1
                self.usage = usage
            else:
                self.other_events += 1
            return
        self.usage_in_chunks |= has_usage
        choice = choices[0] if isinstance(choices[0], Mapping) else {}
        delta = choice.get("delta")
        if not isinstance(delta, Mapping):
            delta = {}
        finished = choice.get("finish_reason") is not None
        self.finished |= finished
        text = choice.get("text") or delta.get("content")
        if isinstance(text, str) and text:
            count = text.count(" ")
            if text.encode("utf-8", "replace") != b" " + counted(self.tokens, count):
                self.fail("wrong_order", f"token {self.tokens} was due, {text[:40]!r} came")
            self.take_tokens(max(1, count), now_ns)
        elif "role" in delta and not finished:
            self.role_events += 1
        elif finished:
            self.finish_events += 1
        else:
            self.other_events += 1


def _has_value(event: bytes, key: bytes) -> bool:
    """Whether ``key`` occurs with a value other than null."""
    at = event.rfind(key)
    return at >= 0 and not event[at + len(key) :].lstrip(b" :").startswith(b"null")
