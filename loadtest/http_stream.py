"""One HTTP/1.1 response, sans I/O: bytes as they were read go in, bytes of the body come out.

Rule: nothing is held back.  Body bytes are given out with the read that brought them, whatever the framing
(chunked, Content-Length, or until the connection closes), since a reader of tokens must see each when it arrives.
What the body means, and sockets, are not here.
"""

from __future__ import annotations

import re

__all__ = ["BadResponseError", "ResponseStream"]

MAX_HEAD_BYTES = 64 << 10
MAX_SIZE_LINE_BYTES = 1024
_SIZE_LINE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]*)?\Z")
_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9][0-9])(?: .*)?\Z")

# States: what the next byte belongs to.
_HEAD, _SIZE, _CHUNK, _CHUNK_END, _TRAILER, _LENGTH, _UNTIL_CLOSE, _END = range(8)


class BadResponseError(ValueError):
    """The peer broke HTTP; says how."""


class ResponseStream:
    """Feed it what was read.

    ``status`` and ``headers`` (lower-case names) are there once the head is complete, ``complete`` turns True with
    the body's last byte, ``reusable`` says whether the connection may then carry another request.
    """

    __slots__ = ("_left", "_state", "_tail", "headers", "reusable", "status")

    def __init__(self) -> None:
        self.status: int | None = None
        self.headers: dict[str, str] = {}
        self.reusable = False
        self._state = _HEAD
        self._left = 0
        self._tail = b""

    @property
    def complete(self) -> bool:
        """Whether the response has ended."""
        return self._state == _END

    @property
    def between_chunks(self) -> bool:
        """Whether the next byte begins a new piece of framing, so that a read may be looked at on its own."""
        return (self._state == _SIZE and not self._tail) or self._state == _UNTIL_CLOSE

    def feed(self, data: bytes) -> bytes:
        """The body bytes in ``data``.  BadResponseError if this is not HTTP, or goes on after its end."""
        if self._tail:
            data, self._tail = self._tail + data, b""
        position, pieces = 0, []
        while position < len(data):
            state = self._state
            if state == _UNTIL_CLOSE:
                pieces.append(data[position:] if position else data)
                break
            if state in (_CHUNK, _LENGTH):
                piece = data[position : position + self._left]
                pieces.append(piece)
                position += len(piece)
                self._left -= len(piece)
                if not self._left:
                    self._state = _CHUNK_END if state == _CHUNK else _END
                continue
            if state == _END:
                raise BadResponseError(f"{len(data) - position} bytes after the end of the response")
            following = self._line(data, position)
            if following < 0:
                self._tail = data[position:]
                break
            position = following
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def eof(self) -> bool:
        """The connection has ended; whether the response had, or has now."""
        if self._state == _UNTIL_CLOSE:
            self._state = _END
        self.reusable = False
        return self._state == _END

    def _line(self, data: bytes, position: int) -> int:
        """Consume the head or one line of chunk framing; where it ends, or -1 if it is not all there."""
        if self._state == _HEAD:
            end = data.find(b"\r\n\r\n", position)
            if max(end, len(data) if end < 0 else 0) - position > MAX_HEAD_BYTES:
                raise BadResponseError(f"no end of the response head within {MAX_HEAD_BYTES} bytes")
            if end < 0:
                if not b"HTTP/1.".startswith(data[position : position + 7]):
                    raise BadResponseError(f"not an HTTP/1 response: {data[position : position + 40]!r}")
                return -1
            self._read_head(data[position:end])
            return end + 4
        end = data.find(b"\r\n", position)
        if end < 0:
            if len(data) - position > MAX_SIZE_LINE_BYTES:
                raise BadResponseError(f"no end of a chunk's size line within {MAX_SIZE_LINE_BYTES} bytes")
            if self._state == _CHUNK_END and not b"\r\n".startswith(data[position:]):
                raise BadResponseError(f"a chunk longer than its size, by {data[position : position + 20]!r}")
            return -1
        line = data[position:end]
        if self._state == _SIZE:
            match = _SIZE_LINE.match(line)
            if match is None:
                raise BadResponseError(f"not a chunk size: {line[:40]!r}")
            self._left = int(match[1], 16)
            self._state = _CHUNK if self._left else _TRAILER
        elif self._state == _CHUNK_END:
            if line:
                raise BadResponseError(f"a chunk longer than its size, by {line[:20]!r}")
            self._state = _SIZE
        elif not line:
            self._state = _END
        return end + 2

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
        self._state = self._body_state()

    def _body_state(self) -> int:
        if self.status in (204, 304):
            return _END
        if self.headers.get("transfer-encoding", "").lower().endswith("chunked"):
            return _SIZE
        length = self.headers.get("content-length")
        if length is None:
            self.reusable = False
            return _UNTIL_CLOSE
        if not (length.isascii() and length.isdecimal()):
            raise BadResponseError(f"not a Content-Length: {length[:40]!r}")
        self._left = int(length)
        return _LENGTH if self._left else _END
