"""The load's parts over real sockets, one at a time: what is told and recorded, which connections are kept, timeouts.

gevent is imported unpatched here and its hub never runs, so nothing waits and the clock is the test's.
"""

from __future__ import annotations

import gc
import logging
import socket
from types import SimpleNamespace

import pytest

from loadtest import connections, pump, settler
from loadtest.connections import KEEP_IDLE_NS, Connections
from loadtest.load_settings import LoadSettings
from loadtest.plan import LoadPlan
from loadtest.pump import Exchange, Pump
from loadtest.recorder import Recorder
from loadtest.session import LoadSession
from loadtest.settler import Settler, Told
from loadtest.shares import Share
from loadtest.slots import Slots, slots_of
from loadtest.ticker import start_loop_health
from loadtest.workload import PlannedRequest
from sim.core.settings import SettingError
from tests.pure.replies import HEAD, MS, events_of, read, reads_of
from tests.pure.test_load_metrics import health

PLAN = LoadPlan(host="http://127.0.0.1:9", settings=LoadSettings(), cache_hit_ratio=0.25)
REQUEST = PlannedRequest(seq=3, due_ns=0, prompt_tokens=64, output_tokens=5)


@pytest.fixture
def clock(monkeypatch):
    """The time of connections and pump; set ``now_ns`` to move it."""
    clock = SimpleNamespace(now_ns=1_000_000 * MS)
    clock.monotonic_ns = lambda: clock.now_ns
    monkeypatch.setattr(connections, "time", clock)
    monkeypatch.setattr(pump, "time", clock)
    return clock


@pytest.fixture
def server():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


def connected(pool):
    """A new connection of the pool, once it is through."""
    sock, connecting = pool.take()
    if connecting:
        sock.setblocking(True)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
        sock.setblocking(False)
    return sock


def exchange(reads=(), *, planned_ns=0, sent_ns=0, end_ns=0):
    """One that has read ``reads``, 10 ms apart from 10 ms on."""
    done = Exchange(None, read(reads), b"", planned_ns, REQUEST)
    done.sent_ns, done.end_ns = sent_ns, end_ns
    return done


def settled(*exchanges):
    """What Locust's tables are told, and the recorder, after first token and end of each."""
    told, recorder = [], Recorder()
    settling = Settler(PLAN, recorder, told.append)
    for one in exchanges:
        if one.reader.first_token_ns is not None:
            settling.first_token(one)
        settling.ended(one)
    settling.settle_all()
    return told, recorder


def test_times_told_count_from_the_plan_and_the_mean_gap_is_over_the_gaps():
    # Reads: head 10 ms, role 20, tokens 30 to 70, usage, [DONE], end.
    told, recorder = settled(exchange(reads_of(events_of(5)), planned_ns=4 * MS, sent_ns=6 * MS, end_ns=104 * MS))

    assert told == [
        Told("TTFT", "TTFT", 0.026),
        Told("TTFT", "TTFT from sent", 0.024),
        Told("ITL", "ITL (stream mean)", 0.01),
        Told("POST", "E2E", 0.1, sum(map(len, events_of(5)))),
    ]
    assert recorder.outcomes == {"ok": 1}


def test_a_failed_stream_is_told_once_and_one_that_the_load_closed_not_at_all():
    failed = exchange(reads_of(events_of(4)), end_ns=50 * MS)
    aborted = exchange([HEAD], end_ns=60 * MS)
    aborted.reader.fail("aborted")
    told, recorder = settled(failed, aborted)

    assert [(one.name, one.failure) for one in told if one.failure] == [("E2E", "wrong_count")]
    assert [one.name for one in told] == ["TTFT", "TTFT from sent", "E2E"]
    assert recorder.outcomes == {"wrong_count": 1, "aborted": 1}


def test_a_stream_that_cannot_be_judged_is_a_fault_of_the_loads_own(monkeypatch, caplog):
    def broken(reader, expected):
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(settler, "judge", broken)
    with caplog.at_level(logging.ERROR):
        told, recorder = settled(exchange(reads_of(events_of(5)), end_ns=100 * MS))

    assert recorder.outcomes == {"client_error": 1}
    assert recorder.to_json()["tokens"] == 5
    assert told[-1].failure == "client_error"
    assert caplog.messages == ["stream 3 could not be judged"]


def test_a_plan_says_whether_streams_may_end_early():
    short = exchange(reads_of(events_of(4)), end_ns=50 * MS)
    recorder = Recorder()
    plan = LoadPlan(host=PLAN.host, settings=PLAN.settings, cache_hit_ratio=0.25, may_end_early=True)
    settling = Settler(plan, recorder, [].append)
    settling.ended(short)
    settling.settle_all()

    assert (recorder.outcomes, recorder.ended_early) == ({"ok": 1}, 1)
    assert settled(short)[1].outcomes == {"wrong_count": 1}


@pytest.mark.parametrize(("heard_s", "outcome"), [(49, None), (51, "timeout")])
def test_silence_counts_from_the_last_byte(clock, heard_s, outcome):
    silent = Pump(SimpleNamespace(), lambda _: None, lambda _: None)
    one = Exchange(silent, read([]), b"", 0, REQUEST)
    one.sent_ns = clock.now_ns - 100_000 * MS
    one.reader.feed(HEAD, clock.now_ns - heard_s * 1000 * MS)
    silent.live.add(one)
    silent.sweep(50_000 * MS)

    assert one.reader.fault == outcome
    assert (one in silent.live) == (outcome is None)


