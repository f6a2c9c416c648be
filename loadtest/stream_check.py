"""The verdict on one finished reply: whether it is what was asked for, whole, in order and truthfully accounted for.

Pure: what the reader saw and what was to be expected go in, one outcome word comes out.  A stream with fewer tokens
than asked is right only where that is expected (its gen server was told to drain) and it says so itself: a relay
that loses a reply's tail and adjusts its usage must not pass.  Bytes are compared for a sample of the streams:
every event must be what `sim.core.chunks` writes; one with usage, which a relay may have rewritten, must be equal
as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from loadtest.outcomes import OK
from loadtest.reply_events import counted
from loadtest.stamped_reader import STAMP
from loadtest.stream_reader import StreamReader
from sim.core.chunks import ChunkShape, StreamWriter
from sim.core.sse import data_of
from sim.core.usage import Usage

__all__ = ["Expectation", "judge"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """What one reply has to be.

    ``may_end_early``: a reply that its own accounting shows to be whole may have fewer tokens than asked.
    ``cached_tokens`` None: not known, so not compared.  ``judge_usage`` False: usage is noted only, as the servers'
    accounting is not known.  ``shape`` None: neither is what their events look like.
    """

    endpoint: str
    stream: bool
    asked_tokens: int
    may_end_early: bool
    prompt_tokens: int
    cached_tokens: int | None
    include_usage: bool
    judge_usage: bool
    shape: ChunkShape | None

    @property
    def usage_event(self) -> bool:
        """Whether a usage event has to come."""
        return self.include_usage and (self.shape is None or self.shape.usage != "absent")


def judge(seen: StreamReader, expected: Expectation) -> tuple[str, str]:
    """(outcome, what exactly) of a reply that has ended."""
    if seen.fault is not None:
        return seen.fault, seen.fault_detail or bytes(seen.plain[:300]).decode("utf-8", "replace")
    if not expected.stream:
        return _judge_answer(seen, expected)
    if not seen.streamed:
        return "not_sse", f"the answer is {seen.http.headers.get('content-type', 'of no content type')}"
    if not seen.done_events:
        return "cut", "the response ended without [DONE]"
    if seen.done_events > 1:
        return "after_done", f"{seen.done_events} end markers"
    outcome = _judge_count(seen, expected) or _judge_order(seen)
    if outcome is None and expected.judge_usage:
        outcome = _judge_stream_usage(seen, expected)
    if outcome is None and seen.kept is not None and expected.shape is not None:
        outcome = _compare_bytes(_mended(seen.kept), seen, expected, expected.shape)
    return outcome or (OK, "")


def _judge_count(seen: StreamReader, expected: Expectation) -> tuple[str, str] | None:
    if seen.tokens == expected.asked_tokens:
        return None
    text = f"{seen.tokens} tokens came, {expected.asked_tokens} were asked for"
    if seen.tokens > expected.asked_tokens or not seen.tokens or not expected.may_end_early:
        return "wrong_count", text
    if expected.usage_event:
        # Ended early on purpose: the server's own count says that no token is missing.
        says = seen.usage.get("completion_tokens") if isinstance(seen.usage, dict) else None
        drained = says == seen.tokens
        text += f", usage says {says}"
    else:
        # Without a count to go by, only a finish_reason that rides on the last token shows that it was the last.
        drained = seen.finished_at is not None and not seen.finish_events
    return None if drained else ("wrong_count", text)


def _judge_order(seen: StreamReader) -> tuple[str, str] | None:
    """Of what goes with the tokens; they themselves have been in order."""
    if seen.finished_at is None:
        return "no_finish", "no finish_reason came"
    if seen.role_events > 1:
        return "wrong_order", f"{seen.role_events} role events"
    if seen.finished_at != seen.tokens:
        return "wrong_order", f"finish_reason came after {seen.finished_at} tokens, and {seen.tokens} came in all"
    if seen.usage_events and seen.usage_at != seen.tokens:
        return "wrong_order", f"usage came after {seen.usage_at} tokens, and {seen.tokens} came in all"
    return None


def _judge_stream_usage(seen: StreamReader, expected: Expectation) -> tuple[str, str] | None:
    if seen.usage_events > 1:
        return "unexpected_usage", f"{seen.usage_events} usage events"
    if seen.usage_events and not expected.usage_event:
        return "unexpected_usage", "a usage event was not asked for"
    if seen.chunk_usages and (expected.shape is None or expected.shape.usage != "continuous"):
        return "unexpected_usage", "usage on a chunk"
    for value in seen.chunk_usages:
        # How many tokens it says have come so far is the gen server's own and is not compared.
        wrong = _judge_usage(value, None, expected)
        if wrong is not None:
            return wrong[0], f"on a chunk: {wrong[1]}"
    if not expected.usage_event:
        return None
    if not seen.usage_events:
        return "missing_usage", "usage was asked for and did not come"
    return _judge_usage(seen.usage, seen.tokens, expected)


def _judge_usage(value: Any, tokens: int | None, expected: Expectation) -> tuple[str, str] | None:
    """``tokens`` None: the count of the reply's tokens is not compared."""
    try:
        usage = Usage.from_json(value)
    except ValueError as error:
        return "wrong_usage", str(error)
    tokens = usage.completion_tokens if tokens is None else tokens
    cached = usage.cached_tokens if expected.cached_tokens is None else expected.cached_tokens
    right = Usage(expected.prompt_tokens, min(cached, expected.prompt_tokens), tokens)
    if usage == right and value.get("total_tokens") == right.total_tokens:
        return None
    return "wrong_usage", f"{json.dumps(value)} came, {json.dumps(right.to_json())} is right"


