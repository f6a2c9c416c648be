"""The programs that the bench compares with: each that can be had here starts, and passes on tokens one by one."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import queue
import resource
import signal
import subprocess
import threading
import time

import pytest

from bench.candidate import Addresses, Load
from bench.candidates import clients, gens, relays
from bench.candidates.environment import with_all_fds
from loadtest.experiment.ports import free_ports
from tests.system.lockstep import TIMEOUT_S, chat_stream, event_of, lockstep_server, read_until

pytestmark = [pytest.mark.system, pytest.mark.timeout(180)]

NOT_IN_CI = {"sglang-router", "vllm-router", "guidellm-mock", "aiperf-mock-server"}  # large, or not to be had
BODY = {"model": "sim", "messages": [{"role": "user", "content": "Hello"}], "stream": True, "max_tokens": 10_000}


def each(candidates):
    return pytest.mark.parametrize("candidate", candidates, ids=[candidate.name for candidate in candidates])


@contextlib.contextmanager
def running(candidate, directory, load=None, **urls):
    """The candidate as a process that is ready, and its port."""
    reason = candidate.missing()
    if reason is not None:
        if "CI" in os.environ and candidate.name not in NOT_IN_CI:
            pytest.fail(f"{candidate.name}: {reason}")
        pytest.skip(f"{candidate.name}: {reason}")
    port, second = free_ports(2)
    log = directory / "log.txt"
    argv = candidate.argv(Addresses(port=port, second_port=second, **urls), directory, load)
    with log.open("wb") as out, subprocess.Popen(argv, stdout=out, stderr=out, cwd="/") as process:
        try:
            if candidate.kind != "client":
                wait_for(process, log, lambda: answers(port, candidate.ready_path))
            yield process, port, log
        finally:
            process.kill()


def answers(port, path):
    with contextlib.suppress(OSError, http.client.HTTPException):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            connection.request("GET", path)
            return connection.getresponse().status == 200
        finally:
            connection.close()
    return False


def wait_for(process, log, done):
    deadline = time.monotonic() + TIMEOUT_S
    while not done():
        assert process.poll() is None, log.read_text(errors="replace")[-2000:]
        assert time.monotonic() < deadline, log.read_text(errors="replace")[-2000:]
        time.sleep(0.05)


@each(relays())
def test_a_relay_holds_no_token_back(candidate, tmp_path):
    """Gen sends an event only when the one before has come out of the relay: one held back would end in a timeout."""
    replies = queue.Queue()
    with (
        lockstep_server(replies.put) as gen_url,
        running(candidate, tmp_path, gen_url=gen_url) as (process, port, _),
        chat_stream(port, BODY) as sock,
    ):
        reply = replies.get(timeout=TIMEOUT_S)
        asked = dict(reply.body)
        asked.setdefault("max_tokens", asked.pop("max_completion_tokens", None))  # sglang-router's way
        assert {key: asked[key] for key in BODY} == BODY
        reply.begin()
        got = b""
        for number in range(20):
            reply.send(event_of(number))
            got = read_until(sock, got, event_of(number).strip())
        reply.send(b"data: [DONE]\n\n")
        reply.send(b"")
        got = read_until(sock, got, b"\r\n0\r\n\r\n")

        assert got.startswith(b"HTTP/1.1 200 ")
        assert got.count(b"data: ") == 21
        process.terminate()
        assert process.wait(TIMEOUT_S) in (0, -signal.SIGTERM)


@each(gens())
def test_a_gen_streams_from_the_first_token_on(candidate, tmp_path):
    load = Load(streams=1, tok_s=50.0, ramp_s=0.0, duration_s=100.0)
    with running(candidate, tmp_path, load) as (process, port, _):
        with chat_stream(port, BODY) as sock:  # far too long to be waited for
            got = b""
            while got.count(b"data: ") < 10:
                got = read_until(sock, got + sock.recv(65536), b"data: ")
            assert got.startswith(b"HTTP/1.1 200 ")
        with chat_stream(port, {**BODY, "max_tokens": 5}) as sock:
            got = read_until(sock, b"", b"data: [DONE]")
            assert got.count(b'"content"') == 5
        process.terminate()
        assert process.wait(TIMEOUT_S) in (0, -signal.SIGTERM)


@each(clients())
def test_a_client_counts_each_token_as_it_comes(candidate, tmp_path):
    """The first reply is whole, the second an error: both are followed by another; the others stay open."""
    lock = threading.Lock()
    order = iter(range(1000))

    def serve(reply):
        with lock:
            number = next(order)
        reply.begin(500 if number == 1 else 200)
        if number != 1:
            for event in range(7):
                reply.send(event_of(event))
        if number == 0:
            reply.send(b"data: [DONE]\n\n")
        if number < 2:
            reply.send(b"")

    def progress():
        with contextlib.suppress(FileNotFoundError):
            return json.loads((tmp_path / "progress.json").read_text())
        return {"tokens": 0, "live": 0, "t_ns": 0}

    load = Load(streams=4, tok_s=1.0, ramp_s=1.0, duration_s=100.0)
    with lockstep_server(serve) as url, running(candidate, tmp_path, load, target_url=url) as (process, _, log):
        before_ns = time.monotonic_ns()
        wait_for(process, log, lambda: progress()["tokens"] == 5 * 7 and progress()["live"] == 4)
        assert before_ns < progress()["t_ns"] < time.monotonic_ns()
        process.terminate()
        process.wait(TIMEOUT_S)

        told = json.loads(log.read_text().splitlines()[-1])
        assert told == {"tokens": 35, "streams": 6, "failed": 1}


@each(clients())
def test_a_client_ends_by_itself_when_its_time_is_over(candidate, tmp_path):
    load = Load(streams=2, tok_s=1.0, ramp_s=0.1, duration_s=0.5)
    with lockstep_server(lambda reply: reply.begin()) as url:
        with running(candidate, tmp_path, load, target_url=url) as (process, _, log):
            assert process.wait(TIMEOUT_S) == 0
        told = json.loads(log.read_text().splitlines()[-1])
        assert (told["tokens"], told["failed"]) == (0, 0)


def test_a_candidate_gets_all_the_open_files_it_may_have():
    argv = with_all_fds("/bin/sh", "-c", "ulimit -n; echo $$")
    lowered = ("/bin/sh", "-c", 'ulimit -Sn 256; exec "$@"', "sh", *argv)
    with subprocess.Popen(lowered, stdout=subprocess.PIPE, text=True) as process:
        limit, pid = process.communicate(timeout=TIMEOUT_S)[0].split()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert (limit, int(pid)) == ("unlimited" if hard == resource.RLIM_INFINITY else str(hard), process.pid)
