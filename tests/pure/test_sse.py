"""The decoder: exact bytes however a stream is read, linear work, a bound; and what an event's payload is."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.core import sse
from sim.core.sse import EventTooLongError, SseDecoder, data_of, is_done, replace_data

BOM = b"\xef\xbb\xbf"
BOUND = 1 << 20

# name: (stream, events when read whole, their payloads, unfinished tail)
STREAMS = {
    "nothing": (b"", [], [], b""),
    "lf": (b"data: a\n\ndata: b\n\n", [b"data: a\n\n", b"data: b\n\n"], [b"a", b"b"], b""),
    "crlf": (b"data: a\r\n\r\ndata: b\r\n\r\n", [b"data: a\r\n\r\n", b"data: b\r\n\r\n"], [b"a", b"b"], b""),
    "cr": (b"data: a\r\rdata: b\r\r", [b"data: a\r\r", b"data: b\r\r"], [b"a", b"b"], b""),
    "lf-then-crlf": (b"data: a\n\r\ndata: b\n\n", [b"data: a\n\r\n", b"data: b\n\n"], [b"a", b"b"], b""),
    "crlf-then-lf": (b"data: a\r\n\ndata: b\n\n", [b"data: a\r\n\n", b"data: b\n\n"], [b"a", b"b"], b""),
    "cr-then-lf-is-one-ending": (b"data: a\r\ndata: b\n\n", [b"data: a\r\ndata: b\n\n"], [b"a\nb"], b""),
    "cr-then-crlf": (b"data: a\r\r\ndata: b\n\n", [b"data: a\r\r\n", b"data: b\n\n"], [b"a", b"b"], b""),
    "lf-then-cr": (b"data: a\n\rdata: b\r\r", [b"data: a\n\r", b"data: b\r\r"], [b"a", b"b"], b""),
    "two-data-lines": (b"data: a\ndata: b\n\n", [b"data: a\ndata: b\n\n"], [b"a\nb"], b""),
    "comment-alone": (b": ping\n\ndata: a\n\n", [b": ping\n\n", b"data: a\n\n"], [None, b"a"], b""),
    "comment-inside": (b": ping\ndata: a\n\n", [b": ping\ndata: a\n\n"], [b"a"], b""),
    "comment-that-looks-like-data": (b":data: a\n\n", [b":data: a\n\n"], [None], b""),
    "other-fields": (
        b"event: x\nid: 7\nretry: 10\ndata: a\n\n",
        [b"event: x\nid: 7\nretry: 10\ndata: a\n\n"],
        [b"a"],
        b"",
    ),
    "event-field-alone": (b"event: x\n\n", [b"event: x\n\n"], [None], b""),
    "bom": (BOM + b"data: a\n\ndata: b\n\n", [BOM + b"data: a\n\n", b"data: b\n\n"], [b"a", b"b"], b""),
    "bom-alone-before-a-blank-line": (BOM + b"\n\ndata: a\n\n", [BOM + b"\n\n", b"data: a\n\n"], [None, b"a"], b""),
    "leading-blank-lines": (b"\n\r\n\rdata: a\n\n", [b"\n\r\n\rdata: a\n\n"], [b"a"], b""),
    "more-blank-lines-between": (
        b"data: a\n\n\n\ndata: b\n\n",
        [b"data: a\n\n", b"\n\ndata: b\n\n"],
        [b"a", b"b"],
        b"",
    ),
    "trailing-blank-lines": (b"data: a\n\n\n\r\n", [b"data: a\n\n"], [b"a"], b"\n\r\n"),
    "only-blank-lines": (b"\n\r\n\r", [], [], b"\n\r\n\r"),
    "no-blank-line-at-the-end": (b"data: a\n\ndata: b\n", [b"data: a\n\n"], [b"a"], b"data: b\n"),
    "lines-of-one-letter": (b"x\n\ny\r\rdata: a\n\n", [b"x\n\n", b"y\r\r", b"data: a\n\n"], [None, None, b"a"], b""),
    "cut-in-a-line": (b"data: a\n\ndat", [b"data: a\n\n"], [b"a"], b"dat"),
    "no-space": (b"data:a\n\n", [b"data:a\n\n"], [b"a"], b""),
    "one-space-of-two-is-dropped": (b"data:  a\n\n", [b"data:  a\n\n"], [b" a"], b""),
    "trailing-space-is-kept": (b"data: {} \n\n", [b"data: {} \n\n"], [b"{} "], b""),
    "empty-data": (b"data:\n\ndata: \n\ndata\n\n", [b"data:\n\n", b"data: \n\n", b"data\n\n"], [b"", b"", b""], b""),
    "empty-data-line-before-another": (b"data\ndata: a\n\n", [b"data\ndata: a\n\n"], [b"\na"], b""),
    "data-with-colons": (b"data: a: b:c\n\n", [b"data: a: b:c\n\n"], [b"a: b:c"], b""),
    "name-with-a-space-is-not-data": (b"data : a\nDATA: b\n\n", [b"data : a\nDATA: b\n\n"], [None], b""),
    "escaped-newlines-in-json": (b'data: "\\n\\n\\r"\n\n', [b'data: "\\n\\n\\r"\n\n'], [b'"\\n\\n\\r"'], b""),
    "other-unicode-line-separators": (
        "data: a\u2028\u0085\x0b\x0cb\n\n".encode(),
        ["data: a\u2028\u0085\x0b\x0cb\n\n".encode()],
        ["a\u2028\u0085\x0b\x0cb".encode()],
        b"",
    ),
    "usage-glued-to-done": (
        b'data: {"usage":{}}\n\ndata: [DONE]\n\n',
        [b'data: {"usage":{}}\n\n', b"data: [DONE]\n\n"],
        [b'{"usage":{}}', b"[DONE]"],
        b"",
    ),
    "not-utf-8": (b"data: \xff\xfe\x00\n\n", [b"data: \xff\xfe\x00\n\n"], [b"\xff\xfe\x00"], b""),
}
each_stream = pytest.mark.parametrize(("stream", "events", "payloads", "tail"), STREAMS.values(), ids=STREAMS)


def decode(pieces):
    """(events, what finish gives) of a stream read in ``pieces``."""
    decoder = SseDecoder(BOUND)
    events = [event for piece in pieces for event in decoder.feed(piece)]
    return events, decoder.finish()


def payloads_of(events):
    return [payload for payload in map(data_of, events) if payload is not None]


def one_byte_each(stream):
    return [stream[at : at + 1] for at in range(len(stream))]


def reference_payloads(stream):
    """The standard's parsing rules, read literally, on a whole stream."""
    lines = re.split(rb"\r\n|\n|\r", stream.removeprefix(BOM))[:-1]
    found, data = [], []
    for line in lines:
        if not line:
            if data:
                found.append(b"\n".join(data))
            data = []
            continue
        name, _, value = line.partition(b":")
        if name == b"data":
            data.append(value.removeprefix(b" "))
    return found


