"""One ctx or gen server as the orchestrator sees it: its connections, what it owes, whether it is ready.

An exchange counts as outstanding from before its request is sent until it is closed, and closing one whose
body was not read to the end closes the connection: that is how a server learns that nobody listens any more.
Which server is chosen is `routing`; what is asked of it is `flow`.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
from collections.abc import Iterator
from typing import Any

import aiohttp
from aiohttp.http import HttpProcessingError
from yarl import URL

from sim.orchestrator import inside_aiohttp
from sim.orchestrator.failure import RequestFailedError
from sim.orchestrator.frames import Frames
from sim.orchestrator.inside_aiohttp import LeanPost
from sim.service.openai_app import ENDPOINTS

__all__ = ["BROKEN", "Exchange", "Upstream", "parse_url"]

KEEPALIVE_S = 10.0
"""Idle connections are let go well before a server's own limit, so that few requests meet a closing one."""
CONNECT_S = 10.0
HEALTH_S = 5.0
_HEADERS = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
_BYTES_SENT_AS_THEY_ARE = 1 << 20  # aiohttp warns about more; a file-like body is sent in pieces

BROKEN = (aiohttp.ClientError, HttpProcessingError, OSError)
"""What a connection to an upstream raises when it breaks; TimeoutError is an OSError too, so test it first."""


def parse_url(text: str) -> tuple[URL, str | None]:
    """(base URL, Unix socket path or None) of "http://HOST:PORT" or "unix:PATH"; ValueError says what is wrong."""
    if text.startswith("unix:"):
        if not (path := text[5:]):
            raise ValueError(f"{text!r} has no path; give unix:PATH")
        return URL("http://localhost"), path
    try:
        url = URL(text)
        _ = url.port
    except ValueError as error:
        raise ValueError(f"{text!r} is not a URL: {error}") from None
    if url.scheme not in ("http", "https") or not url.host:
        raise ValueError(f"{text!r} is not http://HOST:PORT, https://HOST:PORT or unix:PATH")
    return url, None


class Exchange:
    """One answer being received: status and headers are here, the body is still to be read."""

    __slots__ = ("_open", "response", "upstream")

    def __init__(self, upstream: Upstream, response: aiohttp.ClientResponse) -> None:
        self.upstream = upstream
        self.response = response
        self._open = True

    async def read(self, timeout_s: float) -> bytes:
        """The whole body.  RequestFailedError if it does not come, or not in time."""
        with self.upstream.failures(timeout_s):
            if self.response.content.is_eof():
                return await self.response.read()  # it is all here: nothing to wait for
            async with asyncio.timeout(timeout_s):
                return await self.response.read()

    def close(self) -> None:
        """No longer outstanding.  Unless its body was read to the end, the connection is closed at once."""
        if self._open:
            self._open = False
            self.upstream.outstanding -= 1
            self.response.close()


class Upstream:
    """A server by its URL.  ``open`` and ``close`` it on the loop; ``problem`` says why it is not ready.

    Its connections can be taken over in mid-answer (`inside_aiohttp`) if ``spliced`` says so; ``frames`` is what the
    engine that does so has seen of this server's chunk framing.
    """

    def __init__(self, role: str, url: str, *, spliced: bool = False) -> None:
        self.role = role
        self.url = url
        self.frames = Frames()
        self._spliced = spliced
        self.outstanding = 0
        self.ready = False
        self.problem = "not asked yet"
        base, self._socket_path = parse_url(url)
        self._health = base.joinpath("health")
        self._endpoints = {name: base.joinpath(path[1:]) for name, path in ENDPOINTS.items()}
        self._session: aiohttp.ClientSession | None = None
        self._lean: dict[str, LeanPost] = {}

    def open(self) -> None:
        """Make the session; connections come with the requests, as many as there are requests at a time."""
        # aiohttp's default of 100 connections would cap the streams.
        options: dict[str, Any] = {"limit": 0, "keepalive_timeout": KEEPALIVE_S}
        connector: aiohttp.BaseConnector
        if self._socket_path is not None:
            connector = inside_aiohttp.unix_connector(self._socket_path, spliced=self._spliced, **options)
        else:
            connector = inside_aiohttp.tcp_connector(spliced=self._spliced, **options)
        self._session = aiohttp.ClientSession(
            connector=connector,
            # No read timeout of aiohttp's: it re-arms a timer on every read.  `StallWatch` costs nothing there.
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
            headers=_HEADERS,
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        if self._health.user is None:  # credentials are put into headers by aiohttp
            self._lean = {name: LeanPost(self._session, url, _HEADERS) for name, url in self._endpoints.items()}

    async def close(self) -> None:
        """Close the session and its connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def post(self, endpoint: str, body: bytes, timeout_s: float) -> Exchange:
        """Send a request; the exchange once the answer's head is here.  RequestFailedError if it does not come."""
        assert self._session is not None
        self.outstanding += 1
        try:
            with self.failures(timeout_s):
                async with asyncio.timeout(timeout_s):
                    response = await self._send(endpoint, body)
        except BaseException:
            self.outstanding -= 1
            raise
        return Exchange(self, response)

    async def _send(self, endpoint: str, body: bytes) -> aiohttp.ClientResponse:
        if len(body) <= _BYTES_SENT_AS_THEY_ARE and (lean := self._lean.get(endpoint)) is not None:
            return await lean.send(body)
        assert self._session is not None
        data = body if len(body) <= _BYTES_SENT_AS_THEY_ARE else io.BytesIO(body)
        return await self._session.post(self._endpoints[endpoint], data=data, allow_redirects=False)

    @contextlib.contextmanager
    def failures(self, timeout_s: float) -> Iterator[None]:
        """Turn what breaks while waiting for this server into a RequestFailedError."""
        try:
            yield
        except aiohttp.ConnectionTimeoutError:
            text = f"{self.role} server {self.url} cannot be reached: no connection within {CONNECT_S:g} s"
            raise RequestFailedError(502, f"{self.role}_unreachable", text, retryable=True) from None
        except TimeoutError:
            # Final: the work may still be going on there, and the client has waited long enough.
            text = f"{self.role} server {self.url} did not answer within {timeout_s:g} s"
            raise RequestFailedError(504, f"{self.role}_timeout", text) from None
        except BROKEN as error:
            text = f"{self.role} server {self.url} cannot be reached: {error or type(error).__name__}"
            raise RequestFailedError(502, f"{self.role}_unreachable", text, retryable=True) from error

    async def poll(self) -> None:
        """Ask /health once and note the answer."""
        assert self._session is not None
        try:
            async with asyncio.timeout(HEALTH_S):
                response = await self._session.get(self._health, allow_redirects=False)
                async with response:
                    await response.read()
        except TimeoutError:
            self.ready, self.problem = False, f"no answer to /health within {HEALTH_S:g} s"
        except BROKEN as error:
            self.ready, self.problem = False, str(error) or type(error).__name__
        else:
            self.ready = response.status == 200
            self.problem = "" if self.ready else f"/health answered {response.status}"

    def to_json(self) -> dict[str, object]:
        """Its row on the admin pages."""
        return {
            "url": self.url,
            "role": self.role,
            "outstanding": self.outstanding,
            "ready": self.ready,
            "problem": self.problem,
        }
