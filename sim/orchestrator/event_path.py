"""One stream's way from the bytes of gen's body to what its client is sent: cut, policy, count.  No I/O, no await.

Both relay engines go this way, `engine_splice` only with what it does not recognise at a glance; so what becomes
of an odd read is the same under both.
"""

from __future__ import annotations

from sim.core.sse import DONE, LINE_ENDINGS, EventTooLongError, SseDecoder
from sim.orchestrator.arms import PolicyFailedError, StreamPolicies
from sim.orchestrator.counters import Counters
from sim.orchestrator.kinds import CLOSING_EVENTS
from sim.orchestrator.policies import NEEDS_GEN
from sim.orchestrator.tally import EventTally

__all__ = ["ClientGoneError", "EventPath", "StreamEndedError"]


class ClientGoneError(Exception):
    """The client's connection broke under a write."""


class StreamEndedError(Exception):
    """The stream cannot be completed: the reason, what to tell the client, and what is to be sent before that."""

    def __init__(self, reason: str, message: str, unsent: bytes = b"") -> None:
        super().__init__(message)
        self.reason = reason
        self.unsent = unsent


class EventPath:
    """Give `take` the body bytes of each read; `check_end` when no more come."""

    __slots__ = ("_counters", "_decoder", "_verbatim", "policies", "tally")

    def __init__(self, counters: Counters, policies: StreamPolicies, tally: EventTally, max_event_bytes: int) -> None:
        self.policies = policies
        self.tally = tally
        self._counters = counters
        self._decoder = SseDecoder(max_event_bytes)
        names = policies.arms.names
        self._verbatim = names.index(NEEDS_GEN) if NEEDS_GEN in names else None

    @property
    def done(self) -> bool:
        """Whether gen's end marker has been seen."""
        return self.policies.done

    @property
    def at_event(self) -> bool:
        """Whether the next byte begins an event in mid-stream, so that a read may be looked at on its own."""
        return self.tally.steady and not self._decoder.pending and not self.policies.done

    def take(self, data: bytes) -> bytes:
        """What to send now that ``data`` has come.  StreamEndedError ends the stream, after its ``unsent``."""
        self._counters.cut_reads += 1
        self._counters.cut_bytes_in += len(data)
        try:
            events = self._decoder.feed(data)
        except EventTooLongError as error:
            payload = self._apply(error.events)
            if self.policies.done:
                return payload
            raise StreamEndedError("event_too_long", f"gen server's event is too long: {error}", payload) from None
        return self._apply(events) if events else b""

    def take_events(self, events: list[bytes]) -> bytes:
        """As `take`, for a read that was cut already."""
        self._counters.cut_reads += 1
        self._counters.cut_bytes_in += sum(map(len, events))
        return self._apply(events)

    def changed(self, event: bytes) -> None:
        """Count a read of one event that the active policy was given elsewhere, and changed."""
        self._count_one(event)
        self._counters.cut_events += 1
        arms = self.policies.arms
        arms.counters[arms.active].changed += 1

    def failed(self, event: bytes, error: BaseException) -> StreamEndedError:
        """The same, where it failed: how the stream ends."""
        self._count_one(event)
        return StreamEndedError("policy_error", str(self.policies.failure(error, 1)))

    def _count_one(self, event: bytes) -> None:
        arms = self.policies.arms
        arms.counters[arms.active].cut += 1
        self._counters.cut_reads += 1
        self._counters.cut_bytes_in += len(event)

    def pass_whole(self, data: bytes) -> bool:
        """Let whole events pass together, not split, where the policy is `verbatim`; False if `take` must look.

        They are counted by their blank lines, and the last few are held for the tally.
        """
        if self._verbatim is None or self.policies.arms.active != self._verbatim or not self.at_event:
            return False
        if not data.endswith(b"\n\n") or data.startswith(b"\n") or b"\r" in data or b"\n\n\n" in data:
            return False
        if DONE in data:
            return False  # where the stream ends is for the decoder to say
        counters, count = self._counters, data.count(b"\n\n")
        last = [event + b"\n\n" for event in data[:-2].rsplit(b"\n\n", CLOSING_EVENTS)[-CLOSING_EVENTS:]]
        counters.cut_reads += 1
        counters.cut_bytes_in += len(data)
        counters.cut_events += count - len(last)
        self.tally.add(last)
        self.policies.arms.counters[self._verbatim].cut += count
        return True

    @property
    def lf_may_follow(self) -> bool:
        """Whether the end marker's last CR may have an LF on its way, which is to reach the client too."""
        last = self.tally.latest[-1]
        # A sender that ends its lines with CR alone has no LF to wait for.
        return last is not None and last.endswith(b"\r") and b"\n" in last and not self._decoder.pending

    def line_endings(self) -> bytes:
        """What came behind the end marker, as far as it is line endings."""
        tail = self._decoder.finish()
        return b"" if tail.strip(LINE_ENDINGS) else tail

    def check_end(self) -> None:
        """The body has ended: StreamEndedError unless gen's end marker was in it."""
        if self.policies.done or self.tally.done:
            self.policies.done = True
            return
        if self._decoder.finish().strip(LINE_ENDINGS):
            raise StreamEndedError("upstream_cut", "gen server broke the stream off inside an event")
        raise StreamEndedError("no_done", "gen server ended the stream without [DONE]")

    def _apply(self, events: list[bytes]) -> bytes:
        try:
            payload = self.policies.apply(events)
        except PolicyFailedError as error:
            self.tally.add(error.sent)
            if self.policies.done:
                return b"".join(error.sent)  # it failed behind gen's end marker, which the client is sent
            raise StreamEndedError("policy_error", str(error), b"".join(error.sent)) from None
        self.tally.add(events)
        return payload
