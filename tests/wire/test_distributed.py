"""A master and its workers against scripted servers: one schedule between them, one set of results, one that dies."""

from __future__ import annotations

import asyncio
import contextlib
import csv
import dataclasses
import hashlib
import json
import math
import os
import re
import signal

import pytest

from loadtest.shares import SEQS_PER_COPY
from sim.core.histogram import LogHistogram
from sim.core.usage import Usage
from tests.pure.replies import events_of
from tests.wire.locust_runs import headless, locust, plan_for
from tests.wire.scripted import scripted
from tests.wire.test_load import LONG, as_asked, free_port, get, number_of, silent, swarm, until_open, writing

WORKERS = 3
DRAWN = {"arrivals": "poisson", "request_rate": 60, "limit": 60, "lengths": "azure-code", "seed": 7}


def master_on(port):
    return ["--master-bind-host", "127.0.0.1", "--master-bind-port", str(port), "--master-port", str(port)]


def processes(count):
    return ["--processes", str(count), *master_on(free_port())]


async def ready_lines(run, count=WORKERS):
    """What the master and its workers print when they are set up; the master's first."""
    lines = [await run.ready() for _ in range(count + 1)]
    return sorted(lines, key=lambda line: line["pid"] != run.process.pid)


def drawn_plan(url, out):
    """Of servers that are not ours, so that any reply will do."""
    return dataclasses.replace(plan_for(url, out, **DRAWN), gen=None, usage_by_ctx=False, cache_hit_ratio=None)


async def sent_by(out, *arguments):
    """What a run of the drawn plan sent, request by request, and the run."""
    out.mkdir()
    async with scripted(as_asked) as server:
        plan = drawn_plan(server.url, out)
        async with locust(out, *headless(plan, out), *arguments) as run:
            assert await run.end() == 0
        start_ns = run.client["start_ns"]
        bodies = {number_of(request): hashlib.sha256(request.body).hexdigest() for request in server.requests}
        assert len(bodies) == len(server.requests) == DRAWN["limit"]  # no doubles
        sent = [
            (s["seq"], s["planned_ns"] - start_ns, s["prompt_tokens"], s["asked_tokens"], bodies[s["seq"]])
            for s in run.streams
        ]
    return sent, run


async def test_three_workers_send_what_one_process_sends_and_their_results_are_one(tmp_path):
    alone, _ = await sent_by(tmp_path / "alone")
    together, run = await sent_by(tmp_path / "together", *processes(WORKERS))

    assert together == alone
    client, streams = run.client, run.streams
    assert client["streams"] == {
        **client["streams"], "planned": 60, "started": 60, "ok": 60, "failed": {}, "aborted": 0, "lost": 0
    }  # fmt: skip
    assert client["tokens"] == sum(line["tokens"] for line in streams)
    assert [line["worker"] for line in streams] == [line["seq"] % WORKERS for line in streams]
    assert [(w["index"], w["planned"], w["started"], w["ended"], w["gone"]) for w in client["workers"]] == [
        (index, 20, 20, 20, False) for index in range(WORKERS)
    ]
    assert len({worker["pid"] for worker in client["workers"]}) == WORKERS
    for worker in client["workers"]:
        assert 0 < worker["cpu_s"] < client["wall_s"] + 5
        assert worker["health"][0]["ticks"] > 0
    lag = [LogHistogram.from_json(worker["lag"]).count for worker in client["workers"]]
    assert LogHistogram.from_json(client["lag"]).count == sum(lag) > 0
    for name, start, end in (("ttft", "planned_ns", "first_token_ns"), ("e2e_from_sent", "sent_ns", "end_ns")):
        assert_percentiles(client[name], [line[end] - line[start] for line in streams])


def assert_percentiles(record, raw_ns):
    """The merged histogram against the raw samples of all workers: a value is known to 1/64."""
    merged, ascending = LogHistogram.from_json(record), sorted(raw_ns)
    assert (merged.count, merged.sum_ns, merged.max_ns) == (len(raw_ns), sum(raw_ns), max(raw_ns))
    for q in (0.1, 0.5, 0.9, 0.95, 0.99):
        exact_s = ascending[math.ceil(q * len(ascending)) - 1] / 1e9
        assert exact_s <= merged.quantile_s(q) <= exact_s * (1 + 1 / 64)


