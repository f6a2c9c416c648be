"""One HTTP response, however it is framed and wherever reads cut it, gives the same body."""

from __future__ import annotations

import random

import pytest

from loadtest.http_stream import BadResponseError, ResponseStream

BODY = b"data: one\n\ndata: two two\n\n" + b"x" * 300
CASES = {
    "chunked": (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"b\r\ndata: one\n\n\r\nF;name=value\r\ndata: two two\n\n\r\n00012C\r\n" + b"x" * 300 + b"\r\n"
        b"0\r\nTrailer: yes\r\n\r\n",
        True,
    ),
    "content length": (b"HTTP/1.1 200 OK\r\ncontent-length: 326\r\n\r\n" + BODY, True),
    "until close": (b"HTTP/1.0 200 OK\r\n\r\n" + BODY, False),
    "announced by a 100": (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 326\r\nConnection: close\r\n\r\n" + BODY,
        False,
    ),
    "length, HTTP/1.0 with keep-alive": (
        b"HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 326\r\n\r\n" + BODY,
        True,
    ),
}


def feed(pieces):
    response = ResponseStream()
    body = b"".join(response.feed(piece) for piece in pieces)
    return response, body


@pytest.mark.parametrize(("raw", "reusable"), CASES.values(), ids=CASES)
@pytest.mark.parametrize("cut", ["whole", "byte by byte", *range(20)])
def test_the_body_is_the_same_however_reads_cut_it(raw, reusable, cut):
    if cut == "whole":
        pieces = [raw]
    elif cut == "byte by byte":
        pieces = [raw[i : i + 1] for i in range(len(raw))]
    else:
        places = sorted(random.Random(cut).sample(range(1, len(raw)), 12))
        pieces = [raw[a:b] for a, b in zip([0, *places], [*places, len(raw)], strict=True)]
    response, body = feed(pieces)

    assert body == BODY
    assert response.status == 200
    assert response.reusable == reusable
    assert response.complete or response.eof()


def test_body_bytes_come_with_the_read_that_brought_them():
    response = ResponseStream()
    response.feed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")

    assert response.between_chunks
    assert response.feed(b"6\r\nab") == b"ab"
    assert not response.between_chunks
    assert response.feed(b"cdef") == b"cdef"
    assert response.feed(b"\r\n") == b""
    assert response.between_chunks
    assert response.feed(b"0\r\n\r") == b""
    assert not response.complete
    assert response.feed(b"\n") == b""
    assert response.complete


def test_headers_are_found_by_their_lower_case_name():
    response, _ = feed([b"HTTP/1.1 404 Not Found\r\nContent-TYPE:  text/plain \r\nContent-Length: 0\r\n\r\n"])

    assert (response.status, response.headers["content-type"], response.complete) == (404, "text/plain", True)


@pytest.mark.parametrize("status", [204, 304])
def test_some_statuses_have_no_body(status):
    response, body = feed([b"HTTP/1.1 %d X\r\n\r\n" % status])

    assert (response.complete, response.reusable, body) == (True, True, b"")


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n",
    ],
)
def test_a_connection_that_ends_inside_a_response_leaves_it_incomplete(raw):
    response, _ = feed([raw])

    assert not response.eof()
    assert not response.complete


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", "not an HTTP/1 response"),
        (b"HTTP/1.1 999 OK\r\n\r\n", "not an HTTP/1 response"),
        (b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n", "not a header"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n", "not a Content-Length"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000, "no end of the response head"),
        (CHUNKED + b"xyz\r\n", "not a chunk size"),
        (CHUNKED + b"-1\r\n", "not a chunk size"),
        (CHUNKED + b"1;" + b"x" * 9000, "no end of a line of chunk framing"),
        (CHUNKED + b"3\r\nabcd\r\n", "a chunk longer than its size"),
        (CHUNKED + b"3\r\nabcd", "a chunk longer than its size"),
        (CHUNKED + b"0\r\n\r\nHTTP/1.1 200 OK\r\n", "17 bytes after the end"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcd", "1 bytes after the end"),
    ],
)
def test_what_is_not_http_is_refused(raw, message):
    with pytest.raises(BadResponseError, match=message):
        feed([raw])
