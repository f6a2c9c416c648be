"""The equality gate's cases and its comparison: pure, no I/O.

A case is one client request whose complete stream is relayed under every policy and compared, event by event,
with what gen wrote: events the rewrite leaves alone must be byte-identical, the others JSON-equal to the
reference rewrite.  Streams differ only in the identity that gen gives each (id, created), which is masked.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sim.core.sse import SseDecoder, data_of
from sim.core.usage import Usage, rewrite_event

__all__ = ["CASES", "Case", "Difference", "compare_streams", "cut_events", "mask_identity"]

MAX_EVENT_BYTES = 64 << 20

# Tokens that have broken real relays: the key itself, quoted and nested look-alikes, end markers, line ends.
_TRICKY_TEXTS = (
    "usage", '"usage"', "usage:", '{"usage": {"prompt_tokens": 1}}', '\\"usage\\"', "data: [DONE]", "[DONE]", "\n\n",
    "\r\n", "data:", " ", "", "\u2028", "\u00e9\u6f22\U0001f600", "\x00", "null", '"usage":null',
)  # fmt: skip
_PLAIN_TOKENS = 12


@dataclass(frozen=True, slots=True)
class Case:
    """One request: endpoint, whether it is streamed and asks for usage, and the script of its answer."""

    name: str
    endpoint: str = "chat"
    stream: bool = True
    include_usage: bool = True
    script: Mapping[str, Any] = field(default_factory=dict)
    configured: bool = False

    def body(self) -> dict[str, Any]:
        """The client's request body."""
        prompt = "The quick brown fox jumps over the lazy dog. " * 3
        body: dict[str, Any] = {"model": "sim", "max_tokens": _PLAIN_TOKENS, "stream": self.stream}
        if self.endpoint == "chat":
            body["messages"] = [{"role": "user", "content": prompt}]
        else:
            body["prompt"] = prompt
        if self.stream:
            body["stream_options"] = {"include_usage": self.include_usage}
        if self.script:
            body["disagg_sim"] = dict(self.script)
        return body


CASES: tuple[Case, ...] = (
    Case("as configured, chat", configured=True),
    Case("as configured, completions", endpoint="completions", configured=True),
    Case("as configured, usage not asked for", include_usage=False, configured=True),
    Case("tricky tokens", script={"texts": list(_TRICKY_TEXTS)}),
    Case("tricky tokens, completions", endpoint="completions", script={"texts": list(_TRICKY_TEXTS)}),
    Case("usage null on each chunk", script={"usage": "null", "texts": list(_TRICKY_TEXTS)}),
    Case("usage on each chunk", script={"usage": "continuous"}),
    Case("usage absent", script={"usage": "absent"}),
    Case("gen counts another prompt", script={"prompt_tokens": 777}),
    Case("gen counts another prompt, not streamed", stream=False, script={"prompt_tokens": 777}),
    Case("OpenAI's shape", script={"dialect": "openai", "finish": "own", "usage": "null"}),
    Case("CRLF", script={"newline": "crlf", "usage": "continuous"}),
    Case("CR", script={"newline": "cr"}),
    Case("writes cut inside the prefix", script={"split_at": 3}),
    Case("writes cut inside the JSON", script={"split_at": 90, "usage": "continuous"}),
    Case("five events in one write", script={"events_per_write": 5, "usage": "continuous"}),
    Case("usage and [DONE] apart", script={"glue_done": False}),
    Case("three tokens in a chunk", script={"tokens_per_chunk": 3}),
    Case("chunks of 4 KB", script={"chunk_bytes": 4096, "usage": "null"}),
    Case("not streamed, chat", stream=False),
    Case("not streamed, completions", endpoint="completions", stream=False),
)


@dataclass(frozen=True, slots=True)
class Difference:
    """The first event in which a policy's stream is not what it must be."""

    case: str
    event_index: int
    expected: str
    got: str


def cut_events(stream: bytes) -> list[bytes]:
    """The events of a whole stream; an unfinished tail counts as one, so that it shows as a difference.

    Line endings that lead an event are left out: which of two events they go with depends on reads.
    """
    decoder = SseDecoder(MAX_EVENT_BYTES)
    events = decoder.feed(stream)
    tail = decoder.finish()
    return [event.lstrip(b"\r\n") for event in events] + ([tail] if tail.strip(b"\r\n") else [])


def mask_identity(events: Sequence[bytes]) -> list[bytes]:
    """The events with this stream's id and creation time, read from its first event, masked."""
    first = next((payload for event in events if (payload := data_of(event))), b"{}")
    try:
        body = json.loads(first)
        identity = json.dumps(body["id"]).encode()
        created = b'"created":%d,' % body["created"]
    except (ValueError, KeyError, TypeError):
        return list(events)
    return [event.replace(identity, b'"ID"').replace(created, b'"created":0,') for event in events]


def compare_streams(
    case: str, written: Sequence[bytes], relayed: Sequence[bytes], ctx: Usage
) -> tuple[int, Difference | None]:
    """(events that the reference rewrite changes, first difference or None).

    ``written`` are gen's events and ``relayed`` the client's, both masked.
    """
    changes = 0
    difference: Difference | None = None
    for index in range(max(len(written), len(relayed))):
        source = written[index] if index < len(written) else b""
        got = relayed[index] if index < len(relayed) else b""
        expected = rewrite_event(source, ctx)
        rewritten = expected is not source
        changes += rewritten
        same = _json_equal(expected, got) if rewritten else expected == got
        if not same and difference is None:
            difference = Difference(case, index, _shown(expected), _shown(got))
    return changes, difference


def _json_equal(expected: bytes, got: bytes) -> bool:
    payload = data_of(got)
    if payload is None:
        return False
    try:
        return bool(json.loads(payload) == json.loads(data_of(expected) or b"null"))
    except ValueError:
        return False


def _shown(event: bytes) -> str:
    text = event.decode("utf-8", "backslashreplace")
    return text if len(text) <= 600 else text[:400] + f" ... ({len(text)} characters)"
