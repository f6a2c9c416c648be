"""A relay in the shape of vLLM's toy proxy for disaggregated prefill, written for the bench.

FastAPI and uvicorn (uvloop, httptools) towards the client, httpx towards gen, without limits: the body parsed and
written again, ``aiter_bytes`` into a ``StreamingResponse``.  One hop: the request to prefill is left out.
"""

from __future__ import annotations

import argparse
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import Response, StreamingResponse


class _Proxy:
    def __init__(self, gen_url: str) -> None:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        self._client = httpx.AsyncClient(timeout=None, base_url=f"{gen_url}/v1", limits=limits)  # noqa: S113

    @asynccontextmanager
    async def lifespan(self, _app: FastAPI) -> AsyncIterator[None]:
        async with self._client:
            yield

    async def chat(self, request: Request) -> Response:
        reply = self._stream("/chat/completions", await request.json(), str(uuid.uuid4()))
        return StreamingResponse(reply, media_type="application/json")

    async def _stream(self, path: str, body: Any, request_id: str) -> AsyncIterator[bytes]:
        headers = {"X-Request-Id": request_id}
        async with self._client.stream("POST", path, json=body, headers=headers) as response:
            response.raise_for_status()
            async for piece in response.aiter_bytes():
                yield piece


async def _health() -> Response:
    return Response()


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--gen-url", required=True)
    options = parser.parse_args()
    proxy = _Proxy(options.gen_url)
    app = FastAPI(lifespan=proxy.lifespan)
    app.add_api_route("/health", _health)
    app.add_api_route("/v1/chat/completions", proxy.chat, methods=["POST"])
    uvicorn.run(
        app, host="127.0.0.1", port=options.port, loop="uvloop", http="httptools", log_level="warning",
        access_log=False, backlog=4096, timeout_graceful_shutdown=1,
    )  # fmt: skip


if __name__ == "__main__":
    main()
