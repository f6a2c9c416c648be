"""Locust against scripted servers: every way a stream can go is told by its own word, and the counts are exact."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import time

import pytest

from loadtest.load_settings import LoadSettings
from loadtest.plan import LoadPlan
from loadtest.shares import SEQS_PER_COPY
from loadtest.workload import plan_requests
from sim.core.chunks import full_answer
from sim.core.histogram import LogHistogram
from sim.core.usage import Usage
from tests.pure.replies import events_of
from tests.wire.locust_runs import headless, locust, plan_for
from tests.wire.scripted import Client, scripted

TOKENS = 12
LONG = 60  # seconds: longer than any test


def reply(endpoint="chat", **settings):
    """What a gen server writes to a request of these tests, as the orchestrator passes it on."""
    return events_of(TOKENS, endpoint, told=Usage(64, 16), **settings)


def writing(*pieces, end=True):
    async def script(peer, request):
        await peer.open_stream()
        for piece in pieces:
            await peer.chunk(piece)
        if end:
            await peer.end_stream()

    return script


def raw(data, *, close=True):
    async def script(peer, request):
        await peer.send(data)
        if close:
            peer.writer.close()

    return script


async def byte_by_byte(peer, request):
    await peer.open_stream()
    for byte in b"".join(b"%x\r\n%b\r\n" % (len(event), event) for event in reply()):
        await peer.send(bytes([byte]))
        await asyncio.sleep(0)
    await peer.end_stream()


async def cut(peer, request):
    await peer.open_stream()
    for event in reply()[:6]:
        await peer.chunk(event)
    peer.cut()


async def silent(peer, request):
    await peer.open_stream()
    await peer.chunk(reply()[0])
    await peer.hung_up()


def error(status):
    async def script(peer, request):
        await peer.answer(status, {"error": {"message": "no"}})

    return script


SSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
EVENTS = reply()
WAYS = {
    "an event a chunk": (writing(*EVENTS), "ok"),
    "all in one chunk": (writing(b"".join(EVENTS)), "ok"),
    "byte by byte": (byte_by_byte, "ok"),
    "until the connection closes": (raw(SSE + b"\r\n" + b"".join(EVENTS)), "ok"),
    "cut": (cut, "cut"),
    "ended without [DONE]": (writing(*EVENTS[:-1]), "cut"),
    "HTTP never ended": (raw(SSE + b"Content-Length: 99999\r\n\r\n" + b"".join(EVENTS)), "bad_http"),
    "not HTTP": (raw(b"SSH-2.0-OpenSSH\r\n"), "bad_http"),
    "closed at once": (raw(b""), "cut"),
    "error event": (writing(*EVENTS[:5], b'data: {"error":{"message":"gen died"}}\n\n'), "error_event"),
    "429": (error(429), "http_429"),
    "500": (error(500), "http_500"),
    "JSON in place of a stream": (error(200), "not_sse"),
    "silence": (silent, "timeout"),
    "token lost": (writing(*EVENTS[:4], *EVENTS[5:]), "wrong_order"),
    "tail lost": (writing(*EVENTS[:8], *EVENTS[-2:]), "wrong_count"),
    "no usage": (writing(*EVENTS[:-2], EVENTS[-1]), "missing_usage"),
    "usage not rewritten": (writing(*events_of(TOKENS, told=Usage(64, 64))), "wrong_usage"),
    "goes on after the end": (writing(*EVENTS, EVENTS[3]), "after_done"),
    "other bytes": (writing(*EVENTS[:-3], EVENTS[-3].replace(b'":0', b'": 0'), *EVENTS[-2:]), "bytes_differ"),
    "not JSON": (writing(*EVENTS[:4], b"data: {\n\n"), "bad_event"),
}  # fmt: skip


def number_of(request):
    """Every prompt begins with its stream's number."""
    body = request.json
    prompt = body["prompt"] if "prompt" in body else body["messages"][0]["content"]
    return int(prompt.split(" ", 1)[0])


