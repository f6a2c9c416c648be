r"""The policy `prefilter-tail`: an event that differs from a decoded one only inside its text needs no second look.

Theory of operation.  All chunks of a stream are one *head* (up to the quote that opens the text), the text, and
one *tail* (from the quote that closes it).  A stream's first chunk is decoded; from then on comparing head and
tail, each one memcmp, tells that a chunk has no usage to rewrite, whatever its size.  Why that is sound:

* The head holds no backslash and no ``"usage"``, so no key in it is usage; it ends inside a string that is a value.
* The tail holds no backslash and, from the quote that closes the text on, an odd number of quotes.  In valid JSON it
  therefore begins inside a string, and the depth of every key in it, counted from its end, is what it was in the
  decoded chunk, where usage was no object.
* So a usage can only stand in between.  It takes 11 bytes (``","usage":{``) to close the text and put one there, and
  at least one quote.  Between the two there are either fewer bytes than that or no quote at all.
* A line ending in between cuts the event into lines; it can't add a usage either, and inside a string it is no JSON.

Data that is no JSON passes under every policy.  This also covers a key spelled with an escape, to which a search
for the bytes ``"usage"`` is blind.  What is not of the shape goes on to that search, and escapes to the parser.

Continuous usage is the same thought: where the tail holds a usage of known form, the text and four numbers differ;
a regular expression that takes only valid strings finds them, and ctx's numbers are spliced in.

What a stream's callable remembers so is knowledge about bytes, not state: it moves costs, never an output, and it
does not matter which of the stream's events it is shown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import orjson

from sim.core.sse import LINE_ENDINGS, data_of
from sim.core.usage import Usage
from sim.orchestrator.counters import PolicyCounters

__all__ = ["holds_no_usage", "prefilter_tail"]

Policy = Callable[[bytes], bytes]

SHORT_TEXT_BYTES = len(b'","usage":{') - 1  # no usage object fits into that, quotes or not
MAX_LEARNINGS = 16  # tries per stream: one that keeps changing shape is searched, not learned again and again
MAX_HEADS = 4  # with one tail: two choices in turn, padding that follows the text's length

_START = b'data: {"'  # a payload that begins so is UTF-8 to json, which also takes UTF-16 and -32
_KEY = b'"usage"'
_NULLS = (b":null", b": null")
_TEXT_OPENS = re.compile(rb'"(?:content|text|reasoning_content|reasoning|arguments)": ?"')
_COUNTS = re.compile(rb'("(?:prompt_tokens|total_tokens|completion_tokens|cached_tokens)"): ?([0-9]+)')
_PLAIN = rb'[^"\\\x00-\x1f]*+'
_STRING = rb'(%b(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})%b)*+)' % (_PLAIN, _PLAIN)  # what json takes between two quotes
_NUMBER = rb"(0|[1-9][0-9]{0,17})"


def prefilter_tail(ctx: Usage, counters: PolicyCounters, rewrite: Policy) -> Policy:
    """The callable of one stream; ``rewrite`` is `parse`'s, for what is not known."""
    heads: tuple[bytes, ...] = ()
    tail = b""
    long_text_from = 0  # bytes of an event from which on its text may be long enough to hold a usage
    splice: Callable[[bytes], bytes | None] | None = None
    learnings_left = MAX_LEARNINGS

    def policy(event: bytes) -> bytes:
        if len(event) < long_text_from and event.startswith(heads) and event.endswith(tail):
            return event
        return look(event)

    def look(event: bytes) -> bytes:
        nonlocal learnings_left
        if event.endswith(tail):
            for head in heads:
                if event.startswith(head) and event.find(b'"', len(head), -len(tail)) < 0:
                    return event
        if splice is not None and (spliced := splice(event)) is not None:
            return spliced
        if learnings_left:
            learnings_left -= 1
            if (frame := _frame_of(event)) is not None:
                return learn(event, *frame)
        return event if holds_no_usage(event) else rewrite(event)

    def learn(event: bytes, head: bytes, new_tail: bytes) -> bytes:
        nonlocal heads, tail, long_text_from, splice
        counters.parsed += 1
        try:
            body = orjson.loads(data_of(event) or b"")
        except orjson.JSONDecodeError:
            return rewrite(event)
        if type(body.get("usage")) is dict:
            rewritten = rewrite(event)
            splice = _splicer(event, head, new_tail, ctx, rewritten) or splice
            return rewritten
        heads = (head, *heads)[:MAX_HEADS] if new_tail == tail else (head,)
        tail = new_tail
        long_text_from = min(map(len, heads)) + len(tail) + SHORT_TEXT_BYTES + 1
        return event

    return policy


