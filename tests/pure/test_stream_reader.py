"""The reader gives the same result the short way and the full way, whole, byte by byte and cut anywhere."""

from __future__ import annotations

import json
import random

import pytest

from loadtest.stream_check import judge
from loadtest.stream_reader import ENDED, FIRST_TOKEN, MORE, StreamReader
from loadtest.time_log import TokenGaps
from tests.pure.replies import END, HEAD, MS, SHAPES, chunk, events_of, expectation, read, reads_of, shape

TOKENS = 130  # past 9, 99: the number grows twice


def counts(reader):
    names = (
        "tokens", "chunks", "events", "role_events", "finish_events", "usage_events", "done_events", "other_events",
        "event_bytes", "finished_at", "usage", "usage_at", "chunk_usages", "fault", "first_token_ns", "last_token_ns",
    )  # fmt: skip
    return {name: getattr(reader, name) for name in names} | {"gaps": reader.gaps.itl.to_json()}


def cuts(raw, how):
    if how == "whole":
        return [raw]
    if how == "byte by byte":
        return [raw[i : i + 1] for i in range(len(raw))]
    places = sorted(random.Random(how).sample(range(1, len(raw)), 40))
    return [raw[a:b] for a, b in zip([0, *places], [*places, len(raw)], strict=True)]


