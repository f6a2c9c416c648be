"""The ctx and gen servers as processes: their ready line, a taken port, a stop with live streams."""

from __future__ import annotations

import contextlib
import json
import resource
import signal
import socket
import subprocess
import sys
import time

import pytest

pytestmark = pytest.mark.system

ENDLESS = json.dumps({"prompt": "Hello", "stream": True, "max_tokens": 1_000_000}).encode()


@contextlib.contextmanager
def process(server, *flags, command=(sys.executable, "-m")):
    with subprocess.Popen(
        [*command, f"sim.{server}_server", *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as running:
        try:
            yield running
        finally:
            running.kill()


def connect(url):
    host, _, port = url.removeprefix("http://").rpartition(":")
    return socket.create_connection((host, int(port)), timeout=20)


def get(url, path):
    with connect(url) as sock:
        sock.sendall(b"GET %b HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" % path.encode())
        answer = b""
        while data := sock.recv(65536):
            answer += data
    return json.loads(answer.split(b"\r\n\r\n", 1)[1])


@pytest.mark.parametrize("server", ["ctx", "gen"])
def test_the_ready_line_says_where_it_listens(server):
    with process(server) as running:
        ready = json.loads(running.stdout.readline())

        assert ready == {
            "ready": True,
            "server": server,
            "listen": ready["listen"],
            "ops": ready["ops"],
            "pid": running.pid,
        }
        for url in (ready["listen"], ready["ops"]):
            with connect(url) as sock:
                sock.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                assert sock.recv(4096).startswith(b"HTTP/1.1 200 OK\r\n")


@pytest.mark.parametrize("server", ["ctx", "gen"])
@pytest.mark.parametrize("flag", ["--listen", "--ops"])
def test_a_port_in_use_ends_with_status_2(server, flag):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with process(server, flag, address) as running:
            out, err = running.communicate(timeout=30)

    assert running.returncode == 2
    assert out == b""
    assert err.decode() == f"python -m sim.{server}_server: cannot listen on {address}: address in use\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_stop_does_not_wait_for_live_streams(number):
    with process("gen", "--itl-ms", "50") as running:
        ready = json.loads(running.stdout.readline())
        with connect(ready["listen"]) as sock:
            head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
            sock.sendall(head % len(ENDLESS) + ENDLESS)
            assert sock.recv(4096).startswith(b"HTTP/1.1 200 OK\r\n")
            running.send_signal(number)

            assert running.wait(timeout=10) == 0
            rest = b""
            while data := sock.recv(65536):
                rest += data
        err = running.stderr.read()
    assert b"[DONE]" not in rest
    assert b"Traceback" not in err


def test_an_idle_server_stops_cleanly():
    with process("ctx") as running:
        running.stdout.readline()
        running.terminate()
        _, err = running.communicate(timeout=10)

    assert running.returncode == 0
    assert b"stopping" in err
    assert b"Traceback" not in err


def test_an_idle_server_costs_next_to_nothing():
    """Its loop health is what runs; CPU time does not depend on what else the machine does."""
    with process("gen") as running:
        ready = json.loads(running.stdout.readline())
        deadline = time.monotonic() + 60
        while len(samples := get(ready["ops"], "/admin/samples")["samples"]) < 3:
            assert time.monotonic() < deadline
            time.sleep(0.5)

    # The first one holds the end of the start-up.
    idle = samples[1:]
    assert sum(sample["cpu_s"] for sample in idle) <= 0.05 * sum(sample["wall_s"] for sample in idle)


def test_the_descriptor_limit_is_raised_as_far_as_it_may():
    """Two files for each relayed stream: a soft limit of 1024 would be the end of 500 of them."""
    low = ("sh", "-c", f'ulimit -Sn 100 && exec "{sys.executable}" -m "$0" "$@"')
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with process("gen", command=low) as running:
        running.stdout.readline()

        assert resource.prlimit(running.pid, resource.RLIMIT_NOFILE) == (hard, hard)


def test_what_start_up_made_is_out_of_the_garbage_collectors_sight():
    server = """
import gc
from aiohttp import web
from sim.service.config import ProcessOptions
from sim.service.server import Service, run

def build(runtime):
    return Service(data=web.Application(), counters=lambda: {"frozen": gc.get_freeze_count()})

run("gen_server", ProcessOptions(), build)
"""
    with subprocess.Popen([sys.executable, "-c", server], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as running:
        try:
            ready = json.loads(running.stdout.readline())
            assert get(ready["ops"], "/admin/counters")["frozen"] > 10_000
        finally:
            running.kill()