def holds_no_usage(event: bytes) -> bool:
    """Whether a search shows that no key is ``usage``, however spelled, with anything but a plain null.

    False only means that a parser has to tell.
    """
    at = event.rfind(_KEY)
    while at >= 0:
        if not event.startswith(_NULLS, at + len(_KEY)):
            return False
        at = event.rfind(_KEY, 0, at)
    # Each letter of usage, escaped, begins so.  A NUL is in every UTF-16 and UTF-32, which json takes: nothing that is
    # looked for here would be found in them.
    return event.find(b"\0") < 0 and event.find(rb"\u006") < 0 and event.find(rb"\u007") < 0


def _frame_of(event: bytes) -> tuple[bytes, bytes] | None:
    """The event's head and tail if, should it be valid JSON, they have the properties the proof needs; else None."""
    if not event.startswith(_START):
        return None
    openings = [match.end() for match in _TEXT_OPENS.finditer(event)]
    if not openings:
        return None
    head = event[: openings[-1]]
    closing = event.find(b'"', len(head))
    tail = event[closing:]
    line = event.rstrip(LINE_ENDINGS)
    if closing < 0 or b"\\" in event or b"\n" in line or b"\r" in line or _KEY in head:
        return None
    return head, tail


def _splicer(
    event: bytes, head: bytes, tail: bytes, ctx: Usage, rewritten: bytes
) -> Callable[[bytes], bytes | None] | None:
    """What puts ctx's numbers into events like ``event`` (None for others); None if ``tail`` is not of known form.

    Known are tails with one ``usage`` and each of the four counts once, so that the keys found in the bytes are
    the ones that count; and the first splice must say what ``rewritten``, the full way's result, says.
    """
    counts = {match[1].strip(b'"').decode(): match for match in _COUNTS.finditer(tail)}
    keys = [b'"%b"' % name.encode() for name in counts]
    if len(counts) != 4 or rewritten is event or any(tail.count(key) != 1 for key in (_KEY, *keys)):
        return None
    cuts = [0, *(edge for match in counts.values() for edge in match.span(2)), len(tail)]
    between = tuple(tail[cuts[n] : cuts[n + 1]] for n in range(0, len(cuts), 2))
    match_rest = _matcher(between)
    place = {name: 2 * n + 1 for n, name in enumerate(counts)}  # of each number among the pieces of a tail
    pieces = [piece for text in between for piece in (text, b"")][:-1]
    pieces[place["prompt_tokens"]] = b"%d" % ctx.prompt_tokens
    pieces[place["cached_tokens"]] = b"%d" % ctx.cached_tokens
    total_at, completion_at = place["total_tokens"], place["completion_tokens"]
    completion_group = (completion_at + 1) // 2 + 1
    head_bytes, prompt_tokens = len(head), ctx.prompt_tokens

    def splice(event: bytes) -> bytes | None:
        found = match_rest(event, head_bytes) if event.startswith(head) else None
        if found is None:
            return None
        text, completion = found.group(1, completion_group)
        if not (text.isascii() or _is_utf8(text)):
            return None
        pieces[completion_at] = completion
        pieces[total_at] = b"%d" % (prompt_tokens + int(completion))
        out = b"".join((head, text, *pieces))
        return event if out == event else out

    return splice if _same_json(splice(event), rewritten) else None


@lru_cache(maxsize=64)
def _matcher(between: tuple[bytes, ...]) -> Callable[..., re.Match[bytes] | None]:
    """What matches a text and a tail with any four counts in it; compiled once for all streams of a server."""
    return re.compile(_STRING + _NUMBER.join(map(re.escape, between))).fullmatch


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _same_json(one: bytes | None, other: bytes) -> bool:
    return one is not None and _decoded(one) == _decoded(other)


def _decoded(event: bytes) -> Any:
    return json.loads(data_of(event) or b"null")
