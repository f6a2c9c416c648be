"""A server that sends each event of a stream only when the test says so, and one client that reads it."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

CHAT = "/v1/chat/completions"
TIMEOUT_S = 40


def event_of(number: int) -> bytes:
    return b"data: %b\n\n" % json.dumps({"choices": [{"index": 0, "delta": {"content": f" {number}"}}]}).encode()


class Reply:
    """One chat stream in the hands of the test."""

    def __init__(self, handler: BaseHTTPRequestHandler, body: dict) -> None:
        self.body = body
        self.released = threading.Event()
        self._handler = handler

    def begin(self, status: int = 200) -> None:
        self._handler.send_response(status)
        self._handler.send_header("Content-Type", "text/event-stream")
        self._handler.send_header("Transfer-Encoding", "chunked")
        self._handler.end_headers()

    def send(self, data: bytes) -> None:
        """One chunk; b"" is the last one and lets the connection go on."""
        self._handler.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
        self._handler.wfile.flush()
        if not data:
            self.released.set()


@contextlib.contextmanager
def lockstep_server(on_chat: Callable[[Reply], None]) -> Iterator[str]:
    """Its URL.  ``on_chat`` gets each chat stream, on any thread; whatever else is asked for is 200 and ``{}``."""
    ended = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def do_POST(self):
            reply = Reply(self, json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            with contextlib.suppress(OSError):  # the other side may be gone
                on_chat(reply)
            while not (reply.released.wait(0.05) or ended.is_set()):
                pass

        def log_message(self, *_):
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128

        def handle_error(self, *_):
            pass  # connections that were cut

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            ended.set()
            server.shutdown()
            thread.join()


@contextlib.contextmanager
def chat_stream(port: int, body: dict) -> Iterator[socket.socket]:
    """A connection over which a chat stream was asked for."""
    data = json.dumps(body).encode()
    with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S) as sock:
        head = (
            f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        )
        sock.sendall(head.encode() + data)
        yield sock


def read_until(sock: socket.socket, got: bytes, mark: bytes) -> bytes:
    """``got`` and what follows, up to a read that brought ``mark``."""
    while mark not in got:
        data = sock.recv(65536)
        assert data, f"the connection ended after {got!r}"
        got += data
    return got
