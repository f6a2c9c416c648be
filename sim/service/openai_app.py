"""The data port of every server: the OpenAI paths they share, each leading to one handler per server.

Errors, the body limit and the model list are the same everywhere and live here; what a completion is, is the
server's own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web

from sim.service.http_json import error_middleware, json_response

__all__ = ["ENDPOINTS", "MAX_BODY_BYTES", "data_app"]

ENDPOINTS = {"chat": "/v1/chat/completions", "completions": "/v1/completions"}

# Above the orchestrator's own default, since a gen request also carries the prompt's token ids.
MAX_BODY_BYTES = 64 << 20

Complete = Callable[[web.Request, str], Awaitable[web.StreamResponse]]


def data_app(complete: Complete, ready: Callable[[], bool], max_body_bytes: int = MAX_BODY_BYTES) -> web.Application:
    """An application whose completions go to ``complete(request, endpoint)``; /health is 503 until ``ready``."""
    app = web.Application(middlewares=[error_middleware], client_max_size=max_body_bytes)

    async def chat(request: web.Request) -> web.StreamResponse:
        return await complete(request, "chat")

    async def completions(request: web.Request) -> web.StreamResponse:
        return await complete(request, "completions")

    async def health(_request: web.Request) -> web.StreamResponse:
        return json_response({"status": "ok"}) if ready() else json_response({"status": "not ready"}, 503)

    async def models(_request: web.Request) -> web.StreamResponse:
        model = {"id": "sim", "object": "model", "created": 0, "owned_by": "disagg-sim"}
        return json_response({"object": "list", "data": [model]})

    app.router.add_post(ENDPOINTS["chat"], chat)
    app.router.add_post(ENDPOINTS["completions"], completions)
    app.router.add_get("/health", health)
    app.router.add_get("/v1/models", models)
    return app
