"""The life of a server process: listen on two ports, say so, serve until told to stop, stop within seconds.

Read it top to bottom: `run` is the process, `started` is the server inside a loop (tests use it as it is).
Connections are uvloop's and aiohttp's, with TCP_NODELAY set on accept; a handler is cancelled the moment its
client hangs up.  What is served is not here.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import json
import logging
import os
import resource
import signal
import socket
import stat
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from prometheus_client import CollectorRegistry
from prometheus_client.registry import Collector

from sim.service.config import Address, ProcessOptions
from sim.service.garbage import collect_old_when
from sim.service.health import LoopHealth
from sim.service.metrics import LoopHealthCollector
from sim.service.ops import ops_app
from sim.service.ticker import start_loop_health

__all__ = ["GRACE_S", "ListenError", "Runtime", "Service", "Started", "run", "started"]

GRACE_S = 1.0
"""How long live requests may go on after a stop; then their handlers are cancelled, within as long again."""

_BACKLOG = 4096  # thousands of streams may connect within one turn of the loop

log = logging.getLogger(__name__)


class ListenError(Exception):
    """An address that cannot be listened on."""


@dataclass(frozen=True, slots=True)
class Runtime:
    """What a service is built with: the loop, the clock of record and the process's loop health."""

    loop: asyncio.AbstractEventLoop
    clock: Callable[[], int]
    wall_clock: Callable[[], float]
    health: LoopHealth


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """What a server gives to be run.

    ``stopping`` is called when a stop begins, before live requests are waited for; ``close`` after them.
    ``idle`` says that nobody waits for anything, so that a full garbage collection may be made; None leaves those
    to CPython.
    """

    data: web.Application
    counters: Callable[[], Mapping[str, Any]]
    collectors: Sequence[Collector] = ()
    ops_routes: Sequence[web.AbstractRouteDef] = ()
    ready: Callable[[], bool] = lambda: True
    stopping: Callable[[], None] = lambda: None
    close: Callable[[], None] = lambda: None
    idle: Callable[[], bool] | None = None


@dataclass(frozen=True, slots=True)
class Started:
    """A server that listens: where, and what it runs."""

    listen: Address
    ops: Address
    service: Service


def run(server: str, process: ProcessOptions, build: Callable[[Runtime], Service]) -> int:
    """Serve what ``build`` makes until SIGTERM or SIGINT; the exit status.

    One line of JSON on stdout says when and where it listens; all else goes to the log on stderr.
    """
    logging.basicConfig(
        stream=sys.stderr, level=process.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    _raise_descriptor_limit()
    logging.getLogger("aiohttp.server").addFilter(_malformed_in_one_line)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(server, process, build))
    except ListenError as error:
        print(f"python -m sim.{server}: {error}", file=sys.stderr)
        return 2
    return 0


async def _serve(server: str, process: ProcessOptions, build: Callable[[Runtime], Service]) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with started(process, build) as running:
        ready = {
            "ready": True,
            "server": server.removesuffix("_server"),
            "listen": running.listen.url,
            "ops": running.ops.url,
            "pid": os.getpid(),
        }
        # What start-up made lives as long as the process: no collection need walk it and pause the loop.
        gc.collect()
        gc.freeze()
        if running.service.idle is not None:
            collect_old_when(loop, running.service.idle)
        print(json.dumps(ready), flush=True)
        await stop.wait()
        log.info("stopping")


@contextlib.asynccontextmanager
async def started(
    process: ProcessOptions, build: Callable[[Runtime], Service], *, grace_s: float = GRACE_S
) -> AsyncIterator[Started]:
    """A server on the running loop, for as long as the context lasts.  ListenError if a port is taken."""
    loop = asyncio.get_running_loop()
    health, stop_health = start_loop_health(loop, tick_ns=process.tick_ns)
    registry = CollectorRegistry()
    registry.register(LoopHealthCollector(health))
    try:
        service = build(Runtime(loop, time.monotonic_ns, time.time, health))
        for collector in service.collectors:
            registry.register(collector)
        ops = ops_app(registry, health, service.counters, service.ready, service.ops_routes)
        # The operations port opens first and closes last, so that a stop can be watched.
        async with (
            _listening(ops, process.ops, 0.1) as ops_address,
            _listening(service.data, process.listen, grace_s, reuse_port=process.reuse_port) as address,
        ):
            try:
                yield Started(address, ops_address, service)
            finally:
                service.stopping()
        service.close()
    finally:
        stop_health()


@contextlib.asynccontextmanager
async def _listening(
    app: web.Application, address: Address, grace_s: float, *, reuse_port: bool = False
) -> AsyncIterator[Address]:
    """``app`` served on ``address``; gives the address with its actual port."""
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=grace_s)
    await runner.setup()
    try:
        if address.path is None:
            sock = _bound_socket(address, reuse_port=reuse_port)
            await web.SockSite(runner, sock, backlog=_BACKLOG).start()
            yield Address(address.host, sock.getsockname()[1])
            return
        _free_socket_path(address)
        await web.UnixSite(runner, address.path, backlog=_BACKLOG).start()
        try:
            yield address
        finally:
            _remove(address.path)
    finally:
        await runner.cleanup()


def _bound_socket(address: Address, *, reuse_port: bool) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    where = (address.host, address.port)
    try:
        return socket.create_server(where, family=family, backlog=_BACKLOG, reuse_port=reuse_port)
    except OSError as error:
        raise _listen_error(address, error) from None


def _free_socket_path(address: Address) -> None:
    """Make sure that nobody listens on the path, and clear what a dead server left there."""
    assert address.path is not None
    path = Path(address.path)
    try:
        if not stat.S_ISSOCK(path.stat().st_mode):
            raise ListenError(f"cannot listen on {address}: the path is in use by something that is no socket")
        with socket.socket(socket.AF_UNIX) as probe:
            probe.connect(address.path)
    except FileNotFoundError:
        return
    except ConnectionRefusedError:
        path.unlink()
        return
    except OSError as error:
        raise _listen_error(address, error) from None
    raise ListenError(f"cannot listen on {address}: address in use")


def _raise_descriptor_limit() -> None:
    """Let the process open all the files it may: a relay holds two for each stream, and 1024 are soon used up."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:
        log.warning("the limit of open files stays as it is: %s", error)


def _malformed_in_one_line(record: logging.LogRecord) -> bool:
    """Log what is not HTTP as the client's mistake, not as a failure of ours with its traceback."""
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, HttpProcessingError):
        reason = " ".join(error.message.split())
        record.msg, record.args = "malformed request: %s", (reason,)
        record.exc_info = None
        record.levelno, record.levelname = logging.WARNING, "WARNING"
    return True


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        Path(path).unlink()


def _listen_error(address: Address, error: OSError) -> ListenError:
    taken = error.errno == errno.EADDRINUSE
    reason = "address in use" if taken else (error.strerror or str(error)).lower()
    return ListenError(f"cannot listen on {address}: {reason}")