@pytest.mark.parametrize("endpoint", ["chat", "completions"])
@pytest.mark.parametrize("name", SHAPES)
def test_every_shape_is_counted_to_the_unit(name, endpoint):
    events = events_of(TOKENS, endpoint, **SHAPES[name])
    reader = read(reads_of(events))

    assert reader.fault is None
    assert reader.http.complete
    assert reader.tokens == TOKENS
    assert reader.chunks == -(-TOKENS // SHAPES[name].get("tokens_per_chunk", 1))
    assert reader.role_events == (endpoint == "chat")
    assert reader.finish_events == (SHAPES[name].get("finish") == "own")
    assert reader.usage_events == (SHAPES[name].get("usage") != "absent")
    assert reader.done_events == 1
    assert reader.other_events == 0
    assert reader.events == len(events)
    assert reader.event_bytes == sum(map(len, events))
    assert reader.finished_at == TOKENS
    assert len(reader.chunk_usages) == (SHAPES[name].get("usage") == "continuous")


def test_a_stream_that_is_to_be_cancelled_goes_the_full_way_and_gives_the_same():
    reads = reads_of(events_of(TOKENS))
    watched, other = StreamReader(TokenGaps(), stop_after=3), StreamReader(TokenGaps())
    taken = {watched: 0, other: 0}
    for reader in taken:
        for number, data in enumerate(reads):
            if reader.took(data, number * MS):
                taken[reader] += 1
            else:
                reader.feed(data, number * MS)
        reader.gaps.single.fold()

    assert counts(watched) == counts(other)
    assert taken[watched] == 0
    assert taken[other] > 100


@pytest.mark.parametrize("name", SHAPES)
def test_the_short_way_gives_what_the_full_way_gives(name):
    reads = reads_of(events_of(TOKENS, **SHAPES[name]))
    short, full = read(reads), read(reads, keep=True, foresee=False)

    assert counts(short) == counts(full)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("how", ["whole", "byte by byte", *range(10)])
def test_reads_may_cut_and_merge_anywhere(name, how):
    events = events_of(TOKENS, **SHAPES[name])
    pieces = cuts(b"".join(reads_of(events)), how)
    short, full = read(pieces), read(pieces, keep=True, foresee=False)

    assert counts(short) == counts(full)
    assert (short.tokens, short.events, short.fault) == (TOKENS, len(events), None)
    assert short.event_bytes == sum(map(len, events))
    assert b"".join(full.kept) == b"".join(events)


@pytest.mark.parametrize("seed", range(20))
def test_ways_may_change_at_any_read(seed):
    """Single chunks, pairs, splits and merges in one stream."""
    rng = random.Random(seed)
    events = events_of(TOKENS, **rng.choice(list(SHAPES.values())))
    pieces, reads = [], reads_of(events)
    while reads:
        take = b"".join(reads[: (several := rng.choice([1, 1, 1, 1, 2, 5]))])
        del reads[:several]
        cut = rng.randrange(len(take)) if rng.random() < 0.2 else 0
        pieces += [part for part in (take[:cut], take[cut:]) if part]
    short, full = read(pieces), read(pieces, keep=True, foresee=False)

    assert counts(short) == counts(full)
    assert short.event_bytes == sum(map(len, events))


def spaced(events):
    """As a router that decodes and encodes anew writes them."""
    for event in events:
        data = event.strip().removeprefix(b"data: ")
        yield b"data: " + (data if data == b"[DONE]" else json.dumps(json.loads(data)).encode()) + b"\n\n"


def escaped(events):
    """As a router with other escapes writes them."""
    for event in events:
        yield event.replace(b'"content":" ', b'"content":"\\u0020')


def reordered(events):
    """As a router that sorts keys, and stamps every event anew, writes them."""
    for number, event in enumerate(events):
        data = event.strip().removeprefix(b"data: ")
        if data != b"[DONE]":
            data = json.dumps({**json.loads(data), "created": number}, sort_keys=True).encode()
        yield b"id: %d\nevent: message\ndata:%b\n\n" % (number, data)


@pytest.mark.parametrize("rewrite", [spaced, escaped, reordered])
def test_events_written_anew_by_a_router_are_understood(rewrite):
    events = list(rewrite(events_of(TOKENS, dialect="openai", usage="null", finish="own")))
    reader = read(reads_of(events))

    assert judge(reader, expectation(TOKENS, shape=None)) == ("ok", "")
    assert reader.events == len(events)


def test_json_that_only_lenient_decoders_take_is_taken():
    events = events_of(12)
    events[4] = events[4].replace(b'"index":0', b'"index":0,"logprobs":NaN,"more":"\\ud800"')

    assert judge(read(reads_of(events)), expectation(12)) == ("ok", "")


@pytest.mark.parametrize("framing", [b"", b"Content-Length: %d\r\n"], ids=["until close", "content length"])
def test_a_body_that_is_not_chunked_is_read_alike(framing):
    events = events_of(TOKENS)
    length = framing % sum(map(len, events)) if framing else b""
    reader = read([b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n" + length + b"\r\n", *events])
    reader.eof()

    assert judge(reader, expectation(TOKENS)) == ("ok", "")
    assert reader.event_bytes == sum(map(len, events))


def test_comments_are_allowed_anywhere():
    events = events_of(4)
    reader = read(reads_of([b": ping\n\n", *events[:3], b": ping\n\n", *events[3:]]))

    assert judge(reader, expectation(4)) == ("ok", "")
    assert reader.other_events == 2


def test_stamps_are_those_of_the_reads():
    # Reads: head, role, token 0, 1, 2, usage, [DONE], end; 10 ms apart from 10 ms on.
    reader = read(reads_of(events_of(3)))

    assert (reader.first_byte_ns, reader.first_token_ns, reader.last_token_ns) == (10 * MS, 30 * MS, 50 * MS)
    assert reader.heard_ns == 80 * MS


def test_feed_tells_the_first_token_and_the_end_once():
    reader = StreamReader(TokenGaps())
    news = [reader.feed(data, 1) for data in reads_of(events_of(3))]

    assert news == [MORE, MORE, FIRST_TOKEN, MORE, MORE, MORE, MORE, ENDED]
    assert StreamReader(TokenGaps()).feed(b"".join(reads_of(events_of(3))), 1) == FIRST_TOKEN | ENDED


def test_a_gap_is_shared_by_the_tokens_of_the_later_event():
    # Tokens 0-3, 4-7, 8-9, 10 ms apart: nothing for the first event, then 4 x 2.5 ms and 2 x 5 ms.
    gaps = read(reads_of(events_of(10, tokens_per_chunk=4))).gaps.itl

    assert (gaps.count, gaps.sum_ns, gaps.max_ns) == (6, 20 * MS, 5 * MS)


def test_the_gap_between_chunks_is_counted_once_whatever_they_hold():
    several = read(reads_of(events_of(10, tokens_per_chunk=4))).gaps.inter_chunk
    assert (several.count, several.sum_ns, several.max_ns) == (2, 20 * MS, 10 * MS)

    single = read(reads_of(events_of(10))).gaps
    assert single.inter_chunk.to_json() == single.itl.to_json()
    assert (single.inter_chunk.count, single.inter_chunk.sum_ns) == (9, 90 * MS)


@pytest.mark.parametrize("foresee", [True, False])
def test_with_several_tokens_a_chunk_neither_role_nor_finish_nor_usage_is_a_token(foresee):
    """Reads at 10 ms: head; 20: role; 30, 40, 50: tokens 0-3, 4-7, 8-9; then finish, usage, [DONE]."""
    events = events_of(10, tokens_per_chunk=4, dialect="openai", finish="own", usage="null")
    reader = read(reads_of(events), foresee=foresee)

    assert (reader.first_token_ns, reader.last_token_ns) == (30 * MS, 50 * MS)
    assert (reader.tokens, reader.chunks, reader.events) == (10, 3, 7)
    assert (reader.role_events, reader.finish_events, reader.usage_events, reader.done_events) == (1, 1, 1, 1)
    assert (reader.gaps.itl.count, reader.gaps.inter_chunk.count) == (6, 2)


def test_of_several_events_in_one_read_the_first_has_the_gap():
    head, role, first, *rest = reads_of(events_of(5))
    gaps = read([head + role + first, b"".join(rest)]).gaps.itl

    assert (gaps.count, gaps.sum_ns, gaps.max_ns) == (4, 10 * MS, 10 * MS)
    assert gaps.counts[0] == 3


def test_the_end_is_not_expected_to_look_like_a_token():
    """After a template was made, a read of the same length that is not the next token is seen for what it is."""
    events = events_of(9, chunk_bytes=258)
    for wrong in (events[5].replace(b'" 4"', b'" 5"'), events[5].replace(b"chatcmpl-7", b"chatcmpl-8")):
        reader = read(reads_of([*events[:5], wrong, *events[6:]]))

        assert reader.events == len(events)
        assert reader.fault == ("wrong_order" if wrong.find(b'" 5"') > 0 else None)


@pytest.mark.parametrize("size", [b"0102", b"103"])
def test_a_template_does_not_hide_wrong_framing(size):
    """Token 10 is a byte longer than token 9; in a chunk of token 9's size it must not pass."""
    events = events_of(12)
    reads = reads_of(events)
    nine = reads[2 + 9]
    reads[2 + 10] = nine.replace(b'" 9"', b'" 10"')

    assert read(reads).fault == "bad_http"


FAULTS = {
    "token lost": (lambda e: [*e[:4], *e[5:]], "wrong_order"),
    "token doubled": (lambda e: [*e[:4], e[3], *e[4:]], "wrong_order"),
    "tokens exchanged": (lambda e: [*e[:3], e[4], e[3], *e[5:]], "wrong_order"),
    "foreign text": (lambda e: [*e[:3], e[3].replace(b'" 2"', b'"hello"'), *e[4:]], "wrong_order"),
    "error event": (lambda e: [*e[:5], b'data: {"error":{"message":"gen died"}}\n\n'], "error_event"),
    "not JSON": (lambda e: [*e[:5], b"data: {oops\n\n", *e[5:]], "bad_event"),
    "a JSON list": (lambda e: [*e[:5], b"data: []\n\n", *e[5:]], "bad_event"),
    "event after the end": (lambda e: [*e, e[2]], "after_done"),
    "second end": (lambda e: [*e, e[-1]], "after_done"),
    "last token after the end": (lambda e: [*e[:29], *e[31:], e[29]], "after_done"),
    "number in another field": (lambda e: [e[0], *(quoting(k, b'"note"') for k in range(30)), *e[-2:]], "wrong_order"),
    "number in two fields": (lambda e: [*e[:3], quoting(2, b'"note":" 2","more"'), *e[4:]], "wrong_order"),
    "token that is not JSON": (lambda e: [e[0], b'data: {{"content":" 0"}\n\n', *e[2:]], "bad_event"),
}  # fmt: skip


def quoting(number, key):
    """An event with the number in another field than its text."""
    return b'data: {"id":"x",%b:" %d","choices":[{"index":0,"delta":{"content":"oh"}}]}\n\n' % (key, number)


def test_an_event_that_is_no_data_holds_no_token():
    role, *_, usage, done = events_of(3)
    reader = read(reads_of([role, *(b'xata: {"content":" %d"}\n\n' % k for k in range(3)), usage, done]))

    assert (reader.tokens, reader.other_events) == (0, 3)


AMBIGUOUS = {
    "in front": b'data: {"logprobs":{"content":" %d"},"choices":[{"delta":{"content":" %d"}}]}\n\n',
    "behind": b'data: {"choices":[{"delta":{"content":" %d"}}],"text":" %d"}\n\n',
    "with escapes": b'data: {"note":" %d","choices":[{"delta":{"content":"\\u0020%d"}}]}\n\n',
}


@pytest.mark.parametrize("name", AMBIGUOUS)
@pytest.mark.parametrize("framed", [reads_of, lambda events: [HEAD, chunk(b"".join(events))]], ids=["reads", "whole"])
def test_a_number_that_stands_in_an_event_twice_is_not_taken_for_the_token(name, framed):
    """An event like the one before but for one of the two numbers: only as JSON it shows which is the token's."""
    role, *_, usage, done = events_of(3)
    pairs = [(0, 0), (1, 1), (1, 2) if name == "behind" else (2, 1)]
    reader = read(framed([role, *(AMBIGUOUS[name] % pair for pair in pairs), usage, done]))

    assert (reader.tokens, reader.fault_detail) == (3, "token 2 was due, ' 1' came")


@pytest.mark.parametrize(("change", "fault"), FAULTS.values(), ids=FAULTS)
@pytest.mark.parametrize("how", ["an event a read", "whole", "byte by byte", 1, 2, 3])
def test_what_goes_wrong_has_its_own_word(change, fault, how):
    reads = reads_of(change(events_of(30, chunk_bytes=258)))
    reader = read(reads if how == "an event a read" else cuts(b"".join(reads), how))

    assert reader.fault == fault


def test_the_first_fault_counts():
    events = events_of(8)
    reader = read(reads_of([*events[:3], *events[4:6], b"data: {oops\n\n"], end=b""))
    reader.eof()

    assert reader.fault == "wrong_order"
    assert reader.fault_detail == "token 2 was due, ' 3' came"


@pytest.mark.parametrize("left", [0, 1, 40])
def test_a_cut_is_a_cut_wherever_it_falls(left):
    raw = b"".join(reads_of(events_of(8)[:6], end=b""))
    reader = read([raw[: len(raw) - left]])
    reader.eof()

    assert reader.fault == "cut"


def test_a_response_that_ends_cleanly_inside_an_event_is_a_cut():
    events = events_of(8)

    assert read(reads_of([*events[:5], events[5][:40]])).fault == "cut"


def test_a_connection_that_ends_after_the_end_marker_only_breaks_http():
    reader = read(reads_of(events_of(8), end=b""))
    reader.eof()

    assert (reader.fault, reader.done_events) == ("bad_http", 1)


def test_another_status_is_the_fault_and_its_body_is_kept():
    body = b'{"error":{"message":"busy"}}'
    reader = StreamReader(TokenGaps())
    news = reader.feed(b"HTTP/1.1 429 Too Many\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body), 1)

    assert news == ENDED
    assert judge(reader, expectation()) == ("http_429", body.decode())


def test_garbage_ends_the_stream():
    reader = StreamReader(TokenGaps())

    assert reader.feed(b"hello there", 1) == ENDED
    assert reader.fault == "bad_http"


def test_an_endless_event_ends_the_stream(monkeypatch):
    monkeypatch.setattr("loadtest.stream_reader.MAX_EVENT_BYTES", 1000)
    reader = StreamReader(TokenGaps())
    reader.feed(HEAD, 1)

    assert reader.feed(chunk(b"data: " + b"x" * 2000), 2) == ENDED
    assert reader.fault == "bad_event"


def test_nothing_is_kept_unless_asked():
    assert read(reads_of(events_of(5))).kept is None
    assert list(read([*reads_of(events_of(5), end=b""), END], keep=True).kept) == events_of(5)
    assert shape().usage == "final"
