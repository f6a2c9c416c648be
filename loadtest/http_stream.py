"""One HTTP/1.1 response, sans I/O: bytes as they were read go in, bytes of the body come out.

The head is read here, the body's framing in `sim.core.http_body`.  What the body means, and sockets, are not here.
"""

from __future__ import annotations

import re

from sim.core.http_body import BadBodyError, HttpBody

__all__ = ["BadResponseError", "ResponseStream"]

MAX_HEAD_BYTES = 64 << 10
_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9][0-9])(?: .*)?\Z")


class BadResponseError(ValueError):
    """The peer broke HTTP; says how."""


class ResponseStream:
    """Feed it what was read.

    ``status`` and ``headers`` (lower-case names) are there once the head is complete, ``complete`` turns True with
    the body's last byte, ``reusable`` says whether the connection may then carry another request.
    """

    __slots__ = ("_body", "_head", "headers", "reusable", "status")

    def __init__(self) -> None:
        self.status: int | None = None
        self.headers: dict[str, str] = {}
        self.reusable = False
        self._head = b""
        self._body: HttpBody | None = None

    @property
    def complete(self) -> bool:
        """Whether the response has ended."""
        return self._body is not None and self._body.complete

    @property
    def between_chunks(self) -> bool:
        """Whether the next byte begins a new piece of framing, so that a read may be looked at on its own."""
        return self._body is not None and (self._body.between_chunks or self._body.unframed)

    def feed(self, data: bytes) -> bytes:
        """The body bytes in ``data``.  BadResponseError if this is not HTTP, or goes on after its end."""
        while self._body is None:
            data = self._head + data
            end = self._end_of_head(data)
            if end < 0:
                self._head = data
                return b""
            self._head = b""
            self._read_head(data[:end])
            data = data[end + 4 :]
        try:
            body = self._body.feed(data)
        except BadBodyError as error:
            raise BadResponseError(str(error)) from None
        if self._body.surplus:
            raise BadResponseError(f"{len(self._body.surplus)} bytes after the end of the response")
        return body

    def eof(self) -> bool:
        """The connection has ended; whether the response had, or has now."""
        self.reusable = False
        return self._body is not None and self._body.eof()

    def _end_of_head(self, data: bytes) -> int:
        """Where the head ends, its blank line not included, or -1 if it is not all there."""
        end = data.find(b"\r\n\r\n")
        if max(end, len(data) if end < 0 else 0) > MAX_HEAD_BYTES:
            raise BadResponseError(f"no end of the response head within {MAX_HEAD_BYTES} bytes")
        if end < 0 and not b"HTTP/1.".startswith(data[:7]):
            raise BadResponseError(f"not an HTTP/1 response: {data[:40]!r}")
        return end

    def _read_head(self, head: bytes) -> None:
        status_line, *lines = head.split(b"\r\n")
        match = _STATUS_LINE.match(status_line)
        if match is None:
            raise BadResponseError(f"not an HTTP/1 response: {status_line[:40]!r}")
        status = int(match[2])
        if status < 200:
            return  # 100 Continue and its like announce the response, they are not it
        self.status = status
        for line in lines:
            name, colon, value = line.partition(b":")
            if not colon:
                raise BadResponseError(f"not a header: {line[:40]!r}")
            self.headers[name.strip().lower().decode("latin-1")] = value.strip().decode("latin-1")
        connection = self.headers.get("connection", "").lower()
        self.reusable = "keep-alive" in connection if match[1] == b"0" else "close" not in connection
        self._body = self._begin_body()

    def _begin_body(self) -> HttpBody:
        if self.status in (204, 304):
            return HttpBody.of_length(0)
        if self.headers.get("transfer-encoding", "").lower().endswith("chunked"):
            return HttpBody.chunked()
        length = self.headers.get("content-length")
        if length is None:
            self.reusable = False
            return HttpBody.until_close()
        if not (length.isascii() and length.isdecimal()):
            raise BadResponseError(f"not a Content-Length: {length[:40]!r}")
        return HttpBody.of_length(int(length))