async def test_every_way_has_its_word_and_none_disturbs_the_others(tmp_path):
    ways = list(WAYS.values())

    async def play(peer, request):
        await ways[number_of(request)][0](peer, request)

    async with scripted(play) as server:
        plan = plan_for(server.url, tmp_path, streams=len(ways), output_tokens=TOKENS, timeout_s=1.0)
        async with locust(tmp_path, *headless(plan, tmp_path)) as run:
            code = await run.end()

    assert code == 0
    assert dict(zip(WAYS, (line["outcome"] for line in run.streams), strict=True)) == {
        name: outcome for name, (_, outcome) in WAYS.items()
    }
    streams = run.client["streams"]
    assert (streams["planned"], streams["started"], streams["ok"], streams["aborted"]) == (len(ways), len(ways), 4, 0)
    assert sum(streams["failed"].values()) == len(ways) - 4
    assert streams["failed"]["bad_http"] == 2
    assert "StreamFailedError('http_429')" in run.stderr
    for line in run.streams[:4]:
        assert (line["tokens"], line["chunks"], line["events"]) == (TOKENS, TOKENS, TOKENS + 3)
        assert line["checked"] == "bytes"
        stamps = ("planned_ns", "sent_ns", "first_byte_ns", "first_token_ns", "last_token_ns", "end_ns")
        assert [line[stamp] for stamp in stamps] == sorted(line[stamp] for stamp in stamps)


@pytest.mark.parametrize(("endpoint", "stream"), [("chat", False), ("completions", False), ("completions", True)])
async def test_both_endpoints_streamed_and_whole(tmp_path, endpoint, stream):
    async def play(peer, request):
        assert request.path == ("/v1/chat/completions" if endpoint == "chat" else "/v1/completions")
        assert request.json.get("stream", False) == stream
        if stream:
            await writing(*reply(endpoint))(peer, request)
        else:
            text = "".join(f" {k}" for k in range(TOKENS))
            usage = Usage(64, 16, TOKENS)
            await peer.answer(200, full_answer(endpoint, id="a", created=1, model="sim", text=text, usage=usage))

    async with scripted(play) as server:
        plan = plan_for(server.url, tmp_path, streams=3, output_tokens=TOKENS, endpoint=endpoint, stream=stream)
        async with locust(tmp_path, *headless(plan, tmp_path)) as run:
            assert await run.end() == 0

    assert run.client["streams"]["ok"] == 3
    assert run.client["tokens"] == 3 * TOKENS
    assert [line["checked"] for line in run.streams] == ["bytes" if stream else "counted"] * 3


async def test_where_gen_stamps_its_events_every_token_has_its_transit_time(tmp_path):
    async def play(peer, request):
        await peer.open_stream()
        for event in reply(stamp_sent=True):
            await peer.chunk(event.replace(b'"sent_ns":0', b'"sent_ns":%d' % time.monotonic_ns()))
        await peer.end_stream()

    async with scripted(play) as server:
        plan = plan_for(server.url, tmp_path, gen={"stamp_sent": True}, streams=3, output_tokens=TOKENS)
        started_ns = time.monotonic_ns()
        async with locust(tmp_path, *headless(plan, tmp_path)) as run:
            assert await run.end() == 0
    transit = LogHistogram.from_json(run.client["transit"])

    assert [(line["outcome"], line["checked"]) for line in run.streams] == [("ok", "bytes")] * 3
    assert transit.count == 3 * TOKENS
    assert 0 < transit.max_ns < time.monotonic_ns() - started_ns


