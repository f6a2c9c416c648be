"""What the events of one reply say: which tokens came, in what order, and what else was in the stream.

Rule: nothing is decoded that need not be, and nothing counts that was not proven.  The fakes' reply counts (token k
is the text " k"), so two events of tokens differ in the number alone.  One is read as JSON; the next one that is the
same bytes around the next number needs no reading, and any other event is JSON again.  Events need not be a gen
server's own bytes: one that a router wrote anew, with other spaces, escapes or key order, is understood too.

Inter-token latency is the gap between two events' arrivals, shared evenly by the tokens of the later one.  An event
has arrived when the read with its last byte returns; of several in one read the first has the gap, the others 0.

How bytes become events is in `stream_reader`, what is right in `stream_check`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import orjson

from loadtest.time_log import TokenGaps
from sim.core.sse import data_of, is_done

__all__ = ["ReplyEvents", "counted"]


def counted(first: int, count: int) -> bytes:
    """The text of tokens ``first`` .. ``first + count - 1``, without its leading space."""
    if count == 1:
        return b"%d" % first
    return b" ".join([b"%d" % k for k in range(first, first + count)])


class ReplyEvents:
    """Counts, faults and token times of one reply; ``gaps`` takes the gap before every chunk but the first."""

    __slots__ = (
        "_after_number", "_before_number", "_chunks", "_numbers", "chunk_usages", "done_events", "fault",
        "fault_detail", "finish_events", "finished_at", "first_token_ns", "gaps", "last_token_ns", "lone_tokens",
        "other_events", "role_events", "tokens", "usage", "usage_at", "usage_events",
    )  # fmt: skip

    def __init__(self, gaps: TokenGaps) -> None:
        self.gaps = gaps
        self.first_token_ns: int | None = None
        self.last_token_ns = 0
        self.tokens = 0
        self._chunks = 0
        self.role_events = 0
        self.finish_events = 0
        self.usage_events = 0
        self.done_events = 0
        self.other_events = 0  # comments, errors, what is not known
        self.finished_at: int | None = None  # tokens that had come when the first finish_reason was there
        self.usage: Any = None  # the usage event's object
        self.usage_at = 0  # tokens that had come before it
        self.chunk_usages: list[dict[str, Any]] = []  # the first usage on a chunk, the first of another prompt or cache
        self.fault: str | None = None  # the first one
        self.fault_detail = ""
        self.lone_tokens = 0  # tokens of the last event, if the next one may look just like it
        # An event of _numbers tokens that was read as JSON: what stands around its numbers.  0: there is none.
        self._before_number = self._after_number = b""
        self._numbers = 0

    @property
    def chunks(self) -> int:
        """Events with a token or more."""
        return self._chunks

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
        count = self._numbers
        if count and event == self._before_number + counted(self.tokens, count) + self._after_number:
            self.lone_tokens = count
            self.take_tokens(count, now_ns)
        else:
            self._take_by_json(event, now_ns)

    def take_tokens(self, count: int, now_ns: int) -> None:
        """One event with the next ``count`` tokens."""
        if self.first_token_ns is None:
            self.first_token_ns = now_ns
        else:
            self.gaps.record_ns(now_ns - self.last_token_ns, count)
        self.last_token_ns = now_ns
        self.tokens += count
        self._chunks += 1

    def _take_by_json(self, event: bytes, now_ns: int) -> None:
        """Any event that is not evidently the next tokens."""
        if is_done(event):
            self.done_events += 1
            return
        data = data_of(event)
        if data is None:
            self.other_events += 1  # a comment: allowed anywhere
            return
        body = _decoded(data)
        if not isinstance(body, dict):
            self.other_events += 1
            self.fail("bad_event", f"not a JSON object: {data[:80]!r}")
        elif body.get("error"):
            self.other_events += 1
            self.fail("error_event", json.dumps(body["error"])[:300])
        elif isinstance(body.get("choices"), list):
            self._take_chunk(body["choices"], body.get("usage"), now_ns)
            if self.lone_tokens:
                self._learn_event(event)
        else:
            self.other_events += 1

    def _take_chunk(self, choices: list[Any], usage: Any, now_ns: int) -> None:
        has_usage = isinstance(usage, dict)
        if not choices:
            if has_usage:
                self.usage_events += 1
                self.usage, self.usage_at = usage, self.tokens
            else:
                self.other_events += 1
            return
        if has_usage:
            self._keep_chunk_usage(usage)
        choice = choices[0] if isinstance(choices[0], Mapping) else {}
        delta = choice.get("delta")
        if not isinstance(delta, Mapping):
            delta = {}
        finished = choice.get("finish_reason") is not None
        text = choice.get("text") or delta.get("content")
        if isinstance(text, str) and text:
            count = text.count(" ")
            if text.encode("utf-8", "replace") != b" " + counted(self.tokens, count):
                self.fail("wrong_order", f"token {self.tokens} was due, {text[:40]!r} came")
            elif not finished and not has_usage:
                self.lone_tokens = count
            self.take_tokens(max(1, count), now_ns)
        elif "role" in delta and not finished:
            self.role_events += 1
        elif finished:
            self.finish_events += 1
        else:
            self.other_events += 1
        if finished and self.finished_at is None:
            self.finished_at = self.tokens

    def _keep_chunk_usage(self, usage: dict[str, Any]) -> None:
        """What the prompt's counts ought to be is not known here; if one is wrong, one of the two kept is."""
        kept = self.chunk_usages
        if not kept or (len(kept) == 1 and _of_prompt(usage) != _of_prompt(kept[0])):
            kept.append(usage)

    def _learn_event(self, event: bytes) -> None:
        """Keep what stands around the numbers of this event of tokens, if it is plain which numbers those are."""
        numbers = counted(self.tokens - self.lone_tokens, self.lone_tokens)
        text = b'" ' + numbers + b'"'
        at = event.find(text) + 2
        before = event[:at]
        if event.count(text) == 1 and before.rstrip(b'" :').endswith((b'"content', b'"text')):
            self._before_number, self._after_number = before, event[at + len(numbers) :]
            self._numbers = self.lone_tokens
        else:  # written with escapes, or there twice: right, but not foreseeable
            self.lone_tokens = 0


def _decoded(data: bytes) -> Any:
    """The JSON value, None if it is none.  What orjson alone refuses (NaN, a lone surrogate) is accepted too."""
    try:
        return orjson.loads(data)
    except ValueError:
        pass
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _of_prompt(usage: Mapping[str, Any]) -> tuple[Any, Any]:
    """The part of a usage that is the same on every chunk of a reply."""
    return usage.get("prompt_tokens"), usage.get("prompt_tokens_details")
