"""Which reads are recognised, and that nothing else is."""

from __future__ import annotations

import json

import pytest

from sim.orchestrator.frames import LEARNED_ANEW_EVERY, MOST_FRAMES, MOST_TRIES, Frames
from sim.orchestrator.kinds import tail_of_chunk

EVENT = b'data: {"choices":[{"delta":{"content":" 1"}}],"x":"' + b"y" * 80 + b'"}\n\n'
TAIL = b'"}}],"x":"' + b"y" * 80 + b'"}\n\n'


def framed(event, size=b"%x"):
    return size % len(event) + b"\r\n" + event + b"\r\n"


def knowing(*reads):
    frames = Frames()
    for read in reads:
        frames.learn(read, read.partition(b"\r\n")[2][:-2])
    return frames


def padded(size, text=" 1"):
    """An event of ``size`` bytes."""
    front = b'data: {"choices":[{"delta":{"content":"%b"}}],"x":"' % text.encode()
    return front + b"y" * (size - len(front) - 4) + b'"}\n\n'


def test_a_chunk_is_known_by_its_length_its_size_line_and_what_stands_behind_the_text():
    lower, upper = framed(EVENT), framed(EVENT, b"%04X")

    front, event = len(EVENT) - len(TAIL), len(EVENT)
    assert knowing(lower, upper).by_size == {
        len(lower): (b"%x\r\n" % event, TAIL, front, event),
        len(upper): (b"%04X\r\n" % event, TAIL, front, event),
    }


USAGE = EVENT.replace(b'[{"delta":{"content":" 1"}}]', b'[],"usage":{"prompt_tokens":1}')
FINISH = EVENT.replace(b'{"content":" 1"}', b'{},"finish_reason":"length"')


@pytest.mark.parametrize(
    ("read", "event"),
    [
        (framed(EVENT, b"%x;a=b"), EVENT),
        (framed(EVENT) * 2, EVENT * 2),
        (framed(b"data: [DONE]\n\n"), b"data: [DONE]\n\n"),
        (framed(padded(70_000)), padded(70_000)),
        (framed(b"id: 1\n" + EVENT), b"id: 1\n" + EVENT),
        (framed(USAGE), USAGE),
        (framed(FINISH), FINISH),
        (framed(b": " + EVENT), b": " + EVENT),
        (b"not a size\r\n", b""),
    ],
    ids=["extension", "two chunks", "short", "long", "two lines", "usage", "finish", "comment", "no size"],
)
def test_what_is_not_one_plain_chunk_with_a_token_is_not_learned(read, event):
    frames = Frames()
    frames.learn(read, event)
    assert frames.by_size == {}


@pytest.mark.parametrize("text", ['"', "\\", 'é"', "🙂", "usage", "data: [DONE]\n\n"])
@pytest.mark.parametrize("ascii_only", [True, False])
@pytest.mark.parametrize("form", ['{"delta":{"content":%s},"finish_reason":null}', '{"text":%s,"index":0}'])
def test_what_stands_behind_the_text_begins_with_the_quote_that_closes_it(text, ascii_only, form):
    choice = form % json.dumps(text, ensure_ascii=ascii_only)
    tail = choice[choice.rindex(",") - 1 - form.count("}") // 2 :] + '],"x":"' + "y" * 80 + '"}\n\n'
    event = ('data: {"model":"a","choices":[' + choice + '],"x":"' + "y" * 80 + '"}\n\n').encode()

    assert tail_of_chunk(event) == tail.encode()


def test_no_more_lengths_are_kept_than_stated():
    frames = Frames()
    for size in range(MOST_FRAMES + 10):
        event = padded(200 + size)
        frames.learn(framed(event), event)
    assert len(frames.by_size) == MOST_FRAMES


def test_a_length_is_learned_anew_at_first_and_then_now_and_then():
    frames, known = Frames(), []
    for number in range(2 * LEARNED_ANEW_EVERY + 1):
        event = EVENT.replace(b"y" * 80, b"%02d" % number * 40)
        frames.learn(framed(event), event)
        known.append(frames.by_size[len(framed(event))][1][10:12])
    changes = [number for number in range(1, len(known)) if known[number] != known[number - 1]]
    assert changes == [*range(1, MOST_TRIES), LEARNED_ANEW_EVERY, 2 * LEARNED_ANEW_EVERY]


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