def _compare_bytes(
    events: list[bytes], seen: StreamReader, expected: Expectation, shape: ChunkShape
) -> tuple[str, str] | None:
    try:
        first = json.loads(data_of(events[0]) or b"")
        identity = {"id": str(first["id"]), "created": int(first["created"]), "model": str(first["model"])}
        usage = Usage.from_json(seen.usage) if seen.usage is not None else None
    except (ValueError, KeyError, TypeError) as error:
        return "bytes_differ", f"the first event has no identity: {error}"
    usage = usage or Usage(expected.prompt_tokens, expected.cached_tokens or 0)
    written = _written(events, shape, expected, identity, usage, seen.tokens)
    if len(events) != len(written):
        return "bytes_differ", f"{len(events)} events came, {len(written)} are written"
    for number, (event, right) in enumerate(zip(events, written, strict=True)):
        if event != right and not _equal_json_with_usage(event, right):
            return "bytes_differ", f"event {number}: {event[:200]!r} came, {right[:200]!r} is written"
    return None


def _mended(events: Iterable[bytes]) -> list[bytes]:
    """The events with every CRLF in one piece: a read that ended inside it gave its LF to the next event."""
    mended: list[bytes] = []
    for event in events:
        if mended and mended[-1].endswith(b"\r") and event.startswith(b"\n"):
            mended[-1] += b"\n"
            event = event[1:]
        mended.append(event)
    return mended


def _written(
    events: list[bytes],
    shape: ChunkShape,
    expected: Expectation,
    identity: dict[str, Any],
    usage: Usage,
    tokens: int,
) -> list[bytes]:
    """The events that a gen server writes for this reply, with the usage that the client was told.

    A stamp says when its own event was written, so it is taken from ``events``, those that came.
    """

    def stamp_ns(event: bytes) -> int:
        stamp = STAMP.search(event) if shape.stamp_sent else None
        return int(stamp[1]) if stamp else 0

    writer = StreamWriter(
        shape, endpoint=expected.endpoint, usage=usage, include_usage=expected.include_usage, **identity
    )
    role = writer.role_event()
    step = shape.tokens_per_chunk
    front = [] if role is None else [role]
    starts = range(0, tokens, step)
    contents = [
        writer.content_event(start, min(step, tokens - start), start + step >= tokens, stamp_ns(event))
        for start, event in zip(starts, events[len(front) :], strict=False)
    ]
    return [*front, *contents, *writer.closing_events(tokens)]


def _equal_json_with_usage(event: bytes, right: bytes) -> bool:
    """Whether both hold the same object, and it has a usage: only such an event may be written anew."""
    data, right_data = data_of(event), data_of(right)
    try:
        value, right_value = json.loads(data or b""), json.loads(right_data or b"")
    except ValueError:
        return False
    return isinstance(value, dict) and isinstance(value.get("usage"), dict) and value == right_value


def _judge_answer(seen: StreamReader, expected: Expectation) -> tuple[str, str]:
    """Of a non-streamed answer; its tokens are counted here, as nobody has looked at them yet."""
    try:
        body = json.loads(bytes(seen.plain))
        if body.get("error"):
            return "error_event", json.dumps(body["error"])[:300]
        choice = body["choices"][0]
        text = choice["message"]["content"] if expected.endpoint == "chat" else choice["text"]
        numbers = text.encode("utf-8", "replace")
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError) as error:
        return "bad_event", f"not a {expected.endpoint} answer ({error}): {bytes(seen.plain[:80])!r}"
    seen.take_answer(numbers.count(b" "))
    if numbers != b" " + counted(0, seen.tokens):
        return "wrong_order", f"the text is not a count: {text[:80]!r}"
    outcome = None
    drained = expected.may_end_early and 0 < seen.tokens == _completion_tokens(body.get("usage"))
    if seen.tokens != expected.asked_tokens and not (drained and seen.tokens < expected.asked_tokens):
        outcome = "wrong_count", f"{seen.tokens} tokens came, {expected.asked_tokens} were asked for"
    elif choice.get("finish_reason") is None:
        outcome = "no_finish", "no finish_reason came"
    usage = seen.usage = body.get("usage")
    if outcome is None and expected.judge_usage:
        if usage is None:
            outcome = "missing_usage", "the answer has no usage"
        else:
            outcome = _judge_usage(usage, seen.tokens, expected)
    return outcome or (OK, "")


def _completion_tokens(usage: Any) -> Any:
    return usage.get("completion_tokens") if isinstance(usage, dict) else None
