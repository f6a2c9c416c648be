"""A relay in the shape of TensorRT-LLM's disaggregated server, written for the bench: what costs per chunk there.

FastAPI and uvicorn (uvloop, httptools) towards the client, aiohttp towards gen; a reply passes through generator in
generator over ``content.iter_any()``, with a Prometheus histogram observed for each piece and a ``sleep(0)`` after
it, into a ``StreamingResponse``.  One hop, the body as it came: the hand-off from ctx and the parsing of requests
are per request and left out.
"""

from __future__ import annotations

import argparse
import time
from asyncio import sleep
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import uvicorn
from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import Response, StreamingResponse
from prometheus_client import CollectorRegistry, Histogram

_BUCKETS = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class _GenClient:
    """Towards one gen server: the innermost generator."""

    def __init__(self, url: str) -> None:
        registry = CollectorRegistry()
        self.first_token_s = Histogram("gen_first_token_latency_seconds", "first", buckets=_BUCKETS, registry=registry)
        self.per_token_s = Histogram("gen_per_token_latency_seconds", "each", buckets=_BUCKETS, registry=registry)
        self.complete_s = Histogram("gen_complete_latency_seconds", "all", buckets=_BUCKETS, registry=registry)
        self._url = url
        connector = aiohttp.TCPConnector(limit=0, limit_per_host=0, keepalive_timeout=1)
        self._session = aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None))

    async def stream(self, body: bytes) -> AsyncIterator[bytes]:
        started_s = last_s = time.monotonic()
        headers = {"Content-Type": "application/json"}
        async with self._session.post(self._url, data=body, headers=headers) as response:
            response.raise_for_status()
            first = True
            async for piece in response.content.iter_any():
                now_s = time.monotonic()
                (self.first_token_s if first else self.per_token_s).observe(now_s - last_s)
                first, last_s = False, now_s
                yield piece
                await sleep(0)
        self.complete_s.observe(time.monotonic() - started_s)

    async def close(self) -> None:
        await self._session.close()


class _Service:
    """What decides where a request goes: the middle generator."""

    def __init__(self, gen_url: str) -> None:
        self._gen_url = gen_url
        self._gen: _GenClient | None = None

    @asynccontextmanager
    async def lifespan(self, _app: FastAPI) -> AsyncIterator[None]:
        self._gen = _GenClient(self._gen_url)
        try:
            yield
        finally:
            await self._gen.close()

    async def chat(self, request: Request) -> Response:
        reply = self._reply(await request.body())
        try:
            return StreamingResponse(self._wrapped(reply), media_type="text/event-stream")
        except ValueError as error:
            raise HTTPException(500, f"Internal server error {error}") from error

    async def _reply(self, body: bytes) -> AsyncIterator[bytes]:
        assert self._gen is not None
        async for piece in self._gen.stream(body):
            yield piece

    async def _wrapped(self, reply: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """The outermost: where the server has its own look at each piece."""
        async for piece in reply:
            yield piece


async def _health() -> Response:
    return Response()


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--gen-url", required=True)
    options = parser.parse_args()
    service = _Service(f"{options.gen_url}/v1/chat/completions")
    app = FastAPI(lifespan=service.lifespan)
    app.add_api_route("/health", _health)
    app.add_api_route("/v1/chat/completions", service.chat, methods=["POST"])
    uvicorn.run(
        app, host="127.0.0.1", port=options.port, loop="uvloop", http="httptools", log_level="warning",
        access_log=False, backlog=4096, timeout_graceful_shutdown=1,
    )  # fmt: skip


if __name__ == "__main__":
    main()