# --- tables: whole, byte by byte, at every place in two ---


@each_stream
def test_a_stream_read_whole_gives_exactly_these_events(stream, events, payloads, tail):
    got, rest = decode([stream])
    assert got == events
    assert rest == tail
    assert [data_of(event) for event in got] == payloads


@each_stream
def test_byte_by_byte_loses_nothing_and_gives_the_same_payloads(stream, events, payloads, tail):
    got, rest = decode(one_byte_each(stream))
    assert b"".join(got) + rest == stream
    assert [data_of(event) for event in got] == payloads


@each_stream
def test_cut_in_two_anywhere_loses_nothing_and_gives_the_same_payloads(stream, events, payloads, tail):
    for at in range(len(stream) + 1):
        got, rest = decode([stream[:at], stream[at:]])
        assert b"".join(got) + rest == stream, at
        assert [data_of(event) for event in got] == payloads, at


@each_stream
def test_the_table_agrees_with_the_standard(stream, events, payloads, tail):
    assert reference_payloads(stream) == [payload for payload in payloads if payload is not None]


# --- random streams at random splits ---

endings = st.sampled_from([b"\n", b"\r\n", b"\r"])
values = st.binary(max_size=12).map(lambda value: re.sub(rb"[\r\n]", b"", value))
lines = st.one_of(
    st.builds(lambda value: b"data: " + value, values),
    st.builds(lambda value: b"data:" + value, values),
    st.builds(lambda value: b": " + value, values),
    st.sampled_from([b"data", b"event: x", b"id: 1", b"id", b"retry: 5", b'data: {"usage":null}', b"data: [DONE]"]),
)


