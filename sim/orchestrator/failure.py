"""What a client is told when its request cannot be served: status and message before the first byte, an event after.

Every failure has a reason, a word of `counters.FAILURES` or `counters.STREAM_ENDS`, which is also the ``code``
that the client sees.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec
from aiohttp import web

from sim.core.bodies import BAD_JSON
from sim.core.requests import openai_error
from sim.service.http_json import error_response

__all__ = ["RequestFailedError", "error_event", "status_failure"]

_LONGEST_TEXT = 500  # characters of an upstream's answer that is no error object


class RequestFailedError(Exception):
    """No answer: HTTP ``status`` for the client, ``reason`` to count it by, and whether another try may help."""

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        *,
        kind: str = "server_error",
        param: str | None = None,
        code: str | None = None,
        retryable: bool = False,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.kind = kind
        self.param = param
        self.code = code or reason
        self.retryable = retryable

    def response(self) -> web.Response:
        """The answer in OpenAI's error shape."""
        return error_response(self.status, str(self), kind=self.kind, param=self.param, code=self.code)


def status_failure(role: str, url: str, status: int, raw: bytes) -> RequestFailedError:
    """What an upstream's answer other than 200 means: a 4xx is the client's, a 5xx is worth another try."""
    error = _error_of(raw)
    message = str(error["message"])
    if 400 <= status < 500:
        return RequestFailedError(
            status,
            f"{role}_refused",
            message or f"{role} server {url} answered {status}",
            kind=_text(error.get("type")) or "invalid_request_error",
            param=_text(error.get("param")),
            code=_text(error.get("code")),
        )
    told = f"{role} server {url} answered {status}" + (f": {message}" if message else "")
    if status >= 500:
        # 503 and 504 keep their meaning for the client's own retries; every other 5xx is a bad gateway.
        return RequestFailedError(status if status in (503, 504) else 502, f"{role}_status", told, retryable=True)
    return RequestFailedError(502, "bad_answer", told)


def error_event(reason: str, message: str) -> bytes:
    """The last event of a stream that cannot be completed; no ``[DONE]`` follows it."""
    return b"data: %b\n\n" % json.dumps(openai_error(message, "server_error", code=reason)).encode()


def _error_of(raw: bytes) -> Mapping[str, Any]:
    """The error object inside an upstream's body, in any of the shapes that servers use; it has a message."""
    try:
        body = msgspec.json.decode(raw)
    except BAD_JSON:
        return {"message": raw[:_LONGEST_TEXT].decode(errors="replace").strip()}
    error = body.get("error", body) if isinstance(body, Mapping) else body
    if isinstance(error, Mapping) and isinstance(error.get("message"), str):
        return error
    return {"message": error if isinstance(error, str) else ""}


def _text(value: object) -> str | None:
    return None if value is None else str(value)