async def test_a_worker_that_is_killed_is_noticed_and_what_it_lost_is_counted(tmp_path):
    """Of 30 streams every second one ends at once and is reported; then the worker with seqs 1, 4, 7, ... dies."""
    go_on = asyncio.Event()
    reply = events_of(12, told=Usage(64, 16))

    async def play(peer, request):
        if number_of(request) % 2 == 0:
            await writing(*reply)(peer, request)
            return
        await peer.open_stream()
        for event in reply[:5]:
            await peer.chunk(event)
        await go_on.wait()
        for event in reply[5:]:
            await peer.chunk(event)
        await peer.end_stream()

    port = free_port()
    async with scripted(play) as server, contextlib.AsyncExitStack() as stack:
        plan = plan_for(server.url, tmp_path, streams=30, output_tokens=12)
        arguments = [*headless(plan, tmp_path), "--master", "--expect-workers", str(WORKERS), *master_on(port)]
        run = await stack.enter_async_context(locust(tmp_path, *arguments))
        worker = ["--worker", "--master-host", "127.0.0.1", "--master-port", str(port), "--share"]
        others = [await stack.enter_async_context(locust(tmp_path, *worker, str(i))) for i in range(WORKERS)]
        master, *workers = [await one.ready() for one in (run, *others)]
        await shows(master["ops"], 'disagg_client_streams_ended_total{outcome="ok"} 15.0\n')
        await shows(master["ops"], "disagg_client_streams_live 15.0\n")
        for one in workers:  # each has its own metrics
            await shows(one["ops"], "disagg_client_streams_live 5.0\n")
        others[1].process.kill()
        go_on.set()
        assert await run.end() == 0
        for one in (others[0], others[2]):
            assert await one.end() == 0

    client = run.client
    gone = [worker for worker in client["workers"] if worker["gone"]]
    assert [(w["pid"], w["index"], w["planned"], w["ended"], w["lost"]) for w in gone] == [
        (workers[1]["pid"], 1, 10, 5, 5)
    ]
    assert client["streams"] == {
        **client["streams"], "planned": 30, "started": 30, "ok": 25, "failed": {}, "aborted": 0, "lost": 5
    }  # fmt: skip
    assert [line["seq"] for line in run.streams] == [seq for seq in range(30) if seq % 3 != 1 or seq % 2 == 0]
    assert len(server.requests) == 30  # nothing was sent anew
    assert "load1" in run.stderr


async def shows(ops_url, line):
    """Wait until an operations port shows a line."""
    async with asyncio.timeout(LONG):
        while line not in await get(ops_url, "/metrics"):  # noqa: ASYNC110
            await asyncio.sleep(0.05)  # another process's counter: there is no event to wait for


async def test_a_worker_that_cannot_read_the_trace_ends_the_run_with_its_reason(tmp_path):
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    rows = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:01:00.0000000,10,3\n"
    (tmp_path / "here" / "trace.csv").write_text(rows)
    port = free_port()
    arguments = ["--headless", "--master", "--expect-workers", "1", "--only-summary", "--host", "http://127.0.0.1:1"]
    arguments += [*master_on(port), "--set", "trace=trace.csv"]
    worker = ["--worker", "--master-host", "127.0.0.1", "--master-port", str(port)]
    async with (
        locust(tmp_path, *arguments, cwd=tmp_path / "here") as run,
        locust(tmp_path, *worker, cwd=tmp_path / "there") as other,
    ):
        code = await run.end()
        await other.end()

    assert code == 2
    assert re.search(r"locust: load0 \(.*\): trace\.csv: cannot read: No such file", run.stderr), run.stderr


@pytest.mark.parametrize(
    "strike",
    [lambda pid: os.kill(pid, signal.SIGTERM), lambda pid: os.killpg(pid, signal.SIGINT)],
    ids=["the master is asked to end", "Ctrl-C in a terminal strikes all"],
)
async def test_signals_end_it_and_what_every_worker_has_is_written(tmp_path, strike):
    async with scripted(silent) as server:
        plan = plan_for(server.url, tmp_path, streams=6)
        async with locust(tmp_path, *headless(plan, tmp_path), *processes(2)) as run:
            master, *_ = await ready_lines(run, 2)
            await shows(master["ops"], "disagg_client_streams_live 6.0\n")
            strike(run.process.pid)
            assert await run.end() == 0

    assert run.client["streams"] == {
        **run.client["streams"], "planned": 6, "started": 6, "ok": 0, "failed": {}, "aborted": 6, "lost": 0
    }  # fmt: skip
    assert [line["outcome"] for line in run.streams] == ["aborted"] * 6


async def test_locusts_own_csv_and_html_hold_the_counts_of_all_workers(tmp_path):
    async with scripted(as_asked) as server:
        arguments = ["--headless", "-u", "2", "-r", "2", "--host", server.url, "--set", "streams=5", "--only-summary"]
        arguments += ["--csv", str(tmp_path / "load"), "--html", str(tmp_path / "load.html")]
        async with locust(tmp_path, *arguments, *processes(2)) as run:
            assert await run.end() == 0

    with (tmp_path / "load_stats.csv").open() as file:
        rows = {(row["Type"], row["Name"]): int(row["Request Count"]) for row in csv.DictReader(file)}
    assert rows["POST", "E2E"] == rows["TTFT", "TTFT"] == 10
    report = (tmp_path / "load.html").read_text()
    start = report.index("window.templateArgs = ") + len("window.templateArgs = ")
    shown, _ = json.JSONDecoder().raw_decode(report[start:])
    assert {row["name"]: row["num_requests"] for row in shown["requests_statistics"]}["E2E"] == 10