@st.composite
def streams(draw):
    """Events of a few lines, endings mixed within and between them, blank lines anywhere, maybe a BOM."""
    parts = [draw(st.sampled_from([b"", BOM]))]
    for _ in range(draw(st.integers(0, 6))):
        parts += [draw(endings) for _ in range(draw(st.integers(0, 2)))]
        for _ in range(draw(st.integers(1, 3))):
            parts += [draw(lines), draw(endings)]
        parts.append(draw(endings))
    parts.append(draw(st.sampled_from([b"", b"data: cut", b"data: cut\r", b"\n", b"\r\n"])))
    return b"".join(parts)


# Everything that decides anything, in no order at all.
soups = st.lists(
    st.sampled_from([b"\n", b"\r", b"\r\n", b"data:", b"data", b" ", b":", b"x", b"[DONE]", b"\xc3", b"\xa9"]),
    max_size=40,
).map(b"".join)


@st.composite
def cut(draw, whole):
    stream = draw(whole)
    places = sorted(draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    return stream, [stream[a:b] for a, b in zip([0, *places], [*places, len(stream)], strict=True)]


any_cut_stream = st.one_of(cut(streams()), cut(soups))


@given(any_cut_stream)
def test_events_and_tail_joined_are_the_stream_at_any_splits(case):
    stream, pieces = case
    for way in (pieces, [stream], one_byte_each(stream)):
        events, tail = decode(way)
        assert b"".join(events) + tail == stream


@given(any_cut_stream)
def test_payloads_are_the_standards_at_any_splits(case):
    stream, pieces = case
    expected = reference_payloads(stream)
    for way in (pieces, [stream], one_byte_each(stream)):
        assert payloads_of(decode(way)[0]) == expected


@given(any_cut_stream)
def test_an_event_is_never_empty_ends_in_a_blank_line_and_is_one_event_when_read_again(case):
    for event in decode(case[1])[0]:
        assert event.strip(b"\r\n")
        assert re.search(rb"(\n|\r)(\r\n|\n|\r)\Z", event)
        assert decode([event]) == ([event], b"")


@given(any_cut_stream)
def test_pending_is_what_was_fed_and_not_given_out(case):
    decoder = SseDecoder(BOUND)
    fed = given_out = 0
    for piece in case[1]:
        given_out += sum(map(len, decoder.feed(piece)))
        fed += len(piece)
        assert decoder.pending == fed - given_out
    assert len(decoder.finish()) == fed - given_out
    assert decoder.pending == 0


# --- when an event is given out ---


def test_an_event_is_given_out_with_its_last_byte():
    decoder = SseDecoder(BOUND)
    assert [decoder.feed(byte) for byte in one_byte_each(b"data: a\n")] == [[]] * 8
    assert decoder.feed(b"\n") == [b"data: a\n\n"]


def test_a_cr_only_event_does_not_wait_for_a_line_feed():
    decoder = SseDecoder(BOUND)
    assert decoder.feed(b"data: a\r\r") == [b"data: a\r\r"]


def test_a_line_feed_that_comes_after_the_blank_lines_cr_leads_the_next_event():
    decoder = SseDecoder(BOUND)
    assert decoder.feed(b"data: a\r\n\r") == [b"data: a\r\n\r"]
    assert decoder.feed(b"\ndata: b\r\n\r\n") == [b"\ndata: b\r\n\r\n"]
    assert data_of(b"\ndata: b\r\n\r\n") == b"b"
    assert decoder.finish() == b""


def test_a_crlf_cut_in_the_middle_is_not_a_blank_line():
    decoder = SseDecoder(BOUND)
    assert decoder.feed(b"data: a\r") == []
    assert decoder.feed(b"\ndata: b\r") == []
    assert decoder.feed(b"\n\r\n") == [b"data: a\r\ndata: b\r\n\r\n"]


def test_a_read_that_is_one_event_comes_out_as_the_same_object():
    event = b"data: a\n\n"
    assert SseDecoder(BOUND).feed(event)[0] is event


def test_an_empty_read_changes_nothing():
    decoder = SseDecoder(BOUND)
    assert decoder.feed(b"") == []
    assert decoder.feed(b"data: a\n") == []
    assert decoder.feed(b"") == []
    assert decoder.feed(b"\n") == [b"data: a\n\n"]


def test_a_finished_decoder_starts_anew():
    decoder = SseDecoder(BOUND)
    decoder.feed(b"data: a long unfinished event")
    assert decoder.finish() == b"data: a long unfinished event"
    assert decoder.finish() == b""
    assert decoder.feed(b"x\r\n\r\n") == [b"x\r\n\r\n"]
    decoder.feed(b"another")
    decoder.finish()
    assert decoder.feed(b"\n\ndata: b\r\n\r\n") == [b"\n\ndata: b\r\n\r\n"]


# --- the bound ---


def event_of(size_bytes):
    return b"data: " + b"x" * (size_bytes - 8) + b"\n\n"


@pytest.mark.parametrize("piece", [1, 7, 100], ids="{}-byte reads".format)
def test_an_unfinished_event_of_exactly_the_bound_passes(piece):
    decoder = SseDecoder(100)
    event = event_of(101)  # 100 bytes of it are unfinished
    got = [out for at in range(0, 100, piece) for out in decoder.feed(event[at : min(100, at + piece)])]
    assert got == []
    assert decoder.pending == 100
    assert decoder.feed(event[100:]) == [event]


@pytest.mark.parametrize("piece", [1, 7, 101], ids="{}-byte reads".format)
def test_an_unfinished_event_of_one_byte_over_the_bound_is_refused(piece):
    decoder = SseDecoder(100)
    stream = event_of(102)[:101]
    *reads, last = [stream[at : at + piece] for at in range(0, 101, piece)]
    assert [decoder.feed(read) for read in reads] == [[]] * len(reads)
    with pytest.raises(EventTooLongError, match=r"^101 bytes without the end of an event; allowed: 100$"):
        decoder.feed(last)


def test_the_bound_is_of_one_event_not_of_the_stream_nor_of_a_read():
    decoder = SseDecoder(20)
    assert decoder.feed(event_of(19) * 50) == [event_of(19)] * 50
    for _ in range(50):
        assert [*decoder.feed(event_of(19)[:10]), *decoder.feed(event_of(19)[10:])] == [event_of(19)]


def test_a_finished_event_is_not_held_to_the_bound_of_unfinished_ones():
    assert SseDecoder(20).feed(event_of(500)) == [event_of(500)]


def test_the_events_that_a_read_completed_before_the_one_that_is_too_long_are_told():
    decoder = SseDecoder(20)
    decoder.feed(b"data: a\n")
    with pytest.raises(EventTooLongError, match=r"^56 bytes ") as raised:
        decoder.feed(b"\ndata: b\n\ndata: " + b"x" * 50)
    assert raised.value.events == [b"data: a\n\n", b"data: b\n\n"]


def test_line_endings_after_the_last_event_are_what_is_left_and_nothing_else():
    decoder = SseDecoder(20)
    assert decoder.feed(b"data: a\r\n\r") == [b"data: a\r\n\r"]
    assert decoder.feed(b"\n") == []
    assert decoder.finish() == b"\n"


def test_endless_blank_lines_are_bounded_too():
    decoder = SseDecoder(100)
    assert decoder.feed(b"\n" * 100) == []
    with pytest.raises(EventTooLongError):
        decoder.feed(b"\n")


@pytest.mark.parametrize("size_kib", [64, 129, 257, 513], ids="{} KiB".format)
def test_an_event_past_a_line_readers_limits_passes_whole(size_kib):
    event = event_of(size_kib << 10)
    events, tail = decode([event[at : at + 4096] for at in range(0, len(event), 4096)])
    assert (events, tail) == ([event], b"")


# --- linear work, counted ---


class Spy:
    """A compiled pattern that counts the bytes it was asked to look through."""

    def __init__(self, pattern):
        self.pattern = pattern
        self.bytes_searched = 0

    def _run(self, method, subject, position):
        found = method(subject, position)
        self.bytes_searched += (len(subject) if found is None else found.end()) - position
        return found

    def search(self, subject, position):
        return self._run(self.pattern.search, subject, position)

    def match(self, subject, position):
        return self._run(self.pattern.match, subject, position)


@pytest.fixture
def spies(monkeypatch):
    both = Spy(sse._BLANK_LINE), Spy(sse._LINE_ENDINGS)
    monkeypatch.setattr(sse, "_BLANK_LINE", both[0])
    monkeypatch.setattr(sse, "_LINE_ENDINGS", both[1])
    return both


@pytest.mark.parametrize(
    ("size_bytes", "piece"), [(1 << 16, 1), (1 << 18, 3), (1 << 20, 64)], ids=["1 byte", "3 bytes", "64 bytes"]
)
@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b"\r"], ids=["lf", "crlf", "cr"])
def test_each_byte_of_a_long_event_is_searched_a_bounded_number_of_times(spies, size_bytes, piece, ending):
    event = b"data: " + b"x" * size_bytes + ending * 2
    reads = [event[at : at + piece] for at in range(0, len(event), piece)]
    events, tail = decode(reads)
    # CR LF byte by byte: the event ends with its second CR, and the LF is what is left.
    assert b"".join(events) + tail == event
    assert [len(payload) for payload in payloads_of(events)] == [size_bytes]
    assert sum(spy.bytes_searched for spy in spies) <= len(event) + 4 * len(reads)


