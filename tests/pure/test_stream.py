"""A gen stream: events from due tokens, write boundaries, slow readers, draining, counts."""

from __future__ import annotations

import json

import pytest

from sim.core.chunks import ChunkShape, StreamWriter
from sim.core.histogram import LogHistogram
from sim.core.settings import GenSettings
from sim.core.sse import SseDecoder, data_of, is_done
from sim.core.usage import Usage
from sim.gen_server.counters import LATE_AT_ONCE, GenCounters
from sim.gen_server.stream import BACKLOG_BYTES, TokenStream, WholeReply
from sim.service.wheel import TimerWheel
from tests.pure.fake_time import MS, FakeLoop


class FakeOutlet:
    """Takes writes; a test sets how many bytes its client has not read."""

    def __init__(self):
        self.writes = []
        self.apart = []
        self.sent = 0
        self.unread = 0
        self.gone = False
        self.on_end = None

    def write(self, data):
        self.writes.append(data)
        return self.unread

    def clear(self):
        return not self.unread

    def send(self, chunk):
        size, _, rest = chunk.partition(b"\r\n")
        assert int(size, 16) == len(rest) - 2
        assert rest.endswith(b"\r\n")
        self.writes.append(rest[:-2])
        self.sent += 1
        return not (self.unread or self.gone)

    def write_apart(self, data):
        self.apart.append(data)

    def backlog(self):
        return self.unread

    def end(self, on_end):
        on_end()

    def close(self):
        self.gone = True


class Bench:
    def __init__(self, total=4, endpoint="chat", include_usage=True, **settings):
        self.loop = FakeLoop()
        self.wheel = TimerWheel(self.loop, self.loop.clock)
        self.counters = GenCounters()
        self.outlet = FakeOutlet()
        self.ends = []
        chosen = GenSettings(**settings)
        writer = StreamWriter(
            ChunkShape.from_settings(chosen),
            endpoint=endpoint,
            id="chatcmpl-1",
            created=1,
            model="m",
            usage=Usage(10, 10),
            include_usage=include_usage,
        )
        self.stream = TokenStream(
            self.counters,
            chosen,
            total,
            lambda: self.ends.append(self.loop.now_ns),
            writer=writer,
            outlet=self.outlet,
            wheel=self.wheel,
        )

    def tokens(self, count, gap_ns=MS):
        """Let ``count`` tokens come due, ``gap_ns`` apart; what the stream said to each."""
        said = []
        for _ in range(count):
            said.append(self.stream.token_due(self.loop.now_ns, self.loop.now_ns))
            self.loop.now_ns += gap_ns
        return said

    @property
    def events(self):
        return SseDecoder(1 << 20).feed(b"".join(self.outlet.writes + self.outlet.apart))

    @property
    def texts(self):
        bodies = [json.loads(data_of(event)) for event in self.events if not is_done(event)]
        deltas = [choice["delta"] for body in bodies for choice in body["choices"]]
        return [delta["content"] for delta in deltas if "content" in delta]


def test_every_event_is_a_write_of_its_own():
    bench = Bench(total=3)
    assert bench.tokens(3) == [True, True, False]

    *writes, closing = bench.outlet.writes
    assert [len(SseDecoder(1 << 20).feed(write)) for write in writes] == [1, 1, 1, 1]
    assert closing.endswith(b"}\n\ndata: [DONE]\n\n")
    assert bench.texts == [" 0", " 1", " 2"]
    assert bench.ends == [2 * MS]


def test_nothing_is_written_before_the_first_token_is_due():
    bench = Bench()

    assert bench.outlet.writes == []
    assert bench.counters.events == 0


@pytest.mark.parametrize(
    ("total", "per_chunk", "due", "texts"),
    [
        pytest.param(8, 3, 2, [], id="not complete"),
        pytest.param(8, 3, 3, [" 0 1 2"], id="due with its last token"),
        pytest.param(8, 3, 8, [" 0 1 2", " 3 4 5", " 6 7"], id="the rest goes with the reply's last token"),
        pytest.param(2, 3, 2, [" 0 1"], id="fewer than one event's"),
    ],
)
def test_an_event_of_several_tokens_is_due_with_its_last(total, per_chunk, due, texts):
    bench = Bench(total=total, tokens_per_chunk=per_chunk)
    bench.tokens(due)

    assert bench.texts == texts
    assert bench.counters.chunks == len(texts)


def test_events_per_write_are_written_together_and_the_rest_at_the_end():
    bench = Bench(total=4, events_per_write=3)
    bench.tokens(1)
    assert bench.outlet.writes == []
    bench.tokens(3)

    sizes = [len(SseDecoder(1 << 20).feed(write)) for write in bench.outlet.writes]
    assert sizes == [3, 2, 2]  # role + 2, 2 tokens, usage + done
    assert bench.texts == [" 0", " 1", " 2", " 3"]


