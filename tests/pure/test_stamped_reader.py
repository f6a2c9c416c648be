"""Events with the time of their write: the transit time of every token is taken, and no check is lost by it."""

from __future__ import annotations

import random

import pytest

from loadtest.stamped_reader import StampedReader
from loadtest.stream_check import judge
from loadtest.time_log import TimeLog, TokenGaps
from tests.pure.replies import MS, SHAPES, events_of, expectation, read, reads_of, shape

TOKENS = 130
START_NS = 10**13  # read k is at START_NS + (k + 1) * 10 ms; its event was written (k % 7) us before


def stamped_events(tokens=TOKENS, first_ns=START_NS, step_ns=10 * MS, endpoint="chat", **settings):
    """As gen writes them: the stamp right after the model."""
    front = b'"model":"sim",'
    for number, event in enumerate(events_of(tokens, endpoint, stamp_sent=True, **settings)):
        # Of read number + 2: the head is the first one.
        sent_ns = first_ns + (number + 2) * step_ns - (number % 7) * 1000
        yield event.replace(front + b'"sent_ns":0,', front + b'"sent_ns":%d,' % sent_ns)


def stamped(reads, *, keep=False, start_ns=START_NS, step_ns=10 * MS):
    reader = StampedReader(TokenGaps(), TimeLog(), keep=keep)
    short = 0
    for number, data in enumerate(reads):
        now_ns = start_ns + (number + 1) * step_ns
        if reader.took(data, now_ns):
            short += 1
        else:
            reader.feed(data, now_ns)
    return reader, short


# Of two digits less than its place in the padding takes, a stamp changes the padding; all sizes here have the room.
STAMPED_SHAPES = {name: settings for name, settings in SHAPES.items() if name != "padded"}


@pytest.mark.parametrize("endpoint", ["chat", "completions"])
@pytest.mark.parametrize("keep", [True, False], ids=["bytes", "counted"])
@pytest.mark.parametrize("name", STAMPED_SHAPES)
def test_every_shape_passes_and_every_token_has_its_transit(name, keep, endpoint):
    settings = STAMPED_SHAPES[name]
    events = list(stamped_events(endpoint=endpoint, **settings))
    reader, _ = stamped(reads_of(events), keep=keep)
    expected = expectation(TOKENS, endpoint=endpoint, shape=shape(stamp_sent=True, **settings))
    roles = endpoint == "chat"
    step = settings.get("tokens_per_chunk", 1)
    transits_ns = [(k // step + roles) % 7 * 1000 for k in range(TOKENS)]
    found = reader.transits.histogram

    assert judge(reader, expected) == ("ok", "")
    assert (found.count, found.sum_ns, found.max_ns) == (TOKENS, sum(transits_ns), max(transits_ns))
    assert reader.gaps.itl.count == TOKENS - step
    assert reader.event_bytes == sum(map(len, events))


def test_nearly_every_event_goes_the_short_way():
    _, short = stamped(reads_of(stamped_events()))

    assert short == TOKENS - 3 - 1  # learned at 0, 10 and 100; the last one has a finish_reason


def test_a_stamp_of_more_digits_goes_the_full_way_and_is_learned():
    """1,000 s after boot, and each tenfold of it."""
    first_ns = 10**12 - 500 * MS
    reader, short = stamped(reads_of(stamped_events(first_ns=first_ns)), start_ns=first_ns)

    assert judge(reader, expectation(TOKENS, shape=shape(stamp_sent=True))) == ("ok", "")
    assert (reader.transits.histogram.count, reader.transits.histogram.max_ns) == (TOKENS, 6000)
    assert short == TOKENS - 4 - 1


@pytest.mark.parametrize("seed", range(10))
def test_reads_may_cut_and_merge_anywhere(seed):
    raw = b"".join(reads_of(stamped_events()))
    places = sorted(random.Random(seed).sample(range(1, len(raw)), 60))
    pieces = [raw[a:b] for a, b in zip([0, *places], [*places, len(raw)], strict=True)]
    reader, _ = stamped(pieces, keep=seed % 2 == 0, step_ns=100 * MS)

    assert judge(reader, expectation(TOKENS, shape=shape(stamp_sent=True))) == ("ok", "")
    assert reader.transits.histogram.count == TOKENS


@pytest.mark.parametrize("junk", [b"99x99", b" 9999", b"-9999", b"9_999"])
def test_what_is_no_number_in_the_stamps_place_is_not_taken_for_one(junk):
    events = list(stamped_events())
    stamp = events[50].partition(b'"sent_ns":')[2].partition(b",")[0]
    events[50] = events[50].replace(stamp, stamp[: -len(junk)] + junk)
    reader, _ = stamped(reads_of(events))

    assert reader.fault == "bad_event"
    assert reader.transits.histogram.count == TOKENS - 1


@pytest.mark.parametrize(
    ("change", "outcome"),
    [
        (lambda event: event.replace(b'" 49"', b'" 50"'), "wrong_order"),
        (lambda event: event.replace(b"chatcmpl-7", b"chatcmpl-8"), "bytes_differ"),
        (lambda event: event.replace(b'"sent_ns"', b'"seen_ns"'), "bytes_differ"),
        (lambda event: event.replace(b'"sent_ns":', b'"sent_ns": '), "bytes_differ"),
    ],
    ids=["number", "identity", "key", "space"],
)
def test_a_stamp_hides_no_fault(change, outcome):
    events = list(stamped_events())
    events[50] = change(events[50])
    reader, _ = stamped(reads_of(events), keep=True)

    assert judge(reader, expectation(TOKENS, shape=shape(stamp_sent=True)))[0] == outcome


def test_events_without_a_stamp_are_read_all_the_same():
    reader, _ = stamped(reads_of(events_of(TOKENS)))

    assert judge(reader, expectation(TOKENS)) == ("ok", "")
    assert reader.transits.histogram.count == 0


def test_an_ordinary_reader_takes_stamped_events_one_by_one():
    reader = read(reads_of(stamped_events()))

    assert judge(reader, expectation(TOKENS, shape=shape(stamp_sent=True))) == ("ok", "")
