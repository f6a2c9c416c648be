"""A cap on concurrency and a closed loop, by Locust against a scripted server: who waits, for how long, who is left."""

from __future__ import annotations

import asyncio
import signal
import socket

import pytest

from sim.core.histogram import LogHistogram
from sim.core.usage import Usage
from tests.pure.replies import events_of
from tests.wire.locust_runs import headless, locust, plan_for
from tests.wire.scripted import Peer, Received, scripted

TOKENS = 6
EVENTS = events_of(TOKENS, told=Usage(64, 16))
CAPPED = {"arrivals": "constant", "request_rate": 200.0, "output_tokens": TOKENS}


class Server:
    """Answers each request after ``pause_s`` and knows how many it ever had at a time."""

    def __init__(self, pause_s: float = 0.02) -> None:
        self.pause_s = pause_s
        self.live = self.most = 0
        self.came: asyncio.Queue[None] = asyncio.Queue()

    async def __call__(self, peer: Peer, request: Received) -> None:
        self.live += 1
        self.most = max(self.most, self.live)
        self.came.put_nowait(None)
        try:
            await self.answer(peer)
        finally:
            self.live -= 1

    async def answer(self, peer: Peer) -> None:
        await asyncio.sleep(self.pause_s)
        await peer.open_stream()
        for event in EVENTS:
            await peer.chunk(event)
        self.live -= 1  # before the client can know of the end
        try:
            await peer.end_stream()
        finally:
            self.live += 1


class Silent(Server):
    """Never answers."""

    async def answer(self, peer: Peer) -> None:
        await peer.hung_up()


def times(run, *keys):
    return [tuple(line[key] for key in keys) for line in run.streams]


async def test_a_cap_of_one_serialises_and_every_request_keeps_its_planned_time(tmp_path):
    server = Server()
    async with scripted(server) as listening:
        plan = plan_for(listening.url, tmp_path, limit=8, max_concurrency=1, **CAPPED)
        async with locust(tmp_path, *headless(plan, tmp_path)) as run:
            assert await run.end() == 0

    planned, ready, sent, end = zip(*times(run, "planned_ns", "ready_ns", "sent_ns", "end_ns"), strict=True)
    assert server.most == 1
    assert [stamp - planned[0] for stamp in planned] == [n * 5_000_000 for n in range(8)]
    assert list(ready) == [planned[0], *(max(own, before) for own, before in zip(planned[1:], end, strict=False))]
    assert all(go >= free for go, free in zip(sent, ready, strict=True))
    held, lateness = (LogHistogram.from_json(run.client[key]) for key in ("held", "lateness"))
    assert (held.count, held.sum_ns) == (7, sum(ready) - sum(planned))  # 20 ms each where 5 are planned
    assert (lateness.count, lateness.sum_ns) == (8, sum(sent) - sum(ready))
    streams = run.client["streams"]
    assert (streams["planned"], streams["started"], streams["unsent"], streams["ok"]) == (8, 8, 0, 8)


async def test_without_a_cap_the_server_sees_them_all_at_once_and_none_is_held(tmp_path):
    server = Server(0.3)
    async with scripted(server) as listening:
        plan = plan_for(listening.url, tmp_path, limit=8, **CAPPED)
        async with locust(tmp_path, *headless(plan, tmp_path)) as run:
            assert await run.end() == 0

    assert server.most > 3
    assert run.client["held"]["count"] == 0
    assert times(run, "planned_ns") == times(run, "ready_ns")


