"""One gen answer, given in reads to either relay engine over transports that only remember: no sockets, no waiting.

What is real: aiohttp's handler and parser of the answer, the relay, its counters, aiohttp's writer of the client's
answer.  A read is delivered when the relay has dealt with the one before, so both engines see the same reads.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from aiohttp import ClientError, ClientResponse, web
from aiohttp.http import HttpVersion11, RawRequestMessage, StreamWriter
from aiohttp.streams import EMPTY_PAYLOAD
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from loadtest.http_stream import ResponseStream
from sim.core.settings import OrchestratorSettings
from sim.core.usage import Usage
from sim.orchestrator.arms import Arms, build_arms
from sim.orchestrator.counters import Counters
from sim.orchestrator.frames import Frames
from sim.orchestrator.inside_aiohttp import TakeoverHandler
from sim.orchestrator.relay import StreamRelay
from sim.orchestrator.watch import StallWatch

CTX_USAGE = Usage(100, 25)
REQUEST = RawRequestMessage(
    "POST", "/", HttpVersion11, CIMultiDictProxy(CIMultiDict()), (), False, None, False, False, URL("/")
)


class MemoryTransport(asyncio.Transport):
    """Remembers what is written; reads are delivered by the test."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.protocol: Any = None
        self.closing = False
        self.paused = False

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol

    def get_protocol(self) -> Any:
        return self.protocol

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))

    def writelines(self, pieces: Any) -> None:
        self.written.append(b"".join(pieces))

    def get_write_buffer_size(self) -> int:
        return 0

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return 16 << 10, 64 << 10

    def is_closing(self) -> bool:
        return self.closing

    def is_reading(self) -> bool:
        return not self.paused

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def close(self) -> None:
        if not self.closing:
            self.closing = True
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)

    abort = close


@dataclass(frozen=True)
class Case:
    """A gen server's answer as it is read: ``head`` and the reads of its body, policy switches between them."""

    head: bytes
    reads: tuple[bytes, ...]
    policy: str
    switches: tuple[tuple[int, str], ...] = ()  # before the read of that number, to that policy
    closes: bool = True  # gen closes the connection behind the last read
    max_event_bytes: int = 2048


@dataclass(frozen=True)
class Outcome:
    """What became of it."""

    body: bytes
    ended: dict[str, int]
    counts: dict[str, Any]
    policies: dict[str, Any]
    connection_kept: bool


async def relayed(case: Case, engine: str, policies: tuple[str, ...], frames: Frames) -> Outcome | None:
    """Run ``case`` under ``engine``, with what is known of gen's ``frames``; None if its answer does not even begin."""
    loop = asyncio.get_running_loop()
    settings = OrchestratorSettings(engine=engine, max_event_bytes=case.max_event_bytes)
    arms = build_arms(policies, case.policy, usage_by_gen=True)
    counters = Counters(arms.counters)
    watch = StallWatch(loop, first_byte_timeout_s=3600, stall_timeout_s=3600)
    transport, handler = MemoryTransport(), TakeoverHandler(loop)
    transport.set_protocol(handler)
    handler.connection_made(transport)
    handler.set_response_params(read_until_eof=True)
    try:
        response, connection = await _answer(loop, handler, case.head)
    except ClientError:
        return None
    exchange: Any = SimpleNamespace(
        response=response, upstream=SimpleNamespace(url="http://gen", frames=frames), close=response.close
    )
    client, request = _client(loop)
    relay = StreamRelay(settings, counters, watch)
    task = asyncio.create_task(relay.run(request, exchange, arms.open(CTX_USAGE)))
    await _settle()
    await _deliver(case, arms, transport)
    if case.closes and not transport.closing:
        transport.closing = True
        transport.protocol.connection_lost(None)
    with contextlib.suppress(ConnectionError):
        await task
    watch.close()
    answer = ResponseStream()
    body = b"".join(answer.feed(data) for data in client.written)
    assert answer.complete
    counts = counters.to_json()
    counts.pop("reads")  # the parser of engine `stream` gives what a read brought in one piece or in several
    ended = {reason: n for reason, n in counts["streams"]["ended"].items() if n}
    kept = connection.released and not transport.closing
    return Outcome(body, ended, counts, arms.to_json(), kept)


async def _answer(
    loop: asyncio.AbstractEventLoop, handler: TakeoverHandler, head: bytes
) -> tuple[ClientResponse, SimpleNamespace]:
    """The answer whose head has come, and the connection that it holds until it is over."""
    handler.data_received(head)
    connection = SimpleNamespace(protocol=handler, released=False)

    def release() -> None:
        connection.released = not handler.should_close

    connection.release = release
    connection.close = handler.close
    response = ClientResponse(
        "POST",
        URL("http://gen/"),
        writer=None,
        continue100=None,
        timer=None,
        request_info=None,
        traces=[],
        loop=loop,
        session=None,
        stream_writer=SimpleNamespace(output_size=0),
    )
    await response.start(connection)
    return response, connection


def _client(loop: asyncio.AbstractEventLoop) -> tuple[MemoryTransport, web.BaseRequest]:
    transport = MemoryTransport()
    transport.set_protocol(asyncio.Protocol())
    protocol: Any = SimpleNamespace(
        transport=transport, _paused=False, _drain_helper=_settle, ssl_context=None, peername=None, sockname=None
    )
    task: Any = asyncio.current_task()
    return transport, web.BaseRequest(REQUEST, EMPTY_PAYLOAD, protocol, StreamWriter(protocol, loop), task, loop)


async def _deliver(case: Case, arms: Arms, transport: MemoryTransport) -> None:
    switches = dict(case.switches)
    for number, read in enumerate(case.reads):
        if number in switches:
            arms.active = arms.index_of(switches[number])
        if transport.closing:
            return
        transport.protocol.data_received(read)
        await _settle()


async def _settle() -> None:
    """Let the relay do all that it can do now: its longest way from a read to a write is a few turns of the loop."""
    for _ in range(6):
        await asyncio.sleep(0)