@pytest.mark.parametrize(("sent_s", "outcome"), [(49, None), (51, "timeout")])
def test_silence_counts_from_the_send_when_nothing_has_come(clock, sent_s, outcome):
    silent = Pump(SimpleNamespace(), lambda _: None, lambda _: None)
    one = Exchange(silent, read([]), b"", 0, REQUEST)
    one.sent_ns = clock.now_ns - sent_s * 1000 * MS
    silent.live.add(one)
    silent.sweep(50_000 * MS)

    assert one.reader.fault == outcome


def test_a_connection_sends_at_once_what_it_is_given(server):
    pool = Connections(socket.AF_INET, server.getsockname())
    with connected(pool) as sock:
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
        assert not sock.getblocking()


def test_a_stream_s_socket_sends_at_once_whether_new_or_kept(server):
    """Nagle's algorithm would hold a request's second piece back until the first is acknowledged, 40 ms later."""
    pool = Connections(socket.AF_INET, server.getsockname())
    streams = Pump(pool, lambda _: None, lambda _: None)
    pool.release(connected(pool), keep=True)
    kept, new = (streams.send(read([]), b"x", 0, REQUEST) for _ in range(2))

    assert kept._socket is not new._socket
    for one in (kept, new):
        assert one._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
    streams.close()


def test_an_error_behind_what_came_last_is_told_after_it(server):
    """The system tells a reset once: on the read for more, it must not be lost, nor what came before it."""
    streams = Pump(Connections(socket.AF_INET, server.getsockname()), lambda _: None, lambda _: None)
    one = streams.send(read([HEAD]), b"x", 0, REQUEST)
    callbacks = []
    streams.loop = SimpleNamespace(run_callback=lambda *call: callbacks.append(call))
    one._fd = -1  # every read of it fails
    one._take(b"5\r\n: hi\n\r\n".ljust(one.reader.read_size, b"x"))
    assert one.reader.heard_ns > 0
    for function, *arguments in callbacks:
        function(*arguments)

    assert (len(callbacks), one.reader.fault) == (1, "bad_http")


def test_a_kept_connection_is_used_again_until_it_has_been_idle_for_too_long(clock, server):
    pool = Connections(socket.AF_INET, server.getsockname())
    first = connected(pool)
    pool.release(first, keep=True)
    clock.now_ns += KEEP_IDLE_NS
    assert pool.take() == (first, False)

    pool.release(first, keep=True)
    clock.now_ns += KEEP_IDLE_NS + 1
    with connected(pool) as second:
        assert second is not first
        assert first.fileno() == -1


def test_releasing_a_connection_closes_those_that_have_been_idle_for_too_long(clock, server):
    pool = Connections(socket.AF_INET, server.getsockname())
    first, second = connected(pool), connected(pool)
    pool.release(first, keep=True)
    clock.now_ns += KEEP_IDLE_NS + 1
    pool.release(second, keep=True)

    assert first.fileno() == -1
    assert pool.take() == (second, False)
    second.close()


def test_a_test_that_starts_anew_drops_connections_to_another_host_and_closes_live_streams(server):
    host, port = server.getsockname()
    session = LoadSession(LoadPlan(host=f"http://{host}:{port}", settings=LoadSettings()), health(), [].append)
    pool = session.pump.connections
    kept = connected(pool)
    pool.release(kept, keep=True)
    session.begin(f"http://{host}:{port}")
    assert (session.pump.connections is pool, kept.fileno() >= 0) == (True, True)

    live = session.pump.send(read([]), b"x", 0, REQUEST)  # takes the one that is kept
    kept = connected(pool)
    pool.release(kept, keep=True)
    session.begin("http://127.0.0.1:9")
    assert (live.reader.fault, kept.fileno()) == ("aborted", -1)
    assert session.pump.connections is not pool
    session.close()
    assert session.recorder.outcomes == {"aborted": 1}


def test_the_hubs_health_knows_of_garbage_collections_until_it_is_stopped():
    others = list(gc.callbacks)
    health, stop = start_loop_health()
    gc.collect()
    seen = health.gc.count[2]
    stop()
    gc.collect()

    assert seen >= 1
    assert health.gc.count[2] == seen
    assert gc.callbacks == others


def test_slots_are_taken_in_the_order_in_which_they_came_free():
    slots = Slots(2)
    assert (slots.take(), slots.take(), slots.take()) == (0, 0, None)
    assert not slots.freed.is_set()

    slots.give_back(5)
    slots.give_back(7)
    assert slots.freed.is_set()
    assert (slots.take(), slots.take(), slots.take()) == (5, 7, None)


def test_a_share_of_the_cap_that_is_no_slot_is_refused():
    settings = LoadSettings(max_concurrency=2)

    assert [slots_of(settings, Share(n, 2)) is None for n in range(2)] == [False, False]
    assert slots_of(LoadSettings(), Share(2, 3)) is None
    with pytest.raises(SettingError, match=r"^max_concurrency: 2 cannot be shared by 3 processes; allowed: 3 or more"):
        slots_of(settings, Share(2, 3))


def test_a_send_that_fails_for_a_reason_of_our_own_ends_the_exchange_and_tells_of_it():
    ended = []
    broken = SimpleNamespace(take=lambda: 1 // 0, release=lambda *_, **__: None)
    one = Pump(broken, lambda _: None, ended.append).send(read([]), b"x", 0, REQUEST)

    assert ended == [one]
    assert (one.reader.fault, one.reader.fault_detail.split("(")[0]) == ("client_error", "ZeroDivisionError")
