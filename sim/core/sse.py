"""Server-sent events: a byte stream cut into events that keep their exact bytes.

Theory of operation.  A stream is lines that end in LF, CRLF or CR (mixed, if the sender likes); a blank line
ends an event.  A relay must pass on what it does not change, so an event here *is* its bytes, up to and with
its blank line; `data_of` looks inside when somebody needs to.  Reads cut the stream anywhere: the decoder
keeps the unfinished tail and remembers how far it has searched, so every byte is searched a bounded number of
times however many reads an event takes.

Two rules settle what the standard leaves to a decoder that must not lose a byte.  Line endings in front of an
event belong to that event.  And a read that ends in the CR of a blank line gives the event out at once,
rather than wait for an LF that a CR-only sender never sends; if the LF comes, it leads the next event.

What an event means (JSON, usage, the end of the stream) is not here.
"""

from __future__ import annotations

import re

__all__ = ["DONE", "LINE_ENDINGS", "EventTooLongError", "SseDecoder", "data_of", "is_done", "replace_data"]

DONE = b"[DONE]"
LINE_ENDINGS = b"\r\n"
"""The bytes that lines end in, to strip; alone they are no event."""

_BOM = b"\xef\xbb\xbf"
_LINE = re.compile(rb"([^\r\n]*)(\r\n|\n|\r|\Z)")
_LINE_ENDINGS = re.compile(rb"[\r\n]*")
# A line ending straight after another; the look-ahead keeps CRLF from being seen as two endings.
_BLANK_LINE = re.compile(rb"(?:\n|\r(?!\n))(?:\r\n|\n|\r)")
_OVERLAP = 3  # bytes of a blank line that may have been searched in vain when its last byte arrives


class EventTooLongError(ValueError):
    """An event grew past the stated bound without ending; ``events`` are those that the same read completed."""

    def __init__(self, message: str, events: list[bytes]) -> None:
        super().__init__(message)
        self.events = events


class SseDecoder:
    """Cuts a byte stream into events; ``max_event_bytes`` bounds what an unfinished event may hold."""

    __slots__ = ("_in_event", "_max_event_bytes", "_searched", "_tail")

    def __init__(self, max_event_bytes: int) -> None:
        self._max_event_bytes = max_event_bytes
        self._tail = bytearray()
        self._searched = 0
        self._in_event = False

    @property
    def pending(self) -> int:
        """Bytes of the unfinished event."""
        return len(self._tail)

    def feed(self, data: bytes) -> list[bytes]:
        """The events that ``data`` completes, each with its exact bytes.

        Raises EventTooLongError once the unfinished tail exceeds the bound; the decoder is then spent.
        """
        # Nearly every read of a token stream is exactly one LF event; three searches at C speed tell.
        if not self._tail and 2 < len(data) == data.find(b"\n\n") + 2 and data.find(b"\r") < 0:
            return [data]
        return self._cut(data)

    def finish(self) -> bytes:
        """What is left when the stream ends: b"", an unfinished event, or mere line endings, which are not one."""
        tail, self._tail = bytes(self._tail), bytearray()
        self._searched, self._in_event = 0, False
        return tail

    def _cut(self, data: bytes) -> list[bytes]:
        tail = self._tail
        tail += data
        events = []
        start, position = 0, self._searched
        while True:
            if not self._in_event:
                position = _LINE_ENDINGS.match(tail, position).end()  # type: ignore[union-attr]
                self._in_event = position < len(tail)
            match = _BLANK_LINE.search(tail, position) if self._in_event else None
            if match is None:
                break
            position = match.end()
            events.append(bytes(tail[start:position]))
            start, self._in_event = position, False
        del tail[:start]
        self._searched = max(position - start, len(tail) - _OVERLAP)
        if len(tail) > self._max_event_bytes:
            text = f"{len(tail)} bytes without the end of an event; allowed: {self._max_event_bytes}"
            raise EventTooLongError(text, events)
        return events


def data_of(event: bytes) -> bytes | None:
    """The event's payload: its data lines joined by LF, or None when it has none (a comment, say)."""
    if event.startswith(b"data: ") and event.find(b"\n") == len(event) - 2 and event.find(b"\r") < 0:
        return event[6:-2]
    found = [payload for name, payload, _ in _fields(event) if name == b"data"]
    return b"\n".join(found) if found else None


def is_done(event: bytes) -> bool:
    """Whether this is the end marker: an event whose whole payload is ``[DONE]``."""
    if event.find(DONE) < 0:
        return False
    payload = data_of(event)
    return payload is not None and payload.strip() == DONE


def replace_data(event: bytes, payload: bytes) -> bytes:
    """The event with its data lines replaced by one that holds ``payload`` (no line ending in it).

    All other lines, every line ending and a leading byte-order mark stay.
    """
    pieces: list[bytes] = [_BOM] if event.startswith(_BOM) else []
    fields = _fields(event)
    # In the last one's place: with that line gone, a CR before it and the blank line's LF would be one ending.
    place = max((at for at, (name, _, _) in enumerate(fields) if name == b"data"), default=-1)
    for at, (name, _, line) in enumerate(fields):
        if at == place:
            pieces += (b"data: ", payload, line[len(line.rstrip(LINE_ENDINGS)) :])
        elif name != b"data":
            pieces.append(line)
    return b"".join(pieces)


def _fields(event: bytes) -> list[tuple[bytes, bytes, bytes]]:
    """(field name, value, whole line with its ending) of each line, in order; a comment's name is empty."""
    fields = []
    for match in _LINE.finditer(event, len(_BOM) if event.startswith(_BOM) else 0):
        name, _, value = match[1].partition(b":")
        fields.append((name, value[1:] if value.startswith(b" ") else value, match[0]))
    return fields
