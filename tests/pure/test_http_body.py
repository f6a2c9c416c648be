"""The framing of an HTTP body and what is told of its faults; that cuts change nothing is tested on whole responses."""

from __future__ import annotations

import pytest

from sim.core.http_body import MAX_TRAILERS, BadBodyError, HttpBody


def test_what_comes_behind_the_end_is_kept_apart():
    body = HttpBody.chunked()

    assert body.feed(b"3\r\nabc\r\n0\r\nTrailer: x\r\n\r\nHTTP/1.1 ") == b"abc"
    assert body.complete
    assert body.feed(b"200 OK") == b""
    assert body.surplus == b"HTTP/1.1 200 OK"


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (b"zz\r\n", "not a chunk size: b'zz'"),
        (b"-1\r\n", "not a chunk size"),
        (b"3\n", "ends in LF alone"),
        (b"3\r\nabcd\r\n", "longer than its size, by b'd'"),
        (b"1" * 2000, "not a chunk size"),
        (b"1;" + b"x" * 9000, "no end of a line of chunk framing within 8190 bytes"),
        (b"1;" + b"x" * 9000 + b"\r\n", "a line of chunk framing of more than 8190 bytes"),
        (b"0\r\nno colon\r\n", "not a trailer: b'no colon'"),
        (b"0\r\n" + b"T: x\r\n" * (MAX_TRAILERS + 1), f"more than {MAX_TRAILERS} trailers"),
    ],
)
def test_a_fault_is_told_with_what_came_before_it(fault, message):
    body = HttpBody.chunked()

    with pytest.raises(BadBodyError, match=message) as caught:
        body.feed(b"5\r\nfirst\r\n" + fault)
    assert caught.value.body.startswith(b"first")


def test_only_a_body_that_the_close_ends_is_complete_at_the_close():
    cut, length, closed = HttpBody.chunked(), HttpBody.of_length(3), HttpBody.until_close()
    for body in (cut, length, closed):
        body.feed(b"1\r")

    assert [body.eof() for body in (cut, length, closed)] == [False, False, True]
    assert HttpBody.of_length(0).complete


def test_a_read_may_be_looked_at_alone_only_between_chunks():
    body = HttpBody.chunked()
    seen = []
    for byte in b"1\r\nx\r\n":
        seen.append(body.between_chunks)
        body.feed(bytes([byte]))

    assert seen == [True, False, False, False, False, False]
    assert body.between_chunks
