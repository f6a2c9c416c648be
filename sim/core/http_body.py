"""The body of one HTTP/1.1 message, sans I/O: framed bytes go in as they were read, bytes of the body come out.

Rule: nothing is held back.  Body bytes are given out with the read that brought them, whatever the framing
(chunked, Content-Length, or until the connection closes), since a token must be seen when it arrives.
What the body means, heads and sockets are not here.
"""

from __future__ import annotations

import re

__all__ = ["BadBodyError", "HttpBody"]

MAX_LINE_BYTES = 8190
"""Of a chunk's size line with its extensions, or of one trailer."""
MAX_TRAILERS = 128
_EXTENSIONS = rb'(?:;(?:[^\r\n"]|"[^\r\n"]*")*)?'
_SIZE_LINE = re.compile(rb"([0-9A-Fa-f]{1,16})[ \t]*" + _EXTENSIONS + rb"\Z")
_BEGUN_SIZE_LINE = re.compile(rb"[0-9A-Fa-f]{1,16}[ \t]*(?:;[^\r\n]*)?\r?\Z")

# States: what the next byte belongs to.
_SIZE, _CHUNK, _CHUNK_END, _TRAILER, _LENGTH, _UNTIL_CLOSE, _END = range(7)


class BadBodyError(ValueError):
    """The peer broke the body's framing; says how.  ``body`` is what came before the fault in the same read."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.body = b""


class HttpBody:
    """Feed it what was read.  Make it by `chunked`, `of_length` or `until_close`.

    ``complete`` turns True with the body's last byte; what was fed after it is in ``surplus``.
    """

    __slots__ = ("_left", "_state", "_tail", "_trailers", "surplus")

    def __init__(self, state: int, left: int = 0) -> None:
        self.surplus = b""
        self._state = state
        self._left = left
        self._tail = b""
        self._trailers = 0

    @classmethod
    def chunked(cls) -> HttpBody:
        """A body in HTTP chunks, each with its size."""
        return cls(_SIZE)

    @classmethod
    def of_length(cls, length: int) -> HttpBody:
        """A body of ``length`` bytes."""
        return cls(_LENGTH if length else _END, length)

    @classmethod
    def until_close(cls) -> HttpBody:
        """A body that ends with its connection."""
        return cls(_UNTIL_CLOSE)

    @property
    def complete(self) -> bool:
        """Whether the body has ended."""
        return self._state == _END

    @property
    def between_chunks(self) -> bool:
        """Whether the next byte begins a chunk, so that a read may be looked at on its own."""
        return self._state == _SIZE and not self._tail

    @property
    def unframed(self) -> bool:
        """Whether the body's bytes stand on the wire as they are, to the end of the connection."""
        return self._state == _UNTIL_CLOSE

    def feed(self, data: bytes) -> bytes:
        """The body bytes in ``data``.  BadBodyError ends it."""
        if self._tail:
            data, self._tail = self._tail + data, b""
        position = 0
        pieces: list[bytes] = []
        try:
            while position < len(data):
                state = self._state
                if state == _UNTIL_CLOSE:
                    pieces.append(data[position:])
                    break
                if state == _END:
                    self.surplus += data[position:]
                    break
                if state in (_CHUNK, _LENGTH):
                    piece = data[position : position + self._left]
                    pieces.append(piece)
                    position += len(piece)
                    self._left -= len(piece)
                    if not self._left:
                        self._state = _CHUNK_END if state == _CHUNK else _END
                    continue
                following = self._line(data, position)
                if following < 0:
                    self._tail = data[position:]
                    break
                position = following
        except BadBodyError as error:
            error.body = b"".join(pieces)
            raise
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def eof(self) -> bool:
        """The connection has ended; whether the body had, or has now."""
        if self._state == _UNTIL_CLOSE:
            self._state = _END
        return self._state == _END

    def _line(self, data: bytes, position: int) -> int:
        """Consume one line of chunk framing; where it ends, or -1 if it is not all there."""
        end = data.find(b"\n", position)
        if end < 0:
            if len(data) - position > MAX_LINE_BYTES:
                raise BadBodyError(f"no end of a line of chunk framing within {MAX_LINE_BYTES} bytes")
            if self._state == _CHUNK_END and not b"\r\n".startswith(data[position:]):
                raise BadBodyError(f"a chunk longer than its size, by {data[position : position + 20]!r}")
            if self._state == _SIZE and _BEGUN_SIZE_LINE.match(data, position) is None:
                raise BadBodyError(f"not a chunk size: {data[position : position + 40]!r}")
            return -1
        line = data[position:end]
        if len(line) > MAX_LINE_BYTES:
            raise BadBodyError(f"a line of chunk framing of more than {MAX_LINE_BYTES} bytes")
        if line.endswith(b"\r"):
            line = line[:-1]
        elif self._state != _CHUNK_END:  # there aiohttp's parser, too, lets an LF pass for CRLF
            raise BadBodyError(f"a line of chunk framing ends in LF alone: {line[:40]!r}")
        if self._state == _SIZE:
            match = _SIZE_LINE.match(line)
            if match is None:
                raise BadBodyError(f"not a chunk size: {line[:40]!r}")
            self._left = int(match[1], 16)
            self._state = _CHUNK if self._left else _TRAILER
        elif self._state == _CHUNK_END:
            if line:
                raise BadBodyError(f"a chunk longer than its size, by {line[:20]!r}")
            self._state = _SIZE
        elif not line:
            self._state = _END
        elif b":" not in line:
            raise BadBodyError(f"not a trailer: {line[:40]!r}")
        else:
            self._trailers += 1
            if self._trailers > MAX_TRAILERS:
                raise BadBodyError(f"more than {MAX_TRAILERS} trailers")
        return end + 1
