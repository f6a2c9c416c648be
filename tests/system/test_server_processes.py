"""The ctx and gen servers as processes: their ready line, a taken port, a stop with live streams."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys

import pytest

pytestmark = pytest.mark.system

ENDLESS = json.dumps({"prompt": "Hello", "stream": True, "max_tokens": 1_000_000}).encode()


@contextlib.contextmanager
def process(server, *flags):
    with subprocess.Popen(
        [sys.executable, "-m", f"sim.{server}_server", *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as running:
        try:
            yield running
        finally:
            running.kill()


def connect(url):
    host, _, port = url.removeprefix("http://").rpartition(":")
    return socket.create_connection((host, int(port)), timeout=20)


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
