"""ctx and gen servers that do byte for byte what a test's script says, and a client that reads raw bytes.

Every wait is bounded by the test's own timeout (pytest-timeout) or by `until`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sim.core.settings import OrchestratorSettings
from sim.orchestrator.app import build_orchestrator
from sim.orchestrator.arms import build_arms
from sim.orchestrator.config import OrchestratorOptions
from sim.orchestrator.policies import BUILTIN
from sim.service.config import Address, ProcessOptions
from sim.service.server import Started, started

CTX_USAGE = {"prompt_tokens": 100, "total_tokens": 101, "completion_tokens": 1,
             "prompt_tokens_details": {"cached_tokens": 25}}  # fmt: skip
GEN_USAGE = {"prompt_tokens": 100, "total_tokens": 103, "completion_tokens": 3,
             "prompt_tokens_details": {"cached_tokens": 100}}  # fmt: skip
TRUE_USAGE = {**GEN_USAGE, "prompt_tokens_details": {"cached_tokens": 25}}

CHAT = {"model": "m", "messages": [{"role": "user", "content": "Hello"}], "stream": True,
        "stream_options": {"include_usage": True}, "max_tokens": 3}  # fmt: skip
PATH = "/v1/chat/completions"

ENGINE = "splice"
"""Of the orchestrators to be started; the fixture `engine` sets it."""

ROLE = b'data: {"choices":[{"index":0,"delta":{"role":"assistant"}}]} \n\n'
DONE = b"data: [DONE]\n\n"


def token(text: str, tail: str = "") -> bytes:
    return f'data: {{"choices":[{{"index":0,"delta":{{"content":{json.dumps(text)}}}}}]{tail}}}\n\n'.encode()


def usage_event(usage: dict[str, Any]) -> bytes:
    return b"data: %b\n\n" % json.dumps({"choices": [], "usage": usage}, separators=(",", ":")).encode()


@dataclass
class Received:
    """One request as it came in."""

    head: bytes
    body: bytes

    @property
    def path(self) -> str:
        return self.head.split(b" ")[1].decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def params(self) -> dict[str, Any]:
        return self.json["disaggregated_params"]


@dataclass
class Peer:
    """The server's end of one connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    number: int

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def chunk(self, data: bytes) -> None:
        await self.send(b"%x\r\n%b\r\n" % (len(data), data))

    async def open_stream(self, extra: bytes = b"") -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n"
        await self.send(head + extra + b"\r\n")

    async def end_stream(self) -> None:
        await self.send(b"0\r\n\r\n")

    async def answer(self, status: int, body: object, content_type: str = "application/json") -> None:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        head = f"HTTP/1.1 {status} X\r\nContent-Type: {content_type}\r\nContent-Length: {len(raw)}\r\n\r\n"
        await self.send(head.encode() + raw)

    async def hung_up(self) -> None:
        """Returns when the other side has closed the connection."""
        with contextlib.suppress(ConnectionError):
            while await self.reader.read(65536):
                pass

    def cut(self) -> None:
        self.writer.transport.abort()


Script = Callable[[Peer, Received], Awaitable[None]]


@dataclass
class Scripted:
    """A server that answers /health and plays one script per POST; the last one is repeated."""

    scripts: list[Script]
    healthy: bool = True
    requests: list[Received] = field(default_factory=list)
    connections: int = 0
    url: str = ""
    errors: list[BaseException] = field(default_factory=list)
    open: dict[asyncio.Task[Any], asyncio.StreamWriter] = field(default_factory=dict)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(reader, writer, self.connections)
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self.open[task] = writer
        try:
            while not writer.is_closing():
                head = await reader.readuntil(b"\r\n\r\n")
                lengths = [
                    line.split(b":")[1] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")
                ]
                received = Received(head, await reader.readexactly(int(lengths[0])) if lengths else b"")
                if received.path == "/health":
                    await peer.answer(200 if self.healthy else 503, {})
                    continue
                self.requests.append(received)
                script = self.scripts.pop(0) if len(self.scripts) > 1 else self.scripts[0]
                await script(peer, received)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        except RuntimeError:
            assert writer.is_closing()  # how uvloop refuses a write to a connection that is closed
        except Exception as error:  # noqa: BLE001 - a failed assertion of a script, shown when the server ends
            self.errors.append(error)
        finally:
            del self.open[task]
            writer.close()

    async def hang_up(self) -> None:
        """End every connection and wait until each script has noticed."""
        for writer in self.open.values():
            writer.transport.abort()
        if self.open:
            await asyncio.wait(self.open)


@contextlib.asynccontextmanager
async def scripted(*scripts: Script, path: Path | None = None) -> AsyncIterator[Scripted]:
    server = Scripted(list(scripts))
    if path is None:
        listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
        server.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    else:
        listener = await asyncio.start_unix_server(server.serve, str(path))
        server.url = f"unix:{path}"
    try:
        yield server
    finally:
        listener.close()
        await server.hang_up()
    assert server.errors == []