async def test_a_refused_connection_frees_its_slot(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        plan = plan_for(url, tmp_path, limit=9, max_concurrency=2, **CAPPED)
        async with locust(tmp_path, *headless(plan, tmp_path)) as run:
            assert await run.end() == 0

    assert run.client["streams"]["failed"] == {"refused_connect": 9}


async def test_streams_that_fail_free_their_slots(tmp_path):
    async def cut(peer, request):
        await peer.open_stream()
        peer.cut()

    async with scripted(cut) as listening:
        plan = plan_for(listening.url, tmp_path, limit=9, max_concurrency=2, **CAPPED)
        async with locust(tmp_path, *headless(plan, tmp_path)) as run:
            assert await run.end() == 0

    assert run.client["streams"]["failed"] == {"cut": 9}


async def test_what_got_no_slot_until_the_end_is_counted_as_unsent_and_has_missed_the_slo(tmp_path):
    async with scripted(Silent()) as listening:
        plan = plan_for(
            listening.url, tmp_path, max_concurrency=3, duration_s=0.1, stop_timeout_s=0.3, goodput_ttft_ms=50, **CAPPED
        )
        async with locust(tmp_path, *headless(plan, tmp_path)) as run:
            assert await run.end() == 0

    assert run.client["streams"] == {
        "planned": 20, "started": 3, "unsent": 17, "ok": 0, "ended_early": 0, "failed": {}, "aborted": 3,
        "cancelled": 0, "cancelled_near_end": 0,
    }  # fmt: skip
    assert len(run.streams) == 3
    missed = {"ttft": 0, "itl": 0, "e2e": 0, "failed": 0, "unsent": 17}
    assert {key: run.client["goodput"][key] for key in ("within", "of", "missed")} == {
        "within": 0, "of": 17, "missed": missed,
    }  # fmt: skip


async def test_a_signal_while_requests_wait_for_a_slot_keeps_what_was_measured(tmp_path):
    server = Silent()
    async with scripted(server) as listening:
        plan = plan_for(listening.url, tmp_path, max_concurrency=2, limit=10_000, **CAPPED)
        async with locust(tmp_path, *headless(plan, tmp_path)) as run:
            await run.ready()
            for _ in range(2):
                await asyncio.wait_for(server.came.get(), 30)
            await asyncio.sleep(0.1)  # some more come due
            run.process.send_signal(signal.SIGINT)
            assert await run.end() == 0

    streams = run.client["streams"]
    assert (streams["started"], streams["aborted"]) == (2, 2)
    assert 0 < streams["unsent"] == streams["planned"] - 2 < 10_000 - 2


@pytest.mark.parametrize("arrivals", ["constant", "closed"])
async def test_a_stop_lets_streams_finish_and_sends_none_of_those_that_wait(tmp_path, arrivals):
    """Locust's --run-time with --stop-timeout: users are asked to stop, not killed."""
    server = Server(0.4)
    async with scripted(server) as listening:
        load = CAPPED if arrivals == "constant" else {"arrivals": arrivals, "output_tokens": TOKENS}
        plan = plan_for(listening.url, tmp_path, max_concurrency=2, limit=10_000, **load)
        stop = ["--run-time", "1s", "--stop-timeout", "10"]
        async with locust(tmp_path, *headless(plan, tmp_path), *stop) as run:
            assert await run.end() == 0

    streams = run.client["streams"]
    assert streams["ok"] == streams["started"] >= 2
    assert streams["unsent"] == streams["planned"] - streams["started"]
    assert (streams["unsent"] > 0) == (arrivals == "constant")  # in a closed loop none is due without a slot


async def test_a_closed_loop_sends_to_its_limit_and_never_more_at_a_time_than_the_cap(tmp_path):
    server = Server(0.2)
    async with scripted(server) as listening:
        plan = plan_for(
            listening.url, tmp_path, arrivals="closed", max_concurrency=3, limit=7, output_tokens=TOKENS, seed=4
        )
        async with locust(tmp_path, *headless(plan, tmp_path)) as run:
            assert await run.end() == 0

    planned, ready, end = zip(*times(run, "planned_ns", "ready_ns", "end_ns"), strict=True)
    assert (len(listening.requests), server.most) == (7, 3)
    assert planned == ready
    assert planned[:3] == (run.client["start_ns"],) * 3
    assert list(planned[3:]) == sorted(end)[:4]  # each the moment in which a slot came free
    assert run.client["held"]["count"] == 0
    streams = run.client["streams"]
    assert (streams["planned"], streams["started"], streams["unsent"], streams["ok"]) == (7, 7, 0, 7)


async def test_a_closed_loop_ends_at_its_duration_with_nothing_unsent(tmp_path):
    server = Server()
    async with scripted(server) as listening:
        plan = plan_for(
            listening.url, tmp_path, arrivals="closed", max_concurrency=2, duration_s=0.5, output_tokens=TOKENS
        )
        async with locust(tmp_path, *headless(plan, tmp_path)) as run:
            assert await run.end() == 0

    started = len(run.streams)
    assert started > 2
    assert max(line["planned_ns"] for line in run.streams) < run.client["start_ns"] + 500_000_000
    streams = run.client["streams"]
    assert (streams["planned"], streams["unsent"], streams["ok"]) == (started, 0, started)


async def test_each_copy_has_a_cap_of_its_own(tmp_path):
    server = Server(0.3)
    load = {"arrivals": "closed", "max_concurrency": 2, "limit": 4, "output_tokens": TOKENS}
    arguments = [argument for key, value in load.items() for argument in ("--set", f"{key}={value}")]
    arguments += ["--headless", "-u", "2", "-r", "2", "--only-summary"]
    async with scripted(server) as listening, locust(tmp_path, *arguments, "--host", listening.url) as run:
        assert await run.end() == 0

    assert (len(listening.requests), server.most) == (8, 4)


async def test_goodput_counts_streams_within_every_limit(tmp_path):
    async def play(peer, request):
        await asyncio.sleep(0.0 if request.json["messages"][0]["content"].startswith(("0 ", "1 ")) else 0.6)
        await peer.open_stream()
        for event in EVENTS:
            await peer.chunk(event)
        await peer.end_stream()

    async with scripted(play) as listening:
        plan = plan_for(listening.url, tmp_path, streams=5, output_tokens=TOKENS, goodput_ttft_ms=500)
        async with locust(tmp_path, *headless(plan, tmp_path)) as run:
            assert await run.end() == 0

    late = sum(line["first_token_ns"] - line["planned_ns"] > 500_000_000 for line in run.streams)
    assert late >= 3
    assert run.client["goodput"] == {
        "limits": {"ttft_ms": 500.0, "itl_ms": 0.0, "e2e_ms": 0.0},
        "within": 5 - late,
        "of": 5,
        "missed": {"ttft": late, "itl": 0, "e2e": 0, "failed": 0, "unsent": 0},
    }
