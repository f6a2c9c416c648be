"""Usage arithmetic: what a client must be told, given what ctx said and what gen reports.

Gen reports every prompt token as cached, since all of its KV came by transfer; ctx knows the truth
(TensorRT-LLM #13620).  The rule is one function, `rewrite_usage`; events and whole answers apply it.
Whether an event should be looked at at all is a policy's business, not this module's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sim.core import sse

__all__ = ["Usage", "rewrite_body", "rewrite_event", "rewrite_usage"]


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one request; ``total_tokens`` is derived, never stored."""

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int = 0

    def __post_init__(self) -> None:
        if min(self.prompt_tokens, self.cached_tokens, self.completion_tokens) < 0:
            raise ValueError(f"negative token count in {self}")
        if self.cached_tokens > self.prompt_tokens:
            raise ValueError(f"more cached than prompt tokens in {self}")

    @property
    def total_tokens(self) -> int:
        """Prompt and completion together."""
        return self.prompt_tokens + self.completion_tokens

    def to_json(self) -> dict[str, Any]:
        """The OpenAI object."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "total_tokens": self.total_tokens,
            "completion_tokens": self.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
        }

    @classmethod
    def from_json(cls, value: object) -> Usage:
        """Read an OpenAI usage object; absent details mean nothing cached.  ValueError says what is wrong."""
        if not isinstance(value, Mapping):
            raise ValueError(f"usage is {type(value).__name__}, not an object")
        details = value.get("prompt_tokens_details")
        if details is not None and not isinstance(details, Mapping):
            raise ValueError("usage.prompt_tokens_details is not an object")
        cached = 0 if details is None else _count(details, "cached_tokens", "usage.prompt_tokens_details")
        return cls(_count(value, "prompt_tokens", "usage"), cached, _count(value, "completion_tokens", "usage"))


def _count(holder: Mapping[str, Any], key: str, where: str) -> int:
    value = holder.get(key)
    if value is None:
        if key == "prompt_tokens":
            raise ValueError(f"{where}.{key} is missing")
        return 0
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{where}.{key} is {value!r}, not a whole number")
    return value


def rewrite_usage(usage: Mapping[str, Any], ctx: Usage) -> dict[str, Any]:
    """Gen's usage object with ctx's prompt and cached counts; completion and unknown keys stay gen's.

    Idempotent: a usage that ctx's numbers were already applied to comes out equal.
    """
    completion = usage.get("completion_tokens")
    details = usage.get("prompt_tokens_details")
    return {
        **usage,
        "prompt_tokens": ctx.prompt_tokens,
        "total_tokens": ctx.prompt_tokens + (completion if type(completion) is int else 0),
        "prompt_tokens_details": {
            **(details if isinstance(details, Mapping) else {}),
            "cached_tokens": ctx.cached_tokens,
        },
    }


def rewrite_body(body: Mapping[str, Any], ctx: Usage) -> Mapping[str, Any]:
    """A whole (non-streamed) answer or a decoded chunk, rewritten; the same object when nothing changes."""
    usage = body.get("usage")
    if not isinstance(usage, Mapping):
        return body
    rewritten = rewrite_usage(usage, ctx)
    return body if rewritten == usage else {**body, "usage": rewritten}


def rewrite_event(event: bytes, ctx: Usage, loads: Callable[[bytes], Any] = json.loads) -> bytes:
    """One SSE event, its usage rewritten; the *same object* when there is nothing to change.

    ``loads`` is the decoder under test.  Only the data lines of a rewritten event change (they become one);
    its other lines, its line ending and its blank line stay.  Data that is not JSON passes, and so does what
    only Python takes for JSON (NaN, a number that is infinite as a float): it is the client's to judge.
    """
    data = sse.data_of(event)
    if data is None or data == sse.DONE:
        return event
    try:
        body = loads(data)
        if not isinstance(body, dict):
            return event
        rewritten = rewrite_body(body, ctx)
        if rewritten is body:
            return event
        # Inside the try: other decoders nest deeper than json can write, and a NaN is not to be written.
        payload = json.dumps(rewritten, separators=(",", ":"), allow_nan=False).encode()
    except (ValueError, RecursionError):
        return event
    return sse.replace_data(event, payload)