SHAPED = """
from locust import LoadTestShape

from loadtest.locustfile import StreamUser  # all that is needed of ours


class Stairs(LoadTestShape):
    steps = ((3, 1), (6, 3), (9, 2), (12, 4))  # until which second how many users

    def tick(self):
        run_time = self.get_run_time()
        return next(((users, 10) for until, users in self.steps if run_time < until), None)
"""


async def test_by_hand_a_shape_says_how_many_copies_there_are(tmp_path):
    """1 copy, then 3, then one is stopped, then two more: five begin, none of them twice."""
    (tmp_path / "shaped.py").write_text(SHAPED)
    arguments = ["--headless", "--only-summary", "--set", "streams=2", "--set", "ramp_s=0"]
    async with scripted(silent) as server:
        arguments += ["--host", server.url, *processes(2)]
        async with locust(tmp_path, *arguments, locustfile=tmp_path / "shaped.py") as run:
            assert await run.end() == 0

    numbers = sorted(map(number_of, server.requests))
    assert numbers == [copy * SEQS_PER_COPY + seq for copy in range(5) for seq in range(2)]


@contextlib.asynccontextmanager
async def by_hand(tmp_path, url, workers, *arguments):
    """A master and its workers as processes of their own; a further worker can be started the same way."""
    port = free_port()
    common = ["--headless", "--master", "--expect-workers", str(workers), "--only-summary", "--host", url]
    async with contextlib.AsyncExitStack() as stack:
        run = await stack.enter_async_context(locust(tmp_path, *common, *master_on(port), *arguments))

        async def worker():
            argv = ["--worker", "--master-host", "127.0.0.1", "--master-port", str(port)]
            one = await stack.enter_async_context(locust(tmp_path, *argv))
            await one.ready()
            return one

        yield run, worker, [await worker() for _ in range(workers)]


async def test_copies_that_a_dead_workers_users_would_have_asked_for_are_sent_by_the_others(tmp_path):
    """Three users, one every 4 s, by turns on two workers; one worker dies after the first copy."""
    async with scripted(as_asked) as server:
        load = ["-u", "3", "-r", "0.25", "--set", "streams=4", "--set", "ramp_s=0"]
        async with by_hand(tmp_path, server.url, 2, *load) as (run, _, workers):
            async with asyncio.timeout(LONG):
                while len(server.requests) < 4:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            workers[1].process.kill()
            assert await run.end() == 0

    numbers = list(map(number_of, server.requests))
    assert len(numbers) == len(set(numbers))
    assert sorted(numbers[:4]) == [0, 1, 2, 3]
    assert {number // SEQS_PER_COPY for number in numbers} == {0, 1, 2}


async def test_a_worker_that_comes_while_a_test_runs_takes_no_part_in_it(tmp_path):
    go_on = asyncio.Event()

    async def play(peer, request):
        await go_on.wait()
        await as_asked(peer, request)

    async with scripted(play) as server:
        load = ["-u", "2", "-r", "2", "--set", "streams=4", "--set", "ramp_s=0"]
        async with by_hand(tmp_path, server.url, 1, *load) as (run, worker, (first,)):
            async with asyncio.timeout(LONG):
                while len(server.requests) < 8:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            late = await worker()  # the master has dealt with it when it is ready
            go_on.set()
            assert await run.end() == 0
            assert [await first.end(), await late.end()] == [0, 0]

    assert sorted(map(number_of, server.requests)) == [*range(4), *range(SEQS_PER_COPY, SEQS_PER_COPY + 4)]
    assert re.search(r"POST +E2E +8 +0\(", run.stderr)


async def test_with_the_web_ui_a_test_can_be_started_again_and_is_the_same_test(tmp_path):
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    arguments = ["--host", "http://127.0.0.1:1", "--web-host", "127.0.0.1", "--web-port", str(port), *processes(2)]
    arguments += ["--set", "streams=5", "--set", "ramp_s=0"]
    async with scripted(as_asked) as server, locust(tmp_path, *arguments) as run:
        await until_open(port)
        await until_answered(url, lambda answer: len(answer["workers"]) == 2)
        for ended in (5, 10):
            await swarm(port, server.url)
            await shows(url, f'disagg_client_streams_ended_total{{outcome="ok"}} {ended}.0\n')
            await until_answered(url, lambda answer: answer["state"] == "stopped")
            await until_answered(url, lambda answer: {w["state"] for w in answer["workers"]} == {"ready"})
        run.process.send_signal(signal.SIGTERM)
        await run.end()

    assert sorted(map(number_of, server.requests)) == [seq for seq in range(5) for _ in range(2)]


async def until_answered(url, condition):
    """Wait until the web UI's own figures are as asked."""
    async with asyncio.timeout(LONG):
        while not condition(json.loads(await get(url, "/stats/requests"))):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
