"""Reader of one streamed reply: counts and checks its tokens and stamps when they came, at 1 us a token.

Theory of operation.  The fakes' reply counts: token k is the text " k", so each event tells by itself whether one
was lost, doubled or moved.  A read nearly always is one HTTP chunk with one event that differs from the one
before in its number alone.  So the reader keeps what stands before and after the number, and compares the next
read with *that, with the next number in it*: one comparison proves framing, count, order and every byte at once.
Any other read (two chunks, half a chunk, a longer number, usage, the end) goes the full way: HTTP framing, SSE
events, then the same comparison of one event, then JSON.  Both ways give the same result.  A router that
re-serialises events takes the full way once and is compared with its own bytes from then on.

What events mean is in `reply_events`, what a finished stream is judged by in `stream_check`; sockets are in `pump`.
"""

from __future__ import annotations

from loadtest.http_stream import BadResponseError, ResponseStream
from loadtest.kept_events import KeptEvents
from loadtest.outcomes import http_status
from loadtest.reply_events import ReplyEvents, counted
from loadtest.time_log import TokenGaps
from sim.core.sse import EventTooLongError, SseDecoder

__all__ = ["ENDED", "FIRST_TOKEN", "MORE", "NUMBERS", "READ_BYTES", "StreamReader"]

READ_BYTES = 32 << 10
_NUMBERS_MADE = 10_000
NUMBERS = [*(b"%d" % number for number in range(_NUMBERS_MADE)), b"\n"]
"""Numbers as text, made once for all streams: those of up to four digits, as a template's all have its own width."""
MAX_EVENT_BYTES = 16 << 20
MAX_PLAIN_BYTES = 256 << 20

MORE, FIRST_TOKEN, ENDED = 0, 1, 2
"""What `StreamReader.feed` says, as flags: nothing new; the first token was in it; the response is over."""