def test_done_can_come_in_a_write_of_its_own():
    bench = Bench(total=1, glue_done=False)
    bench.tokens(1)

    assert b'"choices":[]' in bench.outlet.writes[-1]
    assert bench.outlet.apart == [b"data: [DONE]\n\n"]


def test_finish_in_an_event_of_its_own_is_counted_apart():
    bench = Bench(total=2, finish="own")
    bench.tokens(2)

    counters = bench.counters
    assert (counters.chunks, counters.finish_events, counters.events) == (2, 1, 6)
    assert len(bench.events) == 6


@pytest.mark.parametrize(
    ("endpoint", "include_usage", "role_events", "usage_events"),
    [("chat", True, 1, 1), ("chat", False, 1, 0), ("completions", True, 0, 1), ("completions", False, 0, 0)],
)
def test_counts_equal_what_was_written(endpoint, include_usage, role_events, usage_events):
    bench = Bench(total=5, endpoint=endpoint, include_usage=include_usage)
    bench.tokens(5)

    counters = bench.counters
    assert (counters.role_events, counters.usage_events, counters.done_events) == (role_events, usage_events, 1)
    assert (counters.tokens, counters.chunks, counters.events) == (5, 5, len(bench.events))
    assert counters.bytes == sum(map(len, bench.events))


def test_a_slow_reader_gets_all_of_it_later():
    bench = Bench(total=6)
    bench.tokens(1)
    bench.outlet.unread = BACKLOG_BYTES + 1
    bench.tokens(3)
    assert bench.texts == [" 0", " 1"]  # the write after which the backlog was seen
    assert bench.counters.held_events == 2

    bench.outlet.unread = 0
    bench.loop.run_until(20 * MS)
    assert bench.texts == [" 0", " 1", " 2", " 3"]
    bench.tokens(2)

    assert bench.texts == [" 0", " 1", " 2", " 3", " 4", " 5"]
    assert bench.counters.held_events == 2
    assert len(bench.ends) == 1


@pytest.mark.parametrize(
    ("total", "due", "held"),
    [
        pytest.param(40, 8, 2, id="whole events"),
        pytest.param(40, 11, 2, id="what is not complete is not due"),
        pytest.param(14, 14, 4, id="the reply's last event is shorter"),
    ],
)
def test_held_events_counts_events_and_not_their_tokens(total, due, held):
    bench = Bench(total=total, tokens_per_chunk=4)
    bench.outlet.unread = BACKLOG_BYTES + 1
    bench.tokens(4)  # the role event showed the backlog: this event is held
    assert bench.counters.held_events == 1
    bench.tokens(due - 4)

    assert bench.counters.held_events == held
    assert bench.counters.chunks == 0


def test_a_slow_reader_does_not_hold_the_slot_once_all_tokens_are_due():
    bench = Bench(total=3)
    bench.outlet.unread = BACKLOG_BYTES + 1
    assert bench.tokens(3) == [True, True, False]
    bench.loop.run_until(50 * MS)
    assert (bench.texts, bench.ends) == ([], [])

    bench.outlet.unread = 0
    bench.loop.run_until(60 * MS)
    assert bench.texts == [" 0", " 1", " 2"]
    assert len(bench.ends) == 1
    assert is_done(bench.events[-1])


def test_a_closed_stream_leaves_no_timer():
    bench = Bench(total=6)
    bench.outlet.unread = BACKLOG_BYTES + 1
    bench.tokens(2)
    bench.stream.close()

    bench.outlet.unread = 0
    written = list(bench.outlet.writes)
    bench.loop.run_until(50 * MS)
    assert (bench.outlet.writes, bench.loop.armed) == (written, [])


def test_a_client_that_is_gone_wants_no_more_tokens():
    bench = Bench(total=9)
    bench.tokens(2)
    bench.outlet.gone = True

    assert bench.tokens(1) == [False]
    assert bench.ends == []


def test_draining_makes_the_next_due_token_the_last():
    bench = Bench(total=100)
    bench.tokens(3)
    assert bench.stream.drain() is True
    assert bench.texts == [" 0", " 1", " 2"]
    assert bench.tokens(1) == [False]

    *_, last, usage, done = bench.events
    assert json.loads(data_of(last))["choices"] == [{"index": 0, "delta": {"content": " 3"}, "finish_reason": "length"}]
    assert json.loads(data_of(usage))["usage"]["completion_tokens"] == 4
    assert is_done(done)
    assert (bench.stream.drained, bench.stream.finished) == (True, True)


def test_draining_before_the_first_token_leaves_that_one():
    bench = Bench(total=100)
    bench.stream.drain()

    assert bench.tokens(1) == [False]
    assert bench.texts == [" 0"]


def test_draining_gathers_what_an_event_waited_for():
    bench = Bench(total=100, tokens_per_chunk=4)
    bench.tokens(6)
    bench.stream.drain()

    assert bench.tokens(1) == [False]
    assert bench.texts == [" 0 1 2 3", " 4 5 6"]


