"""What is known of how one server frames its events: so that a read can be recognised instead of parsed.

A server whose chunks hold one event each writes, for events of one length, reads of one length that begin with the
same size line.  A read is recognised when it has a known length, begins with the size line that belongs to it, and
ends with an event and its chunk.  Nothing else is taken for known; what is not known is parsed, and learned from.
"""

from __future__ import annotations

import re

__all__ = ["MOST_FRAMES", "Frames"]

MOST_FRAMES = 4096
_SHORTEST_FRAME = 96  # bytes; [DONE] is shorter, and is to be parsed, for what an event means is seen there
_LONGEST_FRAME = 64 << 10
_SIZE_LINE = re.compile(rb"[0-9A-Fa-f]+\r\n")
_LF, _CR = b"\n\r"


class Frames:
    """``by_size`` has, by the length of a read that is one chunk, its size line and the length of its event's line."""

    __slots__ = ("by_size",)

    def __init__(self) -> None:
        self.by_size: dict[int, tuple[bytes, int]] = {}

    def learn(self, data: bytes, body_bytes: int) -> None:
        """A read that began and ended between chunks, and held ``body_bytes`` of body."""
        size, by_size = len(data), self.by_size
        match = _SIZE_LINE.match(data)
        if match is None or match.end() + body_bytes + len(b"\r\n") != size:
            return  # not one chunk, or one with an extension
        if _SHORTEST_FRAME <= size <= _LONGEST_FRAME and (size in by_size or len(by_size) < MOST_FRAMES):
            by_size[size] = match[0], body_bytes - len(b"\n\n")

    def cut(self, data: bytes) -> list[bytes] | None:
        """The events of a read that is several known chunks of one event of one line each; else None."""
        pieces = data.split(b"\n\n\r\n")
        if pieces.pop() or len(pieces) < 2:
            return None
        events, by_size = [], self.by_size
        for piece in pieces:
            size, _, line = piece.partition(b"\r\n")
            known = by_size.get(len(piece) + len(b"\n\n\r\n"))
            if known != (size + b"\r\n", len(line)) or _LF in line or _CR in line:
                return None
            events.append(line + b"\n\n")
        return events
