"""The equality gate's cases and its comparison: pure, no I/O.

A case is one client request whose complete stream is relayed under every policy and compared, event by event,
with what gen wrote: events the rewrite leaves alone must be byte-identical, the others JSON-equal to the
reference rewrite, every line that is not data and every line ending included.  Streams differ only in the
identity that gen gives each (id, created), which is masked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from sim.core.sse import SseDecoder, data_of, replace_data
from sim.core.usage import Usage, rewrite_event

__all__ = [
    "CASES",
    "Case",
    "Difference",
    "Relayed",
    "compare_streams",
    "cut_events",
    "mask_identity",
    "outcomes",
    "policy_failure",
]

MAX_EVENT_BYTES = 64 << 20

# Tokens that have broken real relays: the key itself, quoted and nested look-alikes, end markers, line ends.
_TRICKY_TEXTS = (
    "usage", '"usage"', "usage:", '{"usage": {"prompt_tokens": 1}}', '\\"usage\\"', "data: [DONE]", "[DONE]", "\n\n",
    "\r\n", "data:", " ", "", "\u2028", "\u00e9\u6f22\U0001f600", "\x00", "null", '"usage":null',
)  # fmt: skip
_PLAIN_TOKENS = 12
_LONG_TOKENS = 300  # some of a policy's faults take a while
_ITL_MS = 2  # whatever the scenario's: the gate is about bytes, and is not to wait for them

_CACHED_TOKENS = 8  # all cases have one prompt: a cache would know it from the second one on


@dataclass(frozen=True, slots=True)
class Case:
    """One request: endpoint, whether it is streamed and asks for usage, its answer's length and script."""

    name: str
    endpoint: str = "chat"
    stream: bool = True
    include_usage: bool = True
    script: Mapping[str, Any] = field(default_factory=dict)
    tokens: int = _PLAIN_TOKENS

    def body(self) -> dict[str, Any]:
        """The client's request body."""
        prompt = "The quick brown fox jumps over the lazy dog. " * 3
        body: dict[str, Any] = {"model": "sim", "max_tokens": self.tokens, "stream": self.stream}
        if self.endpoint == "chat":
            body["messages"] = [{"role": "user", "content": prompt}]
        else:
            body["prompt"] = prompt
        if self.stream:
            body["stream_options"] = {"include_usage": self.include_usage}
        body["disagg_sim"] = {"itl_ms": _ITL_MS, "cached_tokens": _CACHED_TOKENS, **self.script}
        return body


CASES: tuple[Case, ...] = (
    Case("as configured, chat"),
    Case("as configured, completions", endpoint="completions"),
    Case("as configured, usage not asked for", include_usage=False),
    Case("as configured, a long reply", tokens=_LONG_TOKENS),
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
    Case("usage inside choices", script={"extras": "nested"}),
    Case("usage inside choices, completions", endpoint="completions", script={"extras": "nested"}),
    Case("usage inside choices and on each chunk", script={"extras": "nested", "usage": "continuous"}),
    Case("comment, event and id lines", script={"extras": "sse"}),
    Case("comment, event and id lines, CRLF", script={"extras": "sse", "newline": "crlf", "usage": "continuous"}),
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


@dataclass(frozen=True, slots=True)
class Relayed:
    """A case under one policy: events relayed, events the reference changes, first difference if any.

    ``failed`` is the policy, active or not, whose failure ended the stream; the difference is then its error.
    """

    events: int
    changes: int
    difference: Difference | None
    failed: str | None = None


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
        created = re.compile(rb'("created"\s*:\s*)%d\b' % body["created"])
    except (ValueError, KeyError, TypeError):
        return list(events)
    return [created.sub(rb"\g<1>0", event.replace(identity, b'"ID"')) for event in events]


def policy_failure(events: Sequence[bytes], policies: Iterable[str]) -> tuple[str, str] | None:
    """(which of ``policies`` failed, the error's text), or None: the orchestrator ends such a stream with an error.

    It names the policy, which need not be the active one: a stream that opens gets a callable of every policy.
    ``events`` may also be the one body of a refusal.
    """
    last = events[-1] if events else b""
    payload = data_of(last)
    try:
        error = json.loads(last if payload is None else payload)["error"]
        code, message = error["code"], str(error["message"])
    except (ValueError, KeyError, TypeError):
        return None
    if code != "policy_error":
        return None
    return next(((policy, message) for policy in policies if message.startswith(f"policy {policy!r} ")), None)


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
        same = _equal_rewrite(expected, got) if rewritten else expected == got
        if not same and difference is None:
            difference = Difference(case, index, _shown(expected), _shown(got))
    return changes, difference


def outcomes(
    own_names: Mapping[str, str], played: Mapping[str, tuple[Sequence[Relayed], int]]
) -> dict[str, dict[str, Any]]:
    """Each policy's entry in ``equality.json``: what it did itself, and what it broke while another was active.

    ``own_names`` are the policies' names without aliases; ``played`` holds, by policy, its cases and how many
    events it says it changed.
    """
    failures: dict[str, Difference] = {}
    for one in (one for relayed, _ in played.values() for one in relayed):
        if one.failed is not None and one.difference is not None:
            failures.setdefault(one.failed, one.difference)
    results = {}
    for policy, (relayed, changed) in played.items():
        own_name = own_names[policy]
        own = [one for one in relayed if one.failed in (None, own_name)]
        results[policy] = _outcome(own, changed, failures.get(own_name))
    return results


def _outcome(relayed: Sequence[Relayed], changed: int, failure: Difference | None) -> dict[str, Any]:
    expected_changes = sum(one.changes for one in relayed)
    first = failure or next((one.difference for one in relayed if one.difference), None)
    if first is None and changed != expected_changes:
        first = Difference("all", 0, f"{expected_changes} events changed", f"{changed} events changed")
    return {
        "state": "equal" if first is None else "differs",
        "events": sum(one.events for one in relayed),
        "changed": changed,
        "expected_changes": expected_changes,
        "first_difference": None if first is None else asdict(first),
    }


def _equal_rewrite(expected: bytes, got: bytes) -> bool:
    """The same JSON in the same frame: all other lines, and line endings, byte for byte."""
    payload = data_of(got)
    if payload is None or replace_data(got, b"") != replace_data(expected, b""):
        return False
    try:
        return bool(json.loads(payload) == json.loads(data_of(expected) or b"null"))
    except ValueError:
        return False


def _shown(event: bytes) -> str:
    text = event.decode("utf-8", "backslashreplace")
    return text if len(text) <= 600 else text[:400] + f" ... ({len(text)} characters)"