async def prefill(peer: Peer, request: Received, **changes: Any) -> None:
    """What a ctx server answers; ``changes`` replace keys of the choice (None: remove)."""
    params = {"request_type": "context_only", "first_gen_tokens": [7], "ctx_request_id": 5,
              "disagg_request_id": request.params["disagg_request_id"]}  # fmt: skip
    message = {"role": "assistant", "content": "Hi"}
    choice = {"index": 0, "message": message, "finish_reason": "length", "disaggregated_params": params, **changes}
    choice = {key: value for key, value in choice.items() if value is not None}
    answer = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice],
              "usage": CTX_USAGE, "prompt_token_ids": [1, 2, 3]}  # fmt: skip
    await peer.answer(200, answer)


def answering(status: int, body: object, content_type: str = "application/json") -> Script:
    async def script(peer: Peer, request: Received) -> None:
        await peer.answer(status, body, content_type)

    return script


async def closing(peer: Peer, request: Received) -> None:
    """A server that takes a request and hangs up."""
    peer.writer.close()


def streaming(*writes: bytes, end: bool = True) -> Script:
    """A gen server that makes each of ``writes`` an HTTP chunk of its own."""

    async def script(peer: Peer, request: Received) -> None:
        await peer.open_stream()
        for data in writes:
            await peer.chunk(data)
        if end:
            await peer.end_stream()

    return script


@dataclass
class Orchestrator:
    """A running orchestrator and the ways into it."""

    started: Started
    clients: list[Client] = field(default_factory=list)

    @property
    def counters(self) -> dict[str, Any]:
        return self.started.service.counters()

    async def client(self) -> Client:
        """A connection, closed at the latest when the orchestrator is."""
        address = self.started.listen
        client = Client(*await asyncio.open_connection(address.host, address.port, limit=1 << 16))
        self.clients.append(client)
        return client

    async def ask(self, body: object = CHAT, path: str = PATH, method: str = "POST") -> Answer:
        return await self._ask(self.started.listen, body, path, method)

    async def ops(self, path: str, body: object = None, method: str | None = None) -> Answer:
        return await self._ask(self.started.ops, body, path, method or ("GET" if body is None else "POST"))

    async def _ask(self, address: Address, body: object, path: str, method: str) -> Answer:
        client = Client(*await asyncio.open_connection(address.host, address.port))
        try:
            await client.send(body, path, method)
            return await client.answer()
        finally:
            client.close()


@dataclass
class Answer:
    status: int
    head: bytes
    chunks: list[bytes]

    @property
    def body(self) -> bytes:
        return b"".join(self.chunks)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> Any:
        """The code of an OpenAI error."""
        error = self.json["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert isinstance(error["message"], str)
        return error["code"]


@dataclass
class Client:
    """A raw HTTP/1.1 client; ``chunks`` are the HTTP chunks of a streamed answer as the server wrote them."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, body: object = CHAT, path: str = PATH, method: str = "POST") -> None:
        raw = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(raw)}\r\n\r\n"
        self.writer.write(head.encode() + raw)
        await self.writer.drain()

    async def head(self) -> bytes:
        return await self.reader.readuntil(b"\r\n\r\n")

    async def chunk(self) -> bytes:
        """The next HTTP chunk's data; b"" at the end of the body."""
        size = int(await self.reader.readuntil(b"\r\n"), 16)
        return (await self.reader.readexactly(size + 2))[:-2]

    async def answer(self) -> Answer:
        head = await self.head()
        lower = head.lower()
        if b"transfer-encoding: chunked" in lower:
            chunks = [chunk async for chunk in self._chunks()]
        else:
            length = next(
                int(line.split(b":")[1]) for line in lower.split(b"\r\n") if line.startswith(b"content-length")
            )
            chunks = [await self.reader.readexactly(length)]
        return Answer(int(head.split(b" ")[1]), head, chunks)

    async def _chunks(self) -> AsyncIterator[bytes]:
        while chunk := await self.chunk():
            yield chunk

    def close(self) -> None:
        self.writer.transport.abort()


@contextlib.asynccontextmanager
async def orchestrating(
    ctx: Iterable[Scripted] | Scripted,
    gen: Iterable[Scripted] | Scripted,
    policies: Iterable[str] = BUILTIN,
    ready: bool = True,
    **settings: Any,
) -> AsyncIterator[Orchestrator]:
    """An orchestrator in this loop, in front of ``ctx`` and ``gen``."""
    chosen = OrchestratorSettings(**({"engine": ENGINE} | settings))
    urls = [tuple(s.url for s in ([side] if isinstance(side, Scripted) else side)) for side in (ctx, gen)]
    arms = build_arms(policies, chosen.policy, usage_by_gen=chosen.usage_by == "gen")
    options = OrchestratorOptions(ProcessOptions(), chosen, urls[0], urls[1], arms)
    async with started(options.process, lambda runtime: build_orchestrator(options, runtime), grace_s=0.1) as running:
        if ready:
            await until(running.service.ready)
        orchestrator = Orchestrator(running)
        try:
            yield orchestrator
        finally:
            for client in orchestrator.clients:
                client.close()


async def until(condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
    """Wait for what no event tells; the bound is for the test that would otherwise hang."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)
