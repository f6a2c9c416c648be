"""One reply: tokens that are due become events, events become writes.

A stream cuts its events from templates (`sim.core.chunks`) and counts what it writes.  It never lets a slow
reader fill memory: above a bound of unsent bytes it holds back, and catches up, event by event, when the client
has read; nothing is lost.  Draining makes the next due token the last.

When tokens are due is the pacer's business, where bytes go is the outlet's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sim.core.chunks import StreamWriter
from sim.core.settings import GenSettings
from sim.gen_server.counters import LATE_AT_ONCE, GenCounters
from sim.gen_server.outlet import Outlet
from sim.service.wheel import TimerWheel

__all__ = ["BACKLOG_BYTES", "TokenStream", "WholeReply"]

BACKLOG_BYTES = 64 << 10
_RETRY_NS = 5_000_000


class Reply:
    """What streams and whole replies share: how many tokens, how many of them due, and when they came."""

    __slots__ = (
        "_counters", "_first_due_ns", "_first_ns", "_first_tokens", "_last_due_ns", "_last_ns", "_last_tokens",
        "_on_end", "drained", "due", "finished", "total",
    )  # fmt: skip

    def __init__(self, counters: GenCounters, total: int, on_end: Callable[[], None]) -> None:
        self.total = total
        self.due = 0
        self.drained = False
        self.finished = False
        self._counters = counters
        self._on_end = on_end
        self._first_due_ns = self._last_due_ns = 0
        self._first_ns = self._last_ns = 0
        self._first_tokens = self._last_tokens = 0

    def drain(self) -> bool:
        """Let the next due token be the last; False if all of them are due already."""
        if self.due >= self.total:
            return False
        if self.due + 1 < self.total:
            self.total = self.due + 1
            self.drained = True
        return True

    def asked(self) -> tuple[int, int]:
        """(ns, intervals) from the first token's due time to the last one's."""
        return self._last_due_ns - self._first_due_ns, max(0, self.due - 1)

    def delivered(self) -> tuple[int, int]:
        """(ns, intervals) from the first token's coming out to the last one's."""
        return self._last_ns - self._first_ns, self._last_tokens - self._first_tokens

    def _came_due(self, due_ns: int, now_ns: int) -> None:
        counters = self._counters
        counters.late_ns.append(now_ns - due_ns)
        if len(counters.late_ns) >= LATE_AT_ONCE:
            counters.count_late()
        if not self.due:
            self._first_due_ns = due_ns
        self._last_due_ns = due_ns
        self.due += 1

    def _came_out(self, tokens: int, now_ns: int) -> None:
        """The first ``tokens`` tokens are out."""
        if not self._first_tokens:
            self._first_ns, self._first_tokens = now_ns, tokens
        self._last_ns, self._last_tokens = now_ns, tokens

    def _end(self) -> None:
        self.finished = True
        self._on_end()


class WholeReply(Reply):
    """A reply that is sent in one piece when its last token has come."""

    __slots__ = ()

    def token_due(self, due_ns: int, now_ns: int) -> bool:
        """One more token is due; False if it was the last."""
        self._came_due(due_ns, now_ns)
        self._came_out(self.due, now_ns)
        if self.due < self.total:
            return True
        self._counters.tokens += self.total
        self._end()
        return False


class TokenStream(Reply):
    """A reply sent as server-sent events."""

    __slots__ = (
        "_after", "_backlog", "_base", "_batch", "_before", "_event_bytes", "_events_per_write", "_glue_done",
        "_middle", "_one_by_one", "_opened", "_outlet", "_own_finish", "_per_chunk", "_plain_until", "_retry_ns",
        "_sent", "_stamp_digits", "_stamped", "_texts", "_wheel", "_writer",
    )  # fmt: skip

    def __init__(
        self,
        counters: GenCounters,
        settings: GenSettings,
        total: int,
        on_end: Callable[[], None],
        *,
        writer: StreamWriter,
        outlet: Outlet,
        wheel: TimerWheel,
    ) -> None:
        super().__init__(counters, total, on_end)
        self._writer = writer
        self._outlet = outlet
        self._wheel = wheel
        self._per_chunk = settings.tokens_per_chunk
        self._events_per_write = settings.events_per_write
        self._glue_done = settings.glue_done
        self._own_finish = settings.finish == "own"
        self._one_by_one = settings.tokens_per_chunk == settings.events_per_write == 1
        self._opened = False
        self._sent = 0
        self._backlog = 0
        self._batch: list[bytes] = []
        self._retry_ns = 0
        self._plain_until = 0  # tokens below it go out the short way, cut from what `_plan` has prepared
        self._stamped = settings.stamp_sent
        self._stamp_digits = self._base = self._event_bytes = 0
        self._before = self._middle = self._after = b""
        self._texts: Sequence[bytes] = ()

    def token_due(self, due_ns: int, now_ns: int) -> bool:
        """One more token is due; False if no further one is wanted."""
        sent = self._sent
        if sent < self._plain_until or (self._one_by_one and self._plan(now_ns)):
            # The short way, of nearly every token, written out: what it does is what the lines below it would do.
            counters = self._counters
            late_ns = counters.late_ns
            late_ns.append(now_ns - due_ns)
            if len(late_ns) >= LATE_AT_ONCE:
                counters.count_late()
            if self._stamped:
                chunk = self._stamped_chunk(sent, now_ns)
            else:
                chunk = self._before + self._texts[sent - self._base] + self._after
            self.due = self._sent = self._last_tokens = sent + 1
            self._last_due_ns = due_ns
            self._last_ns = now_ns
            counters.tokens += 1
            counters.chunks += 1
            counters.bytes += self._event_bytes
            if self._outlet.send(chunk):
                return True
            self._plain_until = 0
            self._backlog = self._outlet.backlog()
            return not self._outlet.gone
        self._came_due(due_ns, now_ns)
        more = self.due < self.total
        event_due = self.due % self._per_chunk == 0 or not more
        if event_due and (self._retry_ns or not self._emit(now_ns)):
            self._counters.held_events += 1
        return more and not self._outlet.gone

    def drain(self) -> bool:
        """Let the next due token be the last; False if all of them are due already."""
        self._plain_until = 0
        return super().drain()

    def close(self) -> None:
        """Write nothing more."""
        self._outlet.close()
        if self._retry_ns:
            self._wheel.cancel(self._retry_ns, self._retry)

    def _plan(self, now_ns: int) -> bool:
        """Prepare for the next tokens to go out the short way; False if the very next one cannot."""
        sent = self._sent
        if not (0 < sent == self.due < self.total - 1 and self._outlet.clear()):
            return False
        template = self._writer.template(sent, now_ns)
        if template is None:
            return False
        self._before = b"%x\r\n%b" % (template.event_bytes, template.before)
        self._middle, self._texts, self._base = template.middle, template.texts, template.base
        self._after = template.after + b"\r\n"
        self._event_bytes = template.event_bytes
        self._stamp_digits = len(b"%d" % now_ns)
        self._plain_until = min(template.until, self.total - 1)
        return True

    def _stamped_chunk(self, token: int, now_ns: int) -> bytes:
        stamp = b"%d" % now_ns
        if len(stamp) != self._stamp_digits:
            self._plan(now_ns)
        return b"".join((self._before, stamp, self._middle, self._texts[token - self._base], self._after))

    def _emit(self, now_ns: int) -> bool:
        """Send the events that are complete; False if the reader is too slow for all of them."""
        counters = self._counters
        if not self._opened:
            self._open(now_ns)
        while self.due - self._sent >= self._per_chunk or self._sent < self.due == self.total:
            if self._backlog > BACKLOG_BYTES:
                self._retry_ns = now_ns + _RETRY_NS
                self._wheel.schedule(self._retry_ns, self._retry)
                return False
            count = min(self._per_chunk, self.due - self._sent)
            event = self._writer.content_event(self._sent, count, self._sent + count == self.total, now_ns)
            self._sent += count
            counters.tokens += count
            counters.chunks += 1
            self._add(event, now_ns)
        if self._sent == self.total:
            self._finish(now_ns)
        return True

    def _retry(self, _due_ns: int, now_ns: int) -> None:
        self._retry_ns = 0
        self._backlog = self._outlet.backlog()
        self._emit(now_ns)

    def _open(self, now_ns: int) -> None:
        self._opened = True
        role = self._writer.role_event()
        if role is not None:
            self._counters.role_events += 1
            self._add(role, now_ns)

    def _finish(self, now_ns: int) -> None:
        counters = self._counters
        closing = self._writer.closing_events(self.total)
        if self._own_finish:
            counters.finish_events += 1
            self._add(closing.pop(0), now_ns)
        if self._batch:
            self._write_batch(now_ns)
        counters.usage_events += len(closing) - 1
        counters.done_events += 1
        counters.bytes += sum(map(len, closing))
        if self._glue_done:
            closing = [b"".join(closing)]
        self._outlet.write(closing[0])
        for event in closing[1:]:
            self._outlet.write_apart(event)
        self._outlet.end(self._end)

    def _add(self, event: bytes, now_ns: int) -> None:
        self._counters.bytes += len(event)
        self._batch.append(event)
        if len(self._batch) >= self._events_per_write:
            self._write_batch(now_ns)

    def _write_batch(self, now_ns: int) -> None:
        self._backlog = self._outlet.write(b"".join(self._batch))
        self._batch.clear()
        if self._sent:
            self._came_out(self._sent, now_ns)
