"""JSON over HTTP: bodies in, answers out, and every error in the shape that OpenAI's clients understand.

A client's mistake is a 4xx that says what is wrong and where; a mistake of ours is a 500 whose traceback goes
to the log and nowhere else.  What breaks HTTP itself (a malformed head, bad chunk coding) never gets here:
aiohttp answers it in plain text.  Integers of any size pass exactly: request ids must never become floats.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import msgspec
from aiohttp import web

from sim.core.bodies import BAD_JSON, read_body
from sim.core.requests import RequestError, openai_error

__all__ = ["ApiError", "error_middleware", "error_response", "json_response", "read_json", "read_json_body"]

log = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ApiError(Exception):
    """An answer that is an error: HTTP ``status`` and the fields of OpenAI's error object."""

    def __init__(
        self, status: int, message: str, *, kind: str = "invalid_request_error", code: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.code = code


def json_response(value: object, status: int = 200) -> web.Response:
    """``value`` as a JSON answer."""
    return web.Response(body=msgspec.json.encode(value), status=status, content_type="application/json")


def error_response(
    status: int, message: str, *, kind: str = "invalid_request_error", param: str | None = None, code: str | None = None
) -> web.Response:
    """An error answer in OpenAI's shape."""
    return json_response(openai_error(message, kind, param, code), status)


async def read_json(request: web.Request) -> object:
    """The decoded body.  ApiError 400 if it is not JSON, 413 if it is over the application's limit."""
    return _as_json(await _read(request), msgspec.json.decode)


async def read_json_body(request: web.Request) -> object:
    """The body cut into its members (`sim.core.bodies`).  ApiError as `read_json`."""
    return _as_json(await _read(request), read_body)


async def _read(request: web.Request) -> bytes:
    # Not by `request.read`: the request would hold its body for as long as its answer takes, a stream's whole life.
    limit, size = request.client_max_size, 0
    pieces = []
    try:
        while piece := await request.content.readany():
            size += len(piece)
            if 0 < limit < size:
                raise ApiError(413, f"the body is too large: more than {limit} bytes", code="body_too_large")
            pieces.append(piece)
    except web.RequestPayloadError as error:
        raise ApiError(400, f"the body could not be read: {error}") from None
    return b"".join(pieces)


def _as_json(raw: bytes, decode: Callable[[bytes], object]) -> object:
    try:
        return decode(raw)
    except BAD_JSON as error:
        raise ApiError(400, f"the body is not JSON: {error}", code="bad_json") from None


@web.middleware
async def error_middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn whatever a handler raises into an error answer, as long as no byte of another has been sent."""
    try:
        return await handler(request)
    except ApiError as error:
        return error_response(error.status, str(error), kind=error.kind, code=error.code)
    except RequestError as error:
        return error_response(400, str(error), param=error.param)
    except web.HTTPNotFound:
        return error_response(404, f"unknown path {request.path}", code="unknown_path")
    except web.HTTPMethodNotAllowed as error:
        allowed = ", ".join(sorted(error.allowed_methods))
        response = error_response(
            405, f"{request.method} is not allowed on {request.path}; allowed: {allowed}", code="method_not_allowed"
        )
        response.headers["Allow"] = allowed
        return response
    except web.HTTPException as error:
        return error_response(error.status, error.text or error.reason)
    except Exception as error:
        if isinstance(error, ConnectionError) and (request.transport is None or request.transport.is_closing()):
            # The client hung up: end as aiohttp ends a handler then, without an answer and without a log entry.
            raise asyncio.CancelledError from None
        log.exception("%s %s failed", request.method, request.path)
        if request.writer.output_size:
            raise  # part of an answer is out: all that is left is to cut the connection
        return error_response(500, "internal error", kind="server_error")