@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b"\r"], ids=["lf", "crlf", "cr"])
def test_many_events_in_one_read_are_searched_once(spies, ending):
    events = [b"data: %d" % k + ending * 2 for k in range(20_000)]
    assert decode([b"".join(events)]) == (events, b"")
    assert sum(spy.bytes_searched for spy in spies) <= sum(map(len, events))


@pytest.mark.parametrize("line", [b"\n", b"data: x\n", b":\r\n"], ids=["blank", "data", "comment"])
def test_lines_that_come_one_by_one_are_searched_a_bounded_number_of_times(spies, line):
    decode([line] * 10_000)
    assert sum(spy.bytes_searched for spy in spies) <= 10_000 * (len(line) + 4)


# --- the end marker ---


@pytest.mark.parametrize(
    "event",
    [
        b"data: [DONE]\n\n",
        b"data:[DONE]\n\n",
        b"data: [DONE] \n\n",
        b"data: [DONE]\r\n\r\n",
        b"data: [DONE]\r\r",
        b"\n\ndata: [DONE]\n\n",
        b": ping\ndata: [DONE]\n\n",
        BOM + b"data: [DONE]\n\n",
        b"data: [DONE]",
        b": " + b"ping" * 50 + b"\ndata: [DONE]\n\n",
        b": " + b"ping" * 50 + b"\rdata: [DONE]\r\r",
        b"data: [DONE]" + b" " * 100 + b"\n\n",
    ],
    ids=lambda event: repr(event[:24]),
)
def test_an_event_whose_payload_is_done_is_the_end_marker(event):
    assert is_done(event) is True


