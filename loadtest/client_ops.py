"""The load's operations port as a WSGI application, with what every server has on its own.

/metrics, /health, /admin/samples, and /admin/counters: all that client.json will say, of the streams in progress too.

WSGI, since Locust's process runs on gevent; who serves it is `locustfile`'s business.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from prometheus_client import CollectorRegistry, make_wsgi_app

from loadtest.load_view import LoadView
from sim.service.health import LoopHealth

__all__ = ["ROUTES", "ops_app"]

ROUTES = ("/metrics", "/health", "/admin/samples", "/admin/counters")

StartResponse = Callable[..., Any]
WsgiApp = Callable[[dict[str, Any], StartResponse], Iterable[bytes]]


def ops_app(registry: CollectorRegistry, health: LoopHealth, load: LoadView) -> WsgiApp:
    """The application; it may be mounted under any of its own paths."""
    metrics: WsgiApp = make_wsgi_app(registry)

    def app(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        path = (environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")).rstrip("/")
        if path == "/metrics":
            return metrics({**environ, "PATH_INFO": path}, start_response)
        if path == "/health":
            return _json(start_response, "200 OK", {"status": "ok"})
        if path == "/admin/samples":
            return _json(start_response, "200 OK", health.to_json())
        if path == "/admin/counters":
            return _json(start_response, "200 OK", _counters(load))
        message = f"no such path: {path}; there are {', '.join(ROUTES)}"
        error = {"message": message, "type": "invalid_request_error", "param": None, "code": "not_found"}
        return _json(start_response, "404 Not Found", {"error": error})

    return app


def _counters(load: LoadView) -> dict[str, Any]:
    counted, totals = load.recorder.to_json(), load.totals()
    counted["streams"]["live"] = load.live()
    return {**counted, "tokens": totals.tokens, "events": totals.events, **totals.by_kind, "bytes": totals.bytes}


def _json(start_response: StartResponse, status: str, value: object) -> Iterable[bytes]:
    body = json.dumps(value).encode()
    start_response(status, [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
    return [body]