def test_a_stream_about_to_end_is_not_called_drained():
    bench = Bench(total=2)
    bench.tokens(1)

    assert bench.stream.drain() is True
    assert bench.tokens(1) == [False]
    assert bench.stream.drained is False
    assert bench.stream.drain() is False


def test_intervals_are_kept_as_asked_and_as_delivered():
    bench = Bench(total=10)
    for k in range(5):
        bench.stream.token_due(k * 10 * MS, k * 11 * MS)

    assert bench.stream.asked() == (40 * MS, 4)
    assert bench.stream.delivered() == (44 * MS, 4)
    assert bench.counters.lateness.count == 5
    assert bench.counters.lateness.sum_ns == (0 + 1 + 2 + 3 + 4) * MS


def test_lateness_counted_many_at_a_time_is_what_it_would_be_one_by_one():
    late_ns = [0, 1, 127, 128, 129, 255, 256, 1_000_003, 999_999, 65_535, 65_536, 16_777_215, 5_000_000_000, 1, 1]
    counters, one_by_one = GenCounters(), LogHistogram()
    for value_ns in late_ns:
        one_by_one.record_ns(value_ns)
    counters.late_ns.extend(late_ns[:9])
    first = counters.lateness.count
    counters.late_ns.extend(late_ns[9:])

    assert first == 9
    assert counters.lateness.to_json() == one_by_one.to_json()
    assert counters.late_ns == []


def test_lateness_does_not_pile_up_unread():
    whole = WholeReply(GenCounters(), 10**6, lambda: None)
    stream = Bench(total=10**6, tokens_per_chunk=2)
    plain = Bench(total=10**6)
    for _ in range(LATE_AT_ONCE + 3):
        whole.token_due(0, MS)
        stream.stream.token_due(0, MS)
        plain.stream.token_due(0, MS)

    assert len(whole._counters.late_ns) == 3
    assert len(stream.counters.late_ns) == 3
    assert len(plain.counters.late_ns) == 3
    assert plain.counters.lateness.count == LATE_AT_ONCE + 3


@pytest.mark.parametrize("chunk_bytes", [0, 300])
@pytest.mark.parametrize("settings", [{}, {"dialect": "openai", "usage": "null", "finish": "own"}], ids=str)
def test_the_short_way_writes_what_the_long_one_would(settings, chunk_bytes):
    """A stream whose way is never clear takes the long one for every token."""
    short, long = (Bench(total=1203, chunk_bytes=chunk_bytes, **settings) for _ in range(2))
    long.outlet.clear = lambda: False
    short.tokens(1203)
    long.tokens(1203)

    assert short.outlet.sent == 1203 - 2  # all but the first and the last
    assert long.outlet.sent == 0
    assert short.outlet.writes == long.outlet.writes
    assert short.counters.to_json() == long.counters.to_json()


def test_every_stamp_is_the_time_of_its_write():
    bench = Bench(total=6, stamp_sent=True, chunk_bytes=300)
    bench.loop.now_ns = 98 * MS + MS // 2  # the fourth token comes when a time takes one digit more
    bench.tokens(6, gap_ns=MS // 2)

    bodies = [json.loads(data_of(event)) for event in bench.events if b"sent_ns" in event]
    assert [body["sent_ns"] for body in bodies] == [98 * MS + k * MS // 2 for k in range(1, 7)]
    assert bench.texts == [" 0", " 1", " 2", " 3", " 4", " 5"]
    assert [len(write) for write in bench.outlet.writes[1:-1]] == [300] * 6
    assert bench.counters.bytes == sum(map(len, bench.events))
    assert bench.outlet.sent == 4


def test_a_draining_stream_leaves_the_short_way():
    bench = Bench(total=100)
    bench.tokens(50)
    bench.stream.drain()

    assert bench.tokens(1) == [False]
    assert json.loads(data_of(bench.events[-3]))["choices"][0]["finish_reason"] == "length"


def test_intervals_of_a_reply_that_is_over_stay_in_the_sum():
    bench = Bench(total=10)
    bench.counters.replies.add(bench.stream)
    for k in range(3):
        bench.stream.token_due(k * 10 * MS, k * 11 * MS)
    before = bench.counters.asked(), bench.counters.delivered()
    bench.counters.retire(bench.stream)

    assert before == ((20 * MS, 2), (22 * MS, 2))
    assert (bench.counters.asked(), bench.counters.delivered()) == before
    pacing = bench.counters.to_json()["pacing"]
    assert (pacing["asked_interval_s"], pacing["delivered_interval_s"]) == (0.010, 0.011)


def test_a_whole_reply_ends_with_its_last_token():
    counters, ends = GenCounters(), []
    reply = WholeReply(counters, 3, lambda: ends.append("end"))

    assert [reply.token_due(k * MS, k * MS) for k in range(3)] == [True, True, False]
    assert ends == ["end"]
    assert (counters.tokens, counters.chunks) == (3, 0)
    assert reply.delivered() == (2 * MS, 2)
