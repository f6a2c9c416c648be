"""What is known of how one server frames its events: so that a read can be recognised instead of parsed.

A server whose chunks hold one event each writes, for events of one length, reads of one length that begin with the
same size line and end with the same bytes behind the text.  A read is recognised when it has a known length, and
begins and ends as one of that length did.  Nothing else is taken for known; what is not known is parsed, and
learned from.

Only events with a token are learned (`kinds`).  What stands behind the text of one tells it from what closes a
stream, in which there is a finish_reason, a usage or no text: so a read that is recognised is a chunk.
"""

from __future__ import annotations

import re

from sim.orchestrator.kinds import tail_of_chunk

__all__ = ["LEARNED_ANEW_EVERY", "MOST_FRAMES", "MOST_TRIES", "Frames"]

MOST_FRAMES = 4096
MOST_TRIES, LEARNED_ANEW_EVERY = 8, 32
"""A length that is met with other bytes behind its text is learned anew at first, and then now and then: where they
change with every event (a usage on every chunk) there is nothing to learn, where with the model or the stream there is.
"""
_SHORTEST_FRAME = 96  # bytes; [DONE] is shorter, and is to be parsed, for what an event means is seen there
_LONGEST_FRAME = 64 << 10
_SIZE_LINE = re.compile(rb"[0-9A-Fa-f]+\r\n")
_LF, _CR = b"\n\r"


class Frames:
    """``by_size`` has the frames that are known, by the length of the read that each is.

    Of each: the size line, what stands behind the text of its event, how long the event is without that, and in all.
    """

    __slots__ = ("_tries", "by_size")

    def __init__(self) -> None:
        self.by_size: dict[int, tuple[bytes, bytes, int, int]] = {}
        self._tries: dict[int, int] = {}

    def learn(self, data: bytes, event: bytes) -> None:
        """A read that began and ended between chunks, and was ``event`` and framing."""
        size, tries = len(data), self._tries
        match = _SIZE_LINE.match(data)
        if match is None or match.end() + len(event) + len(b"\r\n") != size:
            return  # not one chunk, or one with an extension
        if not _SHORTEST_FRAME <= size <= _LONGEST_FRAME or _CR in event or event.find(b"\n") != len(event) - 2:
            return
        count = tries.get(size, 0)
        if count == 0 and len(tries) >= MOST_FRAMES:
            return
        tries[size] = count + 1
        if count < MOST_TRIES or count % LEARNED_ANEW_EVERY == 0:
            tail = tail_of_chunk(event)
            if tail:
                self.by_size[size] = match[0], tail, len(event) - len(tail), len(event)

    def cut(self, data: bytes) -> list[bytes] | None:
        """The events of a read that is several known chunks of one event of one line each; else None."""
        pieces = data.split(b"\n\n\r\n")
        if pieces.pop() or len(pieces) < 2:
            return None
        events, by_size = [], self.by_size
        for piece in pieces:
            size, _, line = piece.partition(b"\r\n")
            known = by_size.get(len(piece) + len(b"\n\n\r\n"))
            if known is None or _LF in line or _CR in line:
                return None
            if known[0] != size + b"\r\n" or known[3] != len(line) + len(b"\n\n"):
                return None
            events.append(line + b"\n\n")
        return events