class StreamReader(ReplyEvents):
    """Feed it what was read, with the time of the read.

    ``gaps`` takes the gap before every chunk of tokens but the first.  ``keep`` keeps every event, for a comparison of
    bytes.  Every read of a stream with ``stop_after`` goes the full way, so that nobody else has to ask whether it has
    come to that many tokens.  An answer that is no event stream is collected in ``plain``.
    """

    __slots__ = (
        "_around", "_decoder", "_event_after", "_event_before", "_event_bytes", "_gaps_ns", "_read_bytes",
        "_run_from", "_settled_bytes", "_short_bytes", "_template_bytes", "_tokens_an_event", "first_byte_ns", "http",
        "kept", "last_read_ns", "plain", "read_size", "stop_after", "streamed",
    )  # fmt: skip

    def __init__(self, gaps: TokenGaps, *, keep: bool = False, stop_after: int = 0) -> None:
        super().__init__(gaps)
        self.stop_after = stop_after  # tokens after which its client cancels it; 0: it does not
        self.http = ResponseStream()
        self.streamed: bool | None = None  # whether the answer is an event stream; None before its head
        self.first_byte_ns: int | None = None
        self.last_read_ns = 0  # of the last read that went the full way
        self.kept = KeptEvents() if keep else None
        self.plain = bytearray()
        self.read_size = READ_BYTES  # what to ask the socket for; if it gives all of that, there may be more
        self._gaps_ns = gaps.single.pending
        self._decoder = SseDecoder(MAX_EVENT_BYTES)
        # The template: a read of _template_bytes, with an event of _event_bytes in it; _around, and _event_before and
        # _event_after, are what stands before and after the numbers, in the read and in the event.  _read_bytes is
        # the read's size, or 0 while the template must not be used: inside a chunk or an event.  _short_bytes is the
        # same, or 0 where the short way has no number.
        self._around = b"", b""
        self._event_before = self._event_after = b""
        self._template_bytes = self._read_bytes = self._short_bytes = 0
        self._tokens_an_event = 1
        self._event_bytes = 0
        # Of the run of expected events since the last other one only `tokens` is kept up to date.
        self._run_from = 0
        self._settled_bytes = 0

    @property
    def chunks(self) -> int:
        """Events with a token or more."""
        return self._chunks + self._run_events

    @property
    def event_bytes(self) -> int:
        """Bytes of all events, HTTP framing not included."""
        return self._settled_bytes + self._run_events * self._event_bytes

    @property
    def _run_events(self) -> int:
        return (self.tokens - self._run_from) // self._tokens_an_event

    @property
    def heard_ns(self) -> int:
        """When the last byte came; 0 before the first."""
        return max(self.last_read_ns, self.last_token_ns)

    def took(self, data: bytes, now_ns: int) -> bool:
        """Take one read if it is just what is expected; with False nothing has happened, and `feed` is to have it."""
        if len(data) == self._short_bytes:
            number = self.tokens
            if data == NUMBERS[number].join(self._around):
                self.tokens = number + 1
                self._gaps_ns.append(now_ns - self.last_token_ns)
                self.last_token_ns = now_ns
                return True
        return False

    def feed(self, data: bytes, now_ns: int) -> int:
        """Take one read; MORE, or FIRST_TOKEN and ENDED as they apply.  Never raises for what the peer sent."""
        return MORE if self.took(data, now_ns) else self._feed_any(data, now_ns)

    def eof(self) -> None:
        """The peer has closed the connection."""
        if not self.http.eof():
            self.lost("the connection ended inside the response")

    def lost(self, detail: str) -> None:
        """The connection broke."""
        self.fail("bad_http" if self.done_events else "cut", detail)

    def take_answer(self, tokens: int) -> None:
        """The answer, not streamed, was found to hold ``tokens`` tokens."""
        self.tokens = self._run_from = tokens

    def _feed_any(self, data: bytes, now_ns: int) -> int:
        if self.first_byte_ns is None:
            self.first_byte_ns = now_ns
        self.last_read_ns = now_ns
        waiting = self.first_token_ns is None
        rest = self._take_expected(data, now_ns) if self._read_bytes else data
        ended = ENDED
        try:
            if rest:
                self._take_unexpected(rest, now_ns)
            ended = ENDED if self.http.complete else MORE
        except BadResponseError as error:
            self.fail("bad_http", str(error))
        except EventTooLongError as error:
            self.fail("bad_event", str(error))
        return ended | (FIRST_TOKEN if waiting and self.first_token_ns is not None else MORE)

    def _take_expected(self, data: bytes, now_ns: int) -> bytes:
        """Take the pieces in front that are as the template foresees; what is left."""
        position, size = 0, self._read_bytes
        while position < len(data) and self._take_next(data, position, now_ns):
            position += size
        return data[position:]

    def _take_next(self, data: bytes, position: int, now_ns: int) -> bool:
        """Take what stands at ``position`` if it is the template with the next numbers in it."""
        count = self._tokens_an_event
        expected = counted(self.tokens, count).join(self._around)
        if len(expected) != self._read_bytes or not data.startswith(expected, position):
            return False
        self._advance(count, now_ns)
        return True

    def _advance(self, count: int, now_ns: int) -> None:
        """Count an event of the run; what it has in common with the others of it is counted when the run ends."""
        self.gaps.record_ns(now_ns - self.last_token_ns, count)
        self.last_token_ns = now_ns
        self.tokens += count

    def _settle_run(self) -> None:
        events = self._run_events
        if events:
            self._chunks += events
            self._settled_bytes += events * self._event_bytes
            if self.kept is not None:
                count = self._tokens_an_event
                self.kept.add_run(self._event_before, self._event_after, self._run_from, count, events)
            self._run_from = self.tokens

    def _take_unexpected(self, data: bytes, now_ns: int) -> None:
        """The full way.  BadResponseError and EventTooLongError end the stream."""
        self._settle_run()
        lone = self.http.between_chunks and not self._decoder.pending
        body = self.http.feed(data)
        if self.streamed is None and self.http.status is not None:
            self._begin()
        events = self._decoder.feed(body) if self.streamed else []
        for event in events:
            self._settled_bytes += len(event)
            if self.kept is not None:
                self.kept.add(event)
            self.take_event(event, now_ns)
        self._run_from = self.tokens
        if self.streamed is False:
            self.plain += body
            if len(self.plain) > MAX_PLAIN_BYTES:
                raise BadResponseError(f"an answer of more than {MAX_PLAIN_BYTES} bytes")
        foreseen = False
        if self.http.between_chunks and not self._decoder.pending:
            if events and self.lone_tokens:
                self._learn(events[-1], data, lone and len(events) == 1)
            foreseen = not self.done_events
        elif self.http.complete and self._decoder.pending:
            self._take_tail(self._decoder.finish())
        self._foresee(self._template_bytes if foreseen else 0)

    def _foresee(self, size: int) -> None:
        """Use the template for what comes next, or with ``size`` 0 do not."""
        self._read_bytes = size
        short = self._tokens_an_event == 1 and self.tokens < _NUMBERS_MADE and not self.stop_after
        self._short_bytes = size if short else 0
        # Python makes room for as much as is asked for: one byte more than is expected shows that there is more.
        self.read_size = size + 1 if size else READ_BYTES

    def _take_tail(self, tail: bytes) -> None:
        """What stands after the last event; the rest of a line ending that a read cut in two is part of that event."""
        self._settled_bytes += len(tail)
        if tail.strip(b"\r\n"):
            self.fail("after_done" if self.done_events else "cut", "the response ends inside an event")
        elif self.kept is not None:
            self.kept.add_to_last(tail)

    def _begin(self) -> None:
        status = self.http.status
        self.streamed = status == 200 and self.http.headers.get("content-type", "").startswith("text/event-stream")
        if status != 200:
            self.fail(http_status(status or 0))

    def _learn(self, event: bytes, data: bytes, alone: bool) -> None:
        """Make the template of the event of tokens that ended ``data``; ``alone``: it was all of it."""
        read = b"%x\r\n%b\r\n" % (len(event), event)
        if not data.endswith(read):
            if not alone:
                return
            read = data  # framed in another way, or not at all
        at = read.find(event)
        if at < 0:  # over several chunks: right, but not foreseeable
            self._template_bytes = 0
            return
        self._event_before, self._event_after = self._before_number, self._after_number
        self._around = read[:at] + self._event_before, self._event_after + read[at + len(event) :]
        self._template_bytes, self._tokens_an_event, self._event_bytes = len(read), self.lone_tokens, len(event)
