"""The operations port of every server: metrics, health samples and exact counters, apart from the data port.

Prometheus and people read /metrics; experiments read /admin/*, whose numbers are exact and untouched by any
bucket.  A server may add routes of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.aiohttp import make_aiohttp_handler

from sim.service.health import LoopHealth
from sim.service.http_json import error_middleware, json_response

__all__ = ["ops_app"]


def ops_app(
    registry: CollectorRegistry,
    health: LoopHealth,
    counters: Callable[[], Mapping[str, Any]],
    ready: Callable[[], bool],
    routes: Iterable[web.AbstractRouteDef] = (),
) -> web.Application:
    """GET /metrics, /health, /admin/samples, /admin/counters, and ``routes``."""

    async def health_state(_request: web.Request) -> web.StreamResponse:
        return json_response({"status": "ok"}) if ready() else json_response({"status": "not ready"}, 503)

    async def samples(_request: web.Request) -> web.StreamResponse:
        return json_response(health.to_json())

    async def exact_counters(_request: web.Request) -> web.StreamResponse:
        return json_response(counters())

    app = web.Application(middlewares=[error_middleware])
    app.router.add_get("/metrics", make_aiohttp_handler(registry))
    app.router.add_get("/health", health_state)
    app.router.add_get("/admin/samples", samples)
    app.router.add_get("/admin/counters", exact_counters)
    app.router.add_routes(routes)
    return app