async def test_nobody_listening_is_told_and_the_results_are_written(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        plan = plan_for(f"http://127.0.0.1:{taken.getsockname()[1]}", tmp_path, streams=3)
        async with locust(tmp_path, *headless(plan, tmp_path)) as run:
            assert await run.end() == 0

    assert run.client["streams"]["failed"] == {"refused_connect": 3}
    assert run.streams[0]["detail"] == "Connection refused"


async def test_a_large_prompt_is_sent_piece_by_piece_while_streams_are_read(tmp_path):
    async def play(peer, request):
        assert len(request.json["messages"][0]["content"]) == 4_000_000
        await writing(*events_of(TOKENS, told=Usage(1_000_000, 250_000)))(peer, request)

    async with scripted(play) as server:
        plan = plan_for(server.url, tmp_path, streams=3, prompt_tokens=1_000_000, output_tokens=TOKENS)
        async with locust(tmp_path, *headless(plan, tmp_path)) as run:
            assert await run.end() == 0

    assert run.client["streams"]["ok"] == 3


async def test_the_schedule_is_kept_when_nothing_comes_back(tmp_path):
    """Open loop; and what is live when the plan's time is over is closed as aborted."""
    async with scripted(silent) as server:
        plan = plan_for(
            server.url, tmp_path, arrivals="poisson", request_rate=40, duration_s=0.5, stop_timeout_s=0.2, seed=5
        )
        async with locust(tmp_path, *headless(plan, tmp_path)) as run:
            assert await run.end() == 0

    due_ns = [request.due_ns for request in plan_requests(plan.settings, 5)]
    planned_ns = [line["planned_ns"] for line in run.streams]
    assert [stamp - planned_ns[0] for stamp in planned_ns] == [due - due_ns[0] for due in due_ns]
    assert run.client["streams"] == {
        "planned": len(due_ns), "started": len(due_ns), "unsent": 0, "ok": 0, "ended_early": 0, "failed": {},
        "aborted": len(due_ns), "cancelled": 0, "cancelled_near_end": 0,
    }  # fmt: skip
    late_ns = [line["sent_ns"] - line["planned_ns"] for line in run.streams]
    lateness = LogHistogram.from_json(run.client["lateness"])
    assert min(late_ns) >= 0
    assert (lateness.count, lateness.sum_ns, lateness.max_ns) == (len(late_ns), sum(late_ns), max(late_ns))


async def test_connections_are_used_again(tmp_path):
    async with scripted(writing(*reply())) as server:
        plan = plan_for(server.url, tmp_path, arrivals="constant", request_rate=20, limit=6, output_tokens=TOKENS)
        async with locust(tmp_path, *headless(plan, tmp_path)) as run:
            assert await run.end() == 0

    assert run.client["streams"]["ok"] == 6
    assert len(server.requests) == 6
    assert server.connections < 6


async def test_a_connection_that_the_server_closed_is_not_used_again(tmp_path):
    async def play(peer, request):
        await writing(*reply())(peer, request)
        peer.writer.close()

    async with scripted(play) as server:
        plan = plan_for(server.url, tmp_path, arrivals="constant", request_rate=20, limit=4, output_tokens=TOKENS)
        async with locust(tmp_path, *headless(plan, tmp_path)) as run:
            assert await run.end() == 0

    assert run.client["streams"]["ok"] == 4
    assert server.connections == 4


@pytest.mark.parametrize("numbers", [[signal.SIGINT], [signal.SIGTERM], [signal.SIGINT, signal.SIGINT, signal.SIGTERM]])
async def test_a_signal_closes_live_streams_and_the_results_are_written(tmp_path, numbers):
    live = asyncio.Queue()

    async def play(peer, request):
        await peer.open_stream()
        for event in EVENTS[:5]:
            await peer.chunk(event)
        live.put_nowait(None)
        await peer.hung_up()

    async with scripted(play) as server:
        plan = plan_for(server.url, tmp_path, streams=5, output_tokens=1000)
        async with locust(tmp_path, *headless(plan, tmp_path)) as run:
            ready = await run.ready()
            for _ in range(5):
                await asyncio.wait_for(live.get(), LONG)
            await all_tokens_read(ready["ops"], 20)
            for number in numbers:
                run.process.send_signal(number)
            code = await run.end()

    assert code == 0
    assert run.client["streams"] == {
        "planned": 5, "started": 5, "unsent": 0, "ok": 0, "ended_early": 0, "failed": {}, "aborted": 5,
        "cancelled": 0, "cancelled_near_end": 0,
    }  # fmt: skip
    assert run.client["tokens"] == run.client["chunks"] == 20
    assert [line["outcome"] for line in run.streams] == ["aborted"] * 5


@pytest.mark.parametrize("stamped", [False, True])
async def test_a_client_cancels_as_planned_and_the_others_are_not_disturbed(tmp_path, stamped):
    hung_up = 0

    async def play(peer, request):
        nonlocal hung_up
        await peer.open_stream()
        events = reply(stamp_sent=stamped)
        for event in events[:6]:
            await peer.chunk(event)
        if number_of(request) in planned_cancels:
            await asyncio.wait_for(peer.hung_up(), LONG)
            hung_up += 1
            return
        for event in events[6:]:
            await peer.chunk(event)
        await peer.end_stream()

    keys = {"streams": 12, "output_tokens": TOKENS, "cancel_share": 0.5, "cancel_after_tokens": 5}
    async with scripted(play) as server:
        plan = plan_for(server.url, tmp_path, gen={"stamp_sent": stamped}, **keys)
        planned_cancels = {request.seq for request in plan_requests(plan.settings, 1) if request.cancel_after}
        async with locust(tmp_path, *headless(plan, tmp_path)) as run:
            assert await run.end() == 0

    cancelled = len(planned_cancels)
    assert 0 < cancelled == hung_up < 12
    assert run.client["streams"] == {
        "planned": 12, "started": 12, "unsent": 0, "ok": 12 - cancelled, "ended_early": 0, "failed": {}, "aborted": 0,
        "cancelled": cancelled, "cancelled_near_end": cancelled,
    }  # fmt: skip
    assert run.client["left_tokens"] == cancelled * (TOKENS - 5)
    assert run.client["tokens"] == TOKENS * 12 - run.client["left_tokens"]
    assert (run.client["usages"], run.client["cached_tokens"]) == (12 - cancelled, 16 * (12 - cancelled))
    assert run.client["e2e"]["count"] == 12 - cancelled
    lines = {line["seq"]: (line["outcome"], line["tokens"]) for line in run.streams}
    assert lines == {seq: ("cancelled", 5) if seq in planned_cancels else ("ok", TOKENS) for seq in range(12)}
    assert re.search(rf"CANCEL\s+Cancelled\s+{cancelled}\s+0\(", run.stderr)
    assert re.search(rf"POST\s+E2E\s+{12 - cancelled}\s+0\(", run.stderr)


async def all_tokens_read(ops_url, tokens):
    """Wait until the load's own metrics show that many."""
    async with asyncio.timeout(LONG):
        while True:
            body = await get(ops_url, "/metrics")
            if f"disagg_client_tokens_total {tokens:.1f}\n" in body:
                assert "disagg_client_streams_live 5.0\n" in body
                return


async def get(url, path):
    host, _, port = url.removeprefix("http://").partition(":")
    client = Client(*await asyncio.open_connection(host, int(port)))
    try:
        await client.send(None, path, "GET")
        answer = await client.answer()
    finally:
        client.close()
    assert answer.status == 200
    return answer.body.decode()


async def test_a_run_leaves_the_loops_health(tmp_path):
    async with scripted(silent) as server:
        plan = plan_for(server.url, tmp_path, streams=1, duration_s=1.3, stop_timeout_s=0.0)
        async with locust(tmp_path, *headless(plan, tmp_path)) as run:
            ready = await run.ready()
            served = json.loads(await get(ready["ops"], "/admin/samples"))
            assert await run.end() == 0

    client = run.client
    assert ready["server"] == "load"
    assert set(served) == {"samples", "lag", "lag_loop", "lag_kernel", "late_ticks", "late_ticks_kernel"}
    assert LogHistogram.from_json(client["lag"]).count >= 100
    assert client["health"][0]["ticks"] >= 90
    assert 0 < client["cpu_s"] < client["wall_s"]
    assert client["end_ns"] - client["start_ns"] == pytest.approx(client["wall_s"] * 1e9)
    assert client["start_ns"] == run.streams[0]["planned_ns"]


async def test_by_hand_two_users_are_two_copies_and_no_files_are_written(tmp_path):
    async with scripted(writing(*reply())) as server:
        arguments = ["--scenario", "smoke", "--set", "streams=3", "--set", f"output_tokens={TOKENS}"]
        async with locust(
            tmp_path, "--headless", "-u", "2", "-r", "2", "--only-summary", "--host", server.url, *arguments
        ) as run:
            code = await run.end()

    assert code == 0
    assert sorted(map(number_of, server.requests)) == [*numbers_of(0, 3), *numbers_of(1, 3)]
    rows = re.findall(r"^(POST|TTFT|ITL|) +(\w.*?)  +(\d+) +0\(", run.stderr, re.MULTILINE)
    assert sorted(rows) == [
        ("", "Aggregated", "24"), ("ITL", "ITL (stream mean)", "6"), ("POST", "E2E", "6"),
        ("TTFT", "TTFT", "6"), ("TTFT", "TTFT from sent", "6"),
    ]  # fmt: skip
    assert list(tmp_path.iterdir()) == []


async def as_asked(peer, request):
    await writing(*events_of(request.json["max_tokens"]))(peer, request)


def asked_by(server):
    return [request.json["max_tokens"] for request in server.requests]


def numbers_of(copy, count):
    """Numbers of the first requests of a copy."""
    return [copy * SEQS_PER_COPY + seq for seq in range(count)]


async def test_by_hand_processes_share_every_copy_and_none_is_left(tmp_path):
    port = free_port()
    load = {"lengths": "azure-code", "streams": 4, "ramp_s": 0.0}
    arguments = ["--headless", "--processes", "2", "-u", "2", "-r", "2", "--only-summary", "-L", "WARNING"]
    arguments += ["--master-bind-host", "127.0.0.1", "--master-bind-port", str(port), "--master-port", str(port)]
    arguments += [argument for key, value in load.items() for argument in ("--set", f"{key}={value}")]
    async with scripted(as_asked) as server, locust(tmp_path, *arguments, "--host", server.url) as run:
        assert await run.end() == 0
        with pytest.raises(ProcessLookupError):  # it leads its own process group
            os.killpg(run.process.pid, 0)

    settings = LoadSettings(**load)
    due = [
        (copy * SEQS_PER_COPY + request.seq, request.output_tokens)
        for copy in (0, 1)
        for request in plan_requests(settings, settings.seed + copy)
    ]
    assert sorted(zip(map(number_of, server.requests), asked_by(server), strict=True)) == due


async def test_by_hand_usage_of_unknown_servers_is_noted_and_failures_are_locusts_own(tmp_path):
    foreign = events_of(30, told=Usage(7, 7))

    async def play(peer, request):
        await (writing(*foreign) if number_of(request) else error(503))(peer, request)

    async with (
        scripted(play) as server,
        locust(tmp_path, "--headless", "--only-summary", "--host", server.url, "--set", "streams=4") as run,
    ):
        code = await run.end()

    assert code == 1  # Locust's --exit-code-on-error
    assert run.stderr.count("StreamFailedError('http_503')") == 1


async def test_by_hand_a_run_time_ends_it(tmp_path):
    arguments = ["--headless", "-u", "2", "-r", "2", "-t", "2s", "--only-summary", "--set", "ramp_s=0"]
    async with scripted(silent) as server, locust(tmp_path, *arguments, "--host", server.url) as run:
        assert await run.end() == 0  # streams that the load closes itself are no failures

    assert len(server.requests) == 40


async def test_with_the_web_ui_the_form_says_where_and_the_metrics_are_under_its_port(tmp_path):
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    arguments = ["--host", "http://127.0.0.1:1", "--web-host", "127.0.0.1", "--web-port", str(port)]
    arguments += ["--set", "streams=3", "--set", "lengths=azure-code"]
    async with scripted(as_asked) as server, locust(tmp_path, *arguments) as run:
        await until_open(port)
        for ended in (3, 6):
            await swarm(port, server.url)
            async with asyncio.timeout(LONG):
                while f'disagg_client_streams_ended_total{{outcome="ok"}} {ended}.0' not in await get(url, "/metrics"):
                    pass
                while json.loads(await get(url, "/stats/requests"))["state"] != "stopped":
                    pass
        page = await get(url, "/")
        run.process.send_signal(signal.SIGTERM)
        await run.end()

    assert "Locust" in page
    due = [request.output_tokens for request in plan_requests(LoadSettings(streams=3, lengths="azure-code"), 1)]
    assert asked_by(server) == [*due, *due]  # a test that is started again is the same test
    assert [number_of(request) for request in server.requests] == [0, 1, 2, 0, 1, 2]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


async def swarm(port, host):
    """Start a test of one user as the web UI's form does."""
    client = Client(*await asyncio.open_connection("127.0.0.1", port))
    form = b"user_count=1&spawn_rate=1&host=" + host.encode()
    client.writer.write(
        b"POST /swarm HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\n"
        b"Content-Length: %d\r\n\r\n%b" % (len(form), form)
    )
    started = (await client.answer()).json
    client.close()
    assert started["success"]


async def until_open(port):
    async with asyncio.timeout(LONG):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except ConnectionRefusedError:
                await asyncio.sleep(0.05)  # another process's port: there is no event to wait for
            else:
                writer.close()
                return


REFUSED = {
    "no host": ([], "--host: say where"),
    "unknown scenario": (["--host", "http://h:1", "--scenario", "nope"], "unknown scenario 'nope'; there are"),
    "unknown key": (["--host", "http://h:1", "--set", "stream5=1"], "--set stream5: unknown key"),
    "unknown name": (["--host", "http://no.such.host.invalid:1"], "host: 'no.such.host.invalid' cannot be resolved"),
    "no plan file": (["--plan", "/no/such/plan.json"], "plan: cannot read /no/such/plan.json"),
    "too many streams": (["--host", "http://h:1", "--set", "streams=900000"], "streams: 900000 streams"),
    "no operations address": (["--host", "http://h:1", "--ops", "9000"], "--ops: '9000' is not of the form HOST:PORT"),
}


@pytest.mark.parametrize(("arguments", "words"), REFUSED.values(), ids=REFUSED)
async def test_bad_input_is_refused_with_status_2(tmp_path, arguments, words):
    async with locust(tmp_path, "--headless", *arguments) as run:
        code = await run.end()

    assert code == 2
    assert f"locust: {words}" in run.stderr


async def test_an_operations_port_in_use_and_a_folder_that_is_not_there_are_told(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        ops = f"127.0.0.1:{taken.getsockname()[1]}"
        plan = LoadPlan(host="http://127.0.0.1:1", settings=LoadSettings(), out=str(tmp_path), ops=ops)
        async with locust(tmp_path, *headless(plan, tmp_path)) as run:
            assert await run.end() == 2
    assert f"locust: cannot listen on {ops}: address already in use" in run.stderr

    plan = LoadPlan(host="http://127.0.0.1:1", settings=LoadSettings(), out=str(tmp_path / "no"))
    async with locust(tmp_path, *headless(plan, tmp_path)) as run:
        assert await run.end() == 2
    assert "locust: out: cannot write to" in run.stderr
