"""The ctx and gen servers in this process, on uvloop as in production, and raw connections to them."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvloop

from sim.core.settings import CtxSettings, GenSettings
from sim.ctx_server.app import build as build_ctx
from sim.gen_server.app import build as build_gen
from sim.service.config import Address, ProcessOptions
from sim.service.server import Started, started
from tests.wire.scripted import Answer, Client

CHAT_PATH = "/v1/chat/completions"
TEXT_PATH = "/v1/completions"


def on_uvloop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run an async test on a loop of the kind that servers run on: asyncio's own differs in what is tested here."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(test(*args, **kwargs))

    return run


@dataclass
class Fake:
    """A running server and the ways into it."""

    started: Started
    clients: list[Client] = field(default_factory=list)

    @property
    def counters(self) -> Any:
        return self.started.service.counters()

    async def client(self) -> Client:
        """A connection, closed at the latest when the server is."""
        client = Client(*await _connect(self.started.listen))
        self.clients.append(client)
        return client

    async def ask(self, body: object, path: str = CHAT_PATH, method: str = "POST") -> Answer:
        client = await self.client()
        await client.send(body, path, method)
        return await client.answer()

    async def ops(self, path: str, method: str = "GET", body: object = None) -> Answer:
        client = Client(*await _connect(self.started.ops))
        try:
            await client.send(body, path, method)
            return await client.answer()
        finally:
            client.close()

    async def metrics(self) -> dict[str, float]:
        """Every series of /metrics by its name and labels as written there."""
        text = (await self.ops("/metrics")).body.decode()
        lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
        return {series: float(value) for series, _, value in lines}


@contextlib.asynccontextmanager
async def gen_server(path: Path | None = None, grace_s: float = 0.05, **settings: Any) -> AsyncIterator[Fake]:
    """A gen server; it emits fast and transfers in no time unless told otherwise."""
    chosen = GenSettings(**({"itl_ms": 1, "transfer_base_ms": 0} | settings))
    async with _fake(lambda runtime: build_gen(runtime, chosen), path, grace_s) as fake:
        yield fake


@contextlib.asynccontextmanager
async def ctx_server(path: Path | None = None, grace_s: float = 0.05, **settings: Any) -> AsyncIterator[Fake]:
    """A ctx server; a prefill takes no time unless told otherwise."""
    chosen = CtxSettings(**({"overhead_ms": 0, "prefill_us_per_token": 0} | settings))
    async with _fake(lambda runtime: build_ctx(runtime, chosen), path, grace_s) as fake:
        yield fake


@contextlib.asynccontextmanager
async def _fake(build: Any, path: Path | None, grace_s: float) -> AsyncIterator[Fake]:
    listen = Address() if path is None else Address(path=str(path))
    async with started(ProcessOptions(listen), build, grace_s=grace_s) as running:
        fake = Fake(running)
        try:
            yield fake
        finally:
            for client in fake.clients:
                client.close()


async def _connect(address: Address) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if address.path is not None:
        return await asyncio.open_unix_connection(address.path)
    return await asyncio.open_connection(address.host, address.port)
