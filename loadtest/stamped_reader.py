"""The reader of replies whose content events say when gen wrote them: takes each token's transit time, too.

Transit is from gen's write to the read here, both on CLOCK_MONOTONIC, so gen and load must share a machine.  Such an
event differs from the one before in its stamp as well as in its number, and the template has a hole for each.  What
stands in the stamp's hole must be decimal digits, as many as before; another number of digits goes the full way.
Where events are kept, those of a run are kept with one stamp: any is right, and that it is one was seen on reading.
"""

from __future__ import annotations

import re

from loadtest.reply_events import counted
from loadtest.stream_reader import NUMBERS, StreamReader
from loadtest.time_log import TimeLog, TokenGaps

__all__ = ["STAMP", "StampedReader"]

STAMP = re.compile(rb'"sent_ns":[ ]?([0-9]{1,19})(?=[,}])')


class StampedReader(StreamReader):
    """``transits`` takes the transit time of every token whose event is stamped."""

    __slots__ = ("_after", "_before", "_between", "_stamp_at", "_stamp_end", "_transits_ns", "transits")

    def __init__(self, gaps: TokenGaps, transits: TimeLog, *, keep: bool = False, stop_after: int = 0) -> None:
        super().__init__(gaps, keep=keep, stop_after=stop_after)
        self.transits = transits
        self._transits_ns = transits.pending
        # The template is _before + stamp + _between + numbers + _after; the stamp is at _stamp_at, up to _stamp_end.
        self._before = self._between = self._after = b""
        self._stamp_at = self._stamp_end = 0

    def took(self, data: bytes, now_ns: int) -> bool:
        """As `StreamReader.took`."""
        if len(data) == self._short_bytes:
            number = self.tokens
            stamp = data[self._stamp_at : self._stamp_end]
            expected = b"".join((self._before, stamp, self._between, NUMBERS[number], self._after))
            if data == expected and stamp.isdigit():
                self.tokens = number + 1
                self._gaps_ns.append(now_ns - self.last_token_ns)
                self._transits_ns.append(now_ns - int(stamp))
                self.last_token_ns = now_ns
                return True
        return False

    def _take_next(self, data: bytes, position: int, now_ns: int) -> bool:
        count = self._tokens_an_event
        stamp = data[position + self._stamp_at : position + self._stamp_end]
        expected = b"".join((self._before, stamp, self._between, counted(self.tokens, count), self._after))
        if len(expected) != self._read_bytes or not data.startswith(expected, position) or not stamp.isdigit():
            return False
        self.transits.record_ns(now_ns - int(stamp), count)
        self._advance(count, now_ns)
        return True

    def _take_by_json(self, event: bytes, now_ns: int) -> None:
        before = self.tokens
        super()._take_by_json(event, now_ns)
        if self.tokens > before:
            stamp = STAMP.search(event)
            if stamp is not None:
                self.transits.record_ns(now_ns - int(stamp[1]), self.tokens - before)

    def _learn_event(self, event: bytes) -> None:
        super()._learn_event(event)
        self._numbers = 0  # with the next stamp in it, it is never the same

    def _learn(self, event: bytes, data: bytes, alone: bool) -> None:
        around = self._around
        super()._learn(event, data, alone)
        if self._around is around:
            return  # nothing was learned
        before, self._after = self._around
        stamp = STAMP.search(before)
        if stamp is None:  # not in front of the number: right, but not foreseeable
            self._template_bytes = 0
            return
        self._stamp_at, self._stamp_end = stamp.span(1)
        self._before, self._between = before[: self._stamp_at], before[self._stamp_end :]
