"""What happens once per stream: its reply is judged, recorded, and told to Locust's tables.

It happens in a greenlet of its own, so that neither a check nor a listener of Locust's events can hold up a read;
and a thousand streams that end together are settled in small lots between reads.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import gevent
from gevent.event import Event

from loadtest.outcomes import ABORTED, CANCELLED, OK
from loadtest.plan import LoadPlan
from loadtest.pump import Exchange
from loadtest.recorder import Recorder
from loadtest.stream_check import Expectation, judge
from loadtest.stream_reader import StreamReader
from loadtest.stream_record import StreamRecord
from loadtest.workload import PlannedRequest
from sim.core.chunks import ChunkShape
from sim.core.tokens import cached_tokens_of

__all__ = ["Settler", "Told"]

LOT = 20

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Told:
    """Something for Locust's tables: a row's type and name, a time in s, and why the stream failed, if it did.

    E2E alone is of type POST, so that requests can be told from further figures of theirs.
    """

    kind: str
    name: str
    seconds: float
    response_bytes: int = 0
    failure: str | None = None


class Settler:
    """Takes exchanges at their first token and at their end; ``tell`` gets every figure."""

    def __init__(self, plan: LoadPlan, recorder: Recorder, tell: Callable[[Told], None]) -> None:
        self._plan = plan
        self._recorder = recorder
        self._tell = tell
        self._shape = None if plan.gen is None else ChunkShape.from_settings(plan.gen)
        self._news: deque[tuple[Exchange, bool]] = deque()
        self._wake = Event()
        self._logged: set[str] = set()
        self._greenlet = gevent.spawn(self._live)

    def keeps(self, seq: int) -> bool:
        """Whether stream ``seq`` is one of the sample that is compared byte for byte."""
        settings = self._plan.settings
        every = settings.sample_every
        return settings.stream and self._shape is not None and every > 0 and seq % every == 0

    def first_token(self, exchange: Exchange) -> None:
        """Its first token has come."""
        self._news.append((exchange, False))
        self._wake.set()

    def ended(self, exchange: Exchange) -> None:
        """It is over."""
        self._news.append((exchange, True))
        self._wake.set()

    def unsettled(self) -> list[StreamReader]:
        """Readers of the streams that have ended and are not recorded yet."""
        return [exchange.reader for exchange, over in self._news if over]

    def settle_all(self) -> None:
        """Settle what is left, at once."""
        while self._news:
            self._settle_next()

    def _live(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            while self._news:
                for _ in range(min(LOT, len(self._news))):
                    self._settle_next()
                gevent.sleep(0)

    def _settle_next(self) -> None:
        exchange, over = self._news.popleft()
        try:
            if over:
                self._settle(exchange)
            else:
                self._settle_first_token(exchange)
        except Exception:
            log.exception("stream %d could not be settled", exchange.request.seq)

    def _settle_first_token(self, exchange: Exchange) -> None:
        first_ns = exchange.reader.first_token_ns
        assert first_ns is not None
        self._recorder.first_token(exchange.planned_ns, exchange.sent_ns, first_ns)
        self._tell(Told("TTFT", "TTFT", (first_ns - exchange.planned_ns) / 1e9))
        self._tell(Told("TTFT", "TTFT from sent", (first_ns - exchange.sent_ns) / 1e9))

    def _settle(self, exchange: Exchange) -> None:
        reader, request = exchange.reader, exchange.request
        try:
            outcome, detail = judge(reader, self._expectation(request))
        except Exception as error:
            log.exception("stream %d could not be judged", request.seq)
            outcome, detail = "client_error", repr(error)
        if outcome not in self._logged and outcome not in (OK, ABORTED, CANCELLED):
            self._logged.add(outcome)
            log.warning("stream %d: %s: %s (further ones are only counted)", request.seq, outcome, detail)
        record = StreamRecord(
            seq=request.seq,
            planned_ns=exchange.planned_ns,
            ready_ns=exchange.ready_ns,
            sent_ns=exchange.sent_ns,
            first_byte_ns=reader.first_byte_ns,
            first_token_ns=reader.first_token_ns,
            last_token_ns=reader.last_token_ns or None,
            end_ns=exchange.end_ns,
            prompt_tokens=request.prompt_tokens,
            asked_tokens=request.output_tokens,
            tokens=reader.tokens,
            chunks=reader.chunks,
            events=reader.events,
            outcome=outcome,
            checked="bytes" if reader.kept is not None and outcome in (OK, "bytes_differ") else "counted",
            detail=detail,
        )
        self._recorder.end(record, reader)
        if outcome == OK and record.tpot_ns is not None:
            self._tell(Told("ITL", "ITL (stream mean)", record.tpot_ns / 1e9))
        e2e_s = (exchange.end_ns - exchange.planned_ns) / 1e9
        if outcome == CANCELLED:
            self._tell(Told("CANCEL", "Cancelled", e2e_s, reader.event_bytes))
        elif outcome != ABORTED:  # closed by the load itself: neither a duration nor a failure
            failure = None if outcome == OK else outcome
            self._tell(Told("POST", "E2E", e2e_s, reader.event_bytes, failure))

    def _expectation(self, request: PlannedRequest) -> Expectation:
        plan, settings = self._plan, self._plan.settings
        cached = None
        if plan.cache_hit_ratio is not None:
            cached = cached_tokens_of(request.prompt_tokens, plan.cache_hit_ratio)
        return Expectation(
            endpoint=settings.endpoint,
            stream=settings.stream,
            asked_tokens=request.output_tokens,
            may_end_early=plan.may_end_early,
            prompt_tokens=request.prompt_tokens,
            cached_tokens=cached,
            include_usage=settings.include_usage,
            judge_usage=plan.usage_by_ctx,
            shape=self._shape,
        )
