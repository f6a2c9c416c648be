"""Per-chunk policies: what the relay does to each event to give the client ctx's usage instead of gen's.

A policy is made once per stream from ctx's usage and maps an event's exact bytes to the bytes to send.  It
returns *the same object* when it changes nothing, it keeps no state between events (a switch may show it only
some of a stream's; what it may remember is what moves its cost and never an output), and whatever it costs is what
an experiment measures.  All of them give JSON-equal events; they differ in how they find out that an event needs no
change.

How an event is rewritten is `sim.core.usage`; which policy is active is `sim.orchestrator.arms`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec
import orjson

from sim.core.usage import Usage, rewrite_event
from sim.orchestrator import known_shape
from sim.orchestrator.counters import PolicyCounters

__all__ = ["ALIASES", "BUILTIN", "NEEDS_GEN", "Factory", "Policy", "canonical", "make"]

Policy = Callable[[bytes], bytes]
Factory = Callable[[Usage, PolicyCounters], Policy]

ALIASES: Mapping[str, str] = {"filter-off": "parse", "filter-on": "prefilter"}
NEEDS_GEN = "verbatim"  # right only when gen itself reports ctx's numbers

_KEY = b'"usage"'
_AFTER_KEY = len(_KEY)
_NULLS = (b":null", b": null")
_INTEGER_PAST_64_BITS = re.compile(rb"[0-9]{19}")


def make(name: str, ctx_usage: Usage, counters: PolicyCounters | None = None) -> Policy:
    """The built-in policy ``name`` (or an alias) for one stream; ``counters.parsed`` counts decoded events.

    A plug-in that wraps a built-in one calls this.  Raises ValueError with the names there are.
    """
    factory = BUILTIN.get(canonical(name))
    if factory is None:
        raise ValueError(f"{name!r} is not a built-in policy; built-in: {', '.join((*BUILTIN, *ALIASES))}")
    return factory(ctx_usage, PolicyCounters() if counters is None else counters)


def canonical(name: str) -> str:
    """The name behind an alias; any other name is its own."""
    return ALIASES.get(name, name)


def parse(ctx: Usage, counters: PolicyCounters) -> Policy:
    """`json.loads` on every event that has data, rewrite where ``usage`` is an object (TensorRT-LLM #13620)."""

    def loads(data: bytes) -> Any:
        counters.parsed += 1
        return json.loads(data)

    # A partial, not a closure: counting then costs no Python call that the policy would not make anyway.
    return partial(rewrite_event, ctx=ctx, loads=loads)


def prefilter(ctx: Usage, counters: PolicyCounters) -> Policy:
    r"""Verbatim unless the bytes hold ``"usage"``; then as `parse` (TensorRT-LLM #15042).

    Text can't fool it into a change: a token that is exactly ``usage`` costs a parse and comes out as it was,
    and text that holds quotes has them escaped on the wire.  What a byte test can't see is a key spelled with
    an escape (``"us\u0061ge"``, legal JSON): such an event passes with gen's numbers.  This blind spot is
    shared by every prefilter policy but `prefilter-tail`.
    """
    rewrite = parse(ctx, counters)

    def policy(event: bytes) -> bytes:
        if b'"usage"' not in event:
            return event
        return rewrite(event)

    return policy


def prefilter_find(ctx: Usage, counters: PolicyCounters) -> Policy:
    """As `prefilter`, by ``rfind``: ``in`` on bytes first tries the needle as an integer, which costs more.

    From the right, as usage comes last where it comes at all.  Blind to an escaped key, as `prefilter`.
    """
    rewrite = parse(ctx, counters)

    def policy(event: bytes) -> bytes:
        if event.rfind(b'"usage"') < 0:
            return event
        return rewrite(event)

    return policy


def prefilter_nullaware(ctx: Usage, counters: PolicyCounters) -> Policy:
    """As `prefilter-find`, and an event whose every ``"usage"`` is a key with the value null passes too.

    OpenAI puts ``"usage":null`` on each chunk when usage was asked for; a plain filter then parses them all.
    A null that is spelled otherwise (more space, a line ending) is parsed, so nothing is missed.  Blind to an
    escaped key, as `prefilter`.
    """
    rewrite = parse(ctx, counters)

    def policy(event: bytes) -> bytes:
        at = event.rfind(b'"usage"')
        while at >= 0:
            if not event.startswith(_NULLS, at + _AFTER_KEY):
                return rewrite(event)
            at = event.rfind(b'"usage"', 0, at)
        return event

    return policy


def prefilter_tail(ctx: Usage, counters: PolicyCounters) -> Policy:
    """As `prefilter-nullaware`, by comparing an event's head and tail with those of one that was decoded before.

    Its cost does not grow with the event, it sees an escaped key, and into a usage on every chunk it splices ctx's
    numbers without decoding.  A stream's first events, and any that is not like those before, cost more.
    """
    return known_shape.prefilter_tail(ctx, counters, parse(ctx, counters))


def parse_orjson(ctx: Usage, counters: PolicyCounters) -> Policy:
    """As `parse`, decoding with orjson; where orjson's result would differ from json's, json decodes again.

    That is: what orjson refuses and json takes (NaN, lone surrogates, a byte-order mark), and an event to be
    rewritten that may hold an integer past 64 bits, which orjson would turn into a float.
    """

    def loads(data: bytes) -> Any:
        counters.parsed += 1
        try:
            body = orjson.loads(data)
        except orjson.JSONDecodeError:
            return json.loads(data)
        if type(body) is dict and type(body.get("usage")) is dict and _INTEGER_PAST_64_BITS.search(data):
            return json.loads(data)
        return body

    return partial(rewrite_event, ctx=ctx, loads=loads)


class _UsageOnly(msgspec.Struct, gc=False):
    """The one field a typed decoder builds; it skips the rest of the chunk."""

    usage: dict[str, Any] | None = None


_decode_usage = msgspec.json.Decoder(_UsageOnly).decode
_decode_whole = msgspec.json.Decoder().decode


def parse_msgspec(ctx: Usage, counters: PolicyCounters) -> Policy:
    """As `parse`, with a typed decoder that builds only ``usage``; the whole is decoded when there is one.

    What msgspec refuses goes to json, so both agree on every event.
    """

    def loads(data: bytes) -> Any:
        counters.parsed += 1
        try:
            return None if _decode_usage(data).usage is None else _decode_whole(data)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return json.loads(data)

    return partial(rewrite_event, ctx=ctx, loads=loads)


def verbatim(ctx: Usage, counters: PolicyCounters) -> Policy:  # noqa: ARG001 - the factories' common form
    """Bytes through; gen was given ctx's usage and reports it (TensorRT-LLM #14177)."""

    def policy(event: bytes) -> bytes:
        return event

    return policy


BUILTIN: Mapping[str, Factory] = {
    "parse": parse,
    "prefilter": prefilter,
    "prefilter-find": prefilter_find,
    "prefilter-nullaware": prefilter_nullaware,
    "prefilter-tail": prefilter_tail,
    "parse-orjson": parse_orjson,
    "parse-msgspec": parse_msgspec,
    "verbatim": verbatim,
}
