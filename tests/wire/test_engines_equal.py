"""Both relay engines give the same bytes, the same end and the same counts, whatever gen sends and reads cut."""

from __future__ import annotations

import asyncio
import json
import os
import random

import pytest

from sim.orchestrator import relay
from sim.orchestrator.frames import Frames
from tests.wire.engine_pair import Case, relayed
from tests.wire.scripted import DONE, GEN_USAGE, ROLE, TRUE_USAGE, token, usage_event

POLICIES = ("parse", "prefilter", "prefilter-find", "prefilter-nullaware", "verbatim")
CASES = int(os.environ.get("DISAGG_SIM_ENGINE_CASES", "10000"))
PER_TEST = 500
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"


SPELLINGS = [b"%X", b"%04x", b"%016x", b"%x;a=b", b'%x;a="b"', b"%x ", b"%x;a=" + b"b" * 1500]
ENDS = [b"0\r\nTrailer: x\r\n\r\n", b"0\r\n\r\nHTTP/1.1 200 OK\r\n", b"0\r\nbad\r\n\r\n", b"", b"zz\r\n", b"zz"]
FINISHES = (
    b'{"index":0,"delta":{},"finish_reason":"length"}',
    b'{"index":0,"finish_reason":"stop","delta":{"content":""}}',
    b'{"index":0,"finish_reason":"stop","text":""}',
    b'{"index":0,"text":"","finish_reason":"stop"}',
)


def text_event(text: str, front: bool) -> bytes:
    """A completion's token, its finish_reason before or behind the text."""
    written = json.dumps(text)
    choice = f'"finish_reason":null,"text":{written}' if front else f'"text":{written},"finish_reason":null'
    return f'data: {{"id":"cmpl-{"0" * 60}","choices":[{{"index":0,{choice}}}]}}\n\n'.encode()


def events(rng: random.Random) -> list[bytes]:
    """A stream as gen servers send them, with oddities: comments, other line endings, odd tokens, wrong ends."""
    made = [ROLE] if rng.random() < 0.7 else []
    kind = rng.random()
    for n in range(rng.randrange(0, 14)):
        tail = rng.choice(["", "", "", ',"usage":null', ',"usage":' + json.dumps(GEN_USAGE)])
        text = rng.choice([f" {n}", " word", "usage", '"usage": {', "é🙂", "x" * rng.choice([60, 300, 1500]), "[DONE]"])
        made.append(token(text, tail) if kind < 0.7 else text_event(text, front=kind < 0.85))
    if rng.random() < 0.15:
        made.insert(
            rng.randrange(len(made) + 1), rng.choice([b": ping\n\n", b"\n\n", b"id: 3\nevent: chunk\n" + token("y")])
        )
    if rng.random() < 0.05:
        made.insert(rng.randrange(len(made) + 1), b"data: " + b"z" * 3000 + b"\n\n")
    if rng.random() < 0.3:
        made.append(b'data: {"choices":[%b]}\n\n' % rng.choice(FINISHES))
    if rng.random() < 0.6:
        made.append(usage_event(GEN_USAGE))
    if rng.random() < 0.9:
        made.append(DONE)
    ending = rng.choice([b"\n"] * 6 + [b"\r\n", b"\r"])
    made = [event.replace(b"\n", ending) for event in made]
    if rng.random() < 0.1:
        made.append(rng.choice([b"\n", b"\r\n", b"data: more\n\n", b": ping\n\n" * 5, b": x", b"data: half"]))
    return made


def framed(rng: random.Random, made: list[bytes]) -> tuple[bytes, bytes]:
    """(head, framed body): an event a chunk mostly, else other cuts; sizes in every spelling; other framings."""
    body = b"".join(made)
    kind = rng.random()
    if kind < 0.06:
        return HEAD + b"Connection: close\r\n\r\n", body
    if kind < 0.12:
        return HEAD + b"Content-Length: %d\r\n\r\n" % (len(body) + rng.choice([0, 0, 5])), body
    if rng.random() < 0.75:
        pieces = [event for event in made if event]
    else:
        places = sorted(rng.sample(range(1, len(body)), min(rng.randrange(8), len(body) - 1))) if len(body) > 1 else []
        pieces = [body[a:b] for a, b in zip([0, *places], [*places, len(body)], strict=True) if a < b]
    spell = rng.choice([b"%x"] * len(SPELLINGS) + SPELLINGS)
    end = b"\n" if rng.random() < 0.05 else b"\r\n"
    chunks = [spell % len(piece) + b"\r\n" + piece + end for piece in pieces]
    last = rng.choice([b"0\r\n\r\n"] * len(ENDS) + ENDS)
    if chunks and rng.random() < 0.04:
        chunks[rng.randrange(len(chunks))] += b"oops"
    return HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"".join([*chunks, last])


