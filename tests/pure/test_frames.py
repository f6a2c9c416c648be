"""Which reads are recognised, and that nothing else is."""

from __future__ import annotations

import pytest

from sim.orchestrator.frames import MOST_FRAMES, Frames

EVENT = b'data: {"choices":[{"delta":{"content":" 1"}}],"x":"' + b"y" * 80 + b'"}\n\n'


def framed(event, size=b"%x"):
    return size % len(event) + b"\r\n" + event + b"\r\n"


def knowing(*reads):
    frames = Frames()
    for read in reads:
        frames.learn(read, len(read.partition(b"\r\n")[2]) - 2)
    return frames


def test_a_chunk_is_known_by_its_length_and_the_spelling_of_its_size():
    lower, padded = framed(EVENT), framed(EVENT + b"", b"%04X")

    assert knowing(lower, padded).by_size == {
        len(lower): (b"%x\r\n" % len(EVENT), len(EVENT) - 2),
        len(padded): (b"%04X\r\n" % len(EVENT), len(EVENT) - 2),
    }


@pytest.mark.parametrize(
    ("read", "body_bytes"),
    [
        (framed(EVENT, b"%x;a=b"), len(EVENT)),
        (framed(EVENT) * 2, 2 * len(EVENT)),
        (framed(b"data: [DONE]\n\n"), 14),
        (framed(b"x" * 70_000 + b"\n\n"), 70_002),
        (b"not a size\r\n", 0),
    ],
    ids=["extension", "two chunks", "short", "long", "no size"],
)
def test_what_is_not_one_plain_chunk_of_a_usual_length_is_not_learned(read, body_bytes):
    frames = Frames()
    frames.learn(read, body_bytes)
    assert frames.by_size == {}


def test_no_more_lengths_are_kept_than_stated_and_a_kept_one_can_be_spelled_anew():
    frames = Frames()
    for size in range(MOST_FRAMES + 10):
        event = b"x" * (100 + size) + b"\n\n"
        frames.learn(framed(event), len(event))
    assert len(frames.by_size) == MOST_FRAMES
    first = b"x" * 100 + b"\n\n"
    frames.learn(framed(first, b"%X"), len(first))
    assert frames.by_size[len(framed(first))] == (b"66\r\n", 100)


def test_known_chunks_that_came_together_are_cut():
    other = EVENT.replace(b'" 1"', b'" 23"')
    frames = knowing(framed(EVENT), framed(other))

    assert frames.cut(framed(EVENT) + framed(other) + framed(EVENT)) == [EVENT, other, EVENT]


@pytest.mark.parametrize(
    "read",
    [
        framed(EVENT),
        framed(EVENT) + framed(EVENT)[:-3],
        framed(EVENT)[5:] + framed(EVENT),
        framed(EVENT) + framed(EVENT).replace(b"87", b"88"),
        framed(EVENT) + framed(EVENT.replace(b"yy", b"\n\n", 1)),
        framed(EVENT) + framed(EVENT.replace(b"y", b"\r", 1)),
        framed(EVENT) + framed(b"data: [DONE]\n\n"),
        framed(EVENT) + b"0\r\n\r\n",
    ],
    ids=["one", "half a chunk", "the rest of one", "other size", "blank line", "cr", "done", "end"],
)
def test_any_other_read_is_left_to_the_parser(read):
    assert knowing(framed(EVENT)).cut(read) is None
