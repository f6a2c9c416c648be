"""What an event is for: role, chunk (a token), finish, usage, done.

Asked only of the events a stream opens and closes with, so that chunks can be counted without looking at them, and
of those that `frames` learns from.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from sim.core.sse import data_of, is_done

__all__ = ["CLOSING_EVENTS", "kind_of", "tail_of_chunk"]

CLOSING_EVENTS = 3
"""At most a finish_reason of its own, a usage and the end marker follow a stream's last token."""

_CONTENT = ("content", "reasoning_content", "reasoning", "tool_calls", "function_call", "refusal")


def kind_of(event: bytes) -> str:
    """One of role, chunk, finish, usage, done; what is not recognised is a chunk."""
    if is_done(event):
        return "done"
    data = data_of(event)
    if data is None:
        return "chunk"
    try:
        body = _decoded(data)
    except (ValueError, RecursionError):
        return "chunk"
    choices = body.get("choices") if isinstance(body, Mapping) else None
    if not isinstance(choices, list):
        return "chunk"
    if not choices:
        return "usage" if isinstance(body.get("usage"), Mapping) else "chunk"
    return _kind_of_choice(choices[0])


def tail_of_chunk(event: bytes) -> bytes:
    """What stands behind the text of an event with a token, closing quote included; b"" where it would not tell.

    An event of one line that ends with the same bytes has a text there too, and no finish_reason behind it; so of
    one whose finish_reason stands before the text, or is given, nothing can be told.
    """
    data = data_of(event)
    if data is None or kind_of(event) != "chunk":
        return b""
    try:
        choice = _decoded(data)["choices"][0]
    except (ValueError, RecursionError, LookupError, TypeError):
        return b""
    delta = choice.get("delta")
    key, text = ("content", delta.get("content")) if isinstance(delta, Mapping) else ("text", choice.get("text"))
    if not isinstance(text, str) or not text or choice.get("finish_reason") is not None:
        return b""
    behind_key = event.find(b'"%b"' % key.encode())
    for ascii_only in (True, False):
        written = json.dumps(text, ensure_ascii=ascii_only).encode(errors="surrogatepass")[1:]
        at = event.find(written, behind_key)
        if behind_key >= 0 and at >= 0 and event.find(b"finish_reason", 0, at) < 0:
            return event[at + len(written) - 1 :]
    return b""


def _decoded(data: bytes) -> Any:
    # A stream has five events to be told apart; json alone would make that a tenth of a short reply's cost.
    try:
        return msgspec.json.decode(data)
    except (ValueError, RecursionError):
        return json.loads(data)  # takes more for JSON, such as NaN


def _kind_of_choice(choice: Any) -> str:
    if not isinstance(choice, Mapping):
        return "chunk"
    finished = choice.get("finish_reason") is not None
    delta = choice.get("delta")
    if not isinstance(delta, Mapping):
        # A completion's own finish event is known by its empty text only.
        return "finish" if finished and choice.get("text") == "" else "chunk"
    if any(delta.get(field) for field in _CONTENT):
        return "chunk"
    if "role" in delta and not finished:
        return "role"  # OpenAI's role event has an empty content, TensorRT-LLM's has none
    # A token whose text is held back is an empty string, not an absent one.
    return "finish" if finished and delta.get("content") is None else "chunk"