def cut(rng: random.Random, body: bytes) -> list[bytes]:
    how = rng.random()
    if how < 0.1:
        return [body[at : at + 1] for at in range(len(body))] if len(body) < 600 else [body]
    if how < 0.3:
        return [body]
    places = {at + 1 for at in range(len(body)) if body[at : at + 1] == b"\n" and body[at - 3 : at + 1] == b"\n\n\r\n"}
    if how > 0.6:
        places |= {rng.randrange(1, len(body)) for _ in range(rng.randrange(6))} if len(body) > 1 else set()
        places -= set(rng.sample(sorted(places), len(places) // 3))
    ordered = sorted(places - {len(body)})
    return [body[a:b] for a, b in zip([0, *ordered], [*ordered, len(body)], strict=True) if a < b]


def case(seed: int) -> Case:
    rng = random.Random(seed)
    head, body = framed(rng, events(rng))
    reads = cut(rng, body)
    if reads and rng.random() < 0.2:
        head += reads.pop(0)
    switches = [(rng.randrange(len(reads)), rng.choice(POLICIES)) for _ in range(rng.choice([0, 0, 1, 3])) if reads]
    return Case(head, tuple(reads), rng.choice(POLICIES), tuple(switches))


@pytest.mark.parametrize("start", range(0, CASES, PER_TEST))
def test_random_streams_come_out_the_same_under_both_engines(start, monkeypatch):
    monkeypatch.setattr(relay, "_LINGER_S", 0.005)  # what has not come by then never does: all reads are delivered

    async def compare() -> None:
        frames = Frames()
        for seed in range(start, min(start + PER_TEST, CASES)):
            made = case(seed)
            # What was learned of a server's frames outlives a stream.
            frames = Frames() if seed % 8 == 0 else frames
            spliced, streamed = [await relayed(made, engine, POLICIES, frames) for engine in ("splice", "stream")]
            assert spliced == streamed, f"seed {seed}: {made}"

    asyncio.run(compare())


ODD_HEADS = {
    "chunked in capitals": b"Transfer-Encoding: Chunked\r\n",
    "a space behind chunked": b"Transfer-Encoding: chunked \r\n",
    "tabs around chunked": b"Transfer-Encoding:\tchunked\t\r\n",
    "something that ends in chunked": b"Transfer-Encoding: xchunked\r\n",
    "identity": b"Transfer-Encoding: identity\r\n",
    "identity and a length": b"Transfer-Encoding: identity\r\nContent-Length: 50\r\n",
    "gzip and chunked": b"Transfer-Encoding: gzip, chunked\r\n",
    "gzip, then chunked": b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n",
    "chunked, then gzip": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: gzip\r\n",
    "chunked twice": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
    "chunked and a length": b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
    "a length twice": b"Content-Length: 40\r\nContent-Length: 40\r\n",
    "a length of zero": b"Content-Length: 0\r\n",
    "another content encoding": b"Content-Encoding: foo\r\nTransfer-Encoding: chunked\r\n",
    "an upgrade": b"Upgrade: x\r\nConnection: upgrade\r\nTransfer-Encoding: chunked\r\n",
}
ODD_STARTS = {
    "HTTP/1.0": b"HTTP/1.0 200 OK\r\n",
    "HTTP/1.0 kept": b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 45\r\n",
    "HTTP/1.0 in chunks": b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n",
    "blank lines first": b"\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n",
    "blank lines between heads": b"HTTP/1.1 103 E\r\n\r\n\r\nHTTP/1.1 102 E\r\n\r\n"
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n",
}
ODD = {name: b"HTTP/1.1 200 OK\r\n" + lines for name, lines in ODD_HEADS.items()} | ODD_STARTS


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_both_engines_read_an_odd_head_the_same_way(odd, monkeypatch):
    monkeypatch.setattr(relay, "_LINGER_S", 0.005)

    async def compare() -> None:
        for seed in range(40):
            rng = random.Random(seed)
            made = events(rng)
            body = framed(rng, made)[1] if rng.random() < 0.7 else b"".join(made)
            tried = Case(odd + b"\r\n", tuple(cut(rng, body)), rng.choice(POLICIES))
            spliced, streamed = [await relayed(tried, engine, POLICIES, Frames()) for engine in ("splice", "stream")]
            assert spliced == streamed, f"seed {seed}: {tried}"

    asyncio.run(compare())


SHORT = [ROLE, *(token(f" {n}", ',"pad":"' + "x" * 40 + '"') for n in range(5)), usage_event(GEN_USAGE), DONE]
SENT = b"".join([*SHORT[:-2], usage_event(TRUE_USAGE), DONE])


def chunked(pieces: list[bytes]) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\nTrailer: x\r\n\r\n"


@pytest.mark.parametrize("engine", ["splice", "stream"])
@pytest.mark.parametrize("policy", ["parse", "prefilter-tail"])
@pytest.mark.parametrize(
    ("head", "body"),
    [
        (b"Transfer-Encoding: chunked\r\n\r\n", chunked(SHORT)),
        (b"Transfer-Encoding: chunked\r\n\r\n", chunked([b"".join(SHORT[:4]), b"".join(SHORT[4:])])),
        (b"Content-Length: %d\r\n\r\n" % len(b"".join(SHORT)), b"".join(SHORT)),
        (b"Connection: close\r\n\r\n", b"".join(SHORT)),
    ],
    ids=["an event a chunk", "events in chunks", "length", "until close"],
)
def test_a_short_stream_cut_at_any_byte_is_relayed_whole(head, body, policy, engine):
    async def relay_all() -> None:
        frames = Frames()
        for at in range(len(body) + 1):
            made = Case(HEAD + head, tuple(read for read in (body[:at], body[at:]) if read), policy)
            outcome = await relayed(made, engine, (policy,), frames)
            assert outcome is not None
            assert (outcome.body, outcome.ended) == (SENT, {"complete": 1}), f"cut at {at}"
            counts = [
                outcome.counts[kind] for kind in ("events", "chunks", "role_events", "usage_events", "done_events")
            ]
            assert counts == [8, 5, 1, 1, 1], f"cut at {at}"

    asyncio.run(relay_all())
