"""A fake generation server in ordinary aiohttp style: for each token a sleep, a ``json.dumps``, a ``write``.

Its chunks are of about 250 bytes, as OpenAI's are; it keeps each stream's rate by sleeping until a token is due.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import time

import uvloop
from aiohttp import web

_TOK_S = web.AppKey("tok_s", float)
_NUMBERS = itertools.count(1)


async def _health(_request: web.Request) -> web.Response:
    return web.json_response({"status": "ok"})


async def _models(_request: web.Request) -> web.Response:
    return web.json_response({"object": "list", "data": [{"id": "sim", "object": "model", "created": 0}]})


async def _chat(request: web.Request) -> web.StreamResponse:
    body = await request.json()
    tokens = int(body.get("max_tokens") or body.get("max_completion_tokens") or 128)
    chunk = {
        "id": f"chatcmpl-{next(_NUMBERS):010d}",
        "object": "chat.completion.chunk",
        "created": int(time.time()),
        "model": body.get("model", "sim"),
        "system_fingerprint": "fp_0123456789",
        "choices": [],
        "usage": None,
    }
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
    await response.prepare(request)
    step_s = 1 / request.app[_TOK_S]
    due_s = time.monotonic()
    with contextlib.suppress(ConnectionError):
        for number in range(tokens):
            finish = "length" if number == tokens - 1 else None
            delta = {"content": f" {number % 1000}"}
            chunk["choices"] = [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]
            await response.write(f"data: {json.dumps(chunk)}\n\n".encode())
            due_s += step_s
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
        await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
    return response


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--tok-s", type=float, required=True)
    options = parser.parse_args()
    app = web.Application()
    app[_TOK_S] = options.tok_s
    app.add_routes(
        [web.get("/health", _health), web.get("/v1/models", _models), web.post("/v1/chat/completions", _chat)]
    )
    uvloop.install()
    web.run_app(
        app, host="127.0.0.1", port=options.port, access_log=None, print=None, backlog=4096,
        shutdown_timeout=0.1, handler_cancellation=True,
    )  # fmt: skip


if __name__ == "__main__":
    main()