@pytest.mark.parametrize(
    "event",
    [
        b'data: {"content":"data: [DONE]"}\n\n',
        b'data: "[DONE]"\n\n',
        b"data: [DONE]]\n\n",
        b"data: [done]\n\n",
        b": [DONE]\n\n",
        b"event: [DONE]\n\n",
        b"id: 1\ndata: {}\n: data: [DONE]\n\n",
        b"data: [DONE]\ndata: {}\n\n",
        b"\n\n",
        b"",
    ],
    ids=repr,
)
def test_done_anywhere_else_is_not_the_end_marker(event):
    assert is_done(event) is False


@given(any_cut_stream)
def test_the_end_marker_is_what_its_payload_says(case):
    for event in decode(case[1])[0]:
        payload = data_of(event)
        assert is_done(event) == (payload is not None and payload.strip() == b"[DONE]")


# --- replacing an event's payload ---


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (b"data: a\n\n", b"data: NEW\n\n"),
        (b"data:a\r\n\r\n", b"data: NEW\r\n\r\n"),
        (b"data: a\r\r", b"data: NEW\r\r"),
        (b"data: a \n\n", b"data: NEW\n\n"),
        (b"\r\ndata: a\n\n", b"\r\ndata: NEW\n\n"),
        (BOM + b"data: a\n\n", BOM + b"data: NEW\n\n"),
        (b": c\nevent: e\nid: 1\ndata: a\nretry: 5\n\n", b": c\nevent: e\nid: 1\ndata: NEW\nretry: 5\n\n"),
        (b"data: a\r\nid: 1\ndata: b\r\r", b"id: 1\ndata: NEW\r\r"),
        (b"data: a\ndata: b", b"data: NEW"),
        (b"data: a\rdata: b\n\n", b"data: NEW\n\n"),
        (b"id: 1\rdata: a\ndata: b\n\n", b"id: 1\rdata: NEW\n\n"),
        (b"data: a", b"data: NEW"),
        (b": only\n\n", b": only\n\n"),
    ],
    ids=repr,
)
def test_only_the_data_lines_are_replaced(event, expected):
    assert replace_data(event, b"NEW") == expected


@given(any_cut_stream)
def test_a_replaced_event_says_the_new_payload_and_is_still_one_event(case):
    for event in decode(case[1])[0]:
        replaced = replace_data(event, b"NEW")
        assert data_of(replaced) == (None if data_of(event) is None else b"NEW")
        assert decode([replaced])[0] == [replaced]
