"""The short way out: straight to the socket while it takes all, to the transport what it does not."""

from __future__ import annotations

import asyncio
import socket

import pytest

from sim.gen_server.outlet import Outlet
from sim.service.wheel import TimerWheel
from tests.pure.fake_time import FakeLoop


class FakeTransport:
    """A transport over a real socket; it keeps what is written to it."""

    def __init__(self, sock):
        self.sock = sock
        self.waiting = b""
        self.closing = False

    def is_closing(self):
        return self.closing

    def get_write_buffer_size(self):
        return len(self.waiting)

    def write(self, data):
        self.waiting += data

    def get_extra_info(self, name):
        return {"socket": self.sock}[name]


class FakeResponse:
    """The part of an aiohttp response that an outlet uses."""

    def __init__(self, chunked=True):
        self.headers = {"Transfer-Encoding": "chunked"} if chunked else {}

    async def prepare(self, request):
        pass

    async def write(self, data):
        pass


class FakeRequest:
    def __init__(self, transport):
        self.transport = transport


class Bench:
    def __init__(self, mine, split_at=0, chunked=True):
        loop = FakeLoop()
        self.transport = FakeTransport(mine)
        asyncio.run(self._attach(loop, split_at, chunked))

    async def _attach(self, loop, split_at, chunked):
        self.outlet = Outlet(asyncio.Future(), TimerWheel(loop, loop.clock), loop.clock, split_at)
        assert self.outlet.clear() is False  # nothing is attached
        self.outlet.write(b"first")
        await self.outlet.attach(FakeRequest(self.transport), FakeResponse(chunked))


@pytest.fixture
def pair():
    mine, peer = socket.socketpair()
    with mine, peer:
        mine.setblocking(False)
        peer.setblocking(False)
        yield mine, peer


def read_all(sock):
    data = b""
    while True:
        try:
            data += sock.recv(1 << 20)
        except BlockingIOError:
            return data


def test_what_the_socket_takes_is_there_at_once(pair):
    bench = Bench(pair[0])

    assert bench.outlet.clear() is True
    assert bench.outlet.send(b"1\r\nx\r\n") is True
    assert pair[1].recv(100) == b"1\r\nx\r\n"
    assert bench.transport.waiting == b""


def test_what_it_does_not_take_waits_in_the_transport_and_the_way_is_no_longer_clear(pair):
    bench = Bench(pair[0])
    chunks = [b"%06d" % number * 3_000 for number in range(1_000)]
    sent = next(number for number, chunk in enumerate(chunks) if not bench.outlet.send(chunk)) + 1

    assert bench.transport.waiting
    assert read_all(pair[1]) + bench.transport.waiting == b"".join(chunks[:sent])
    assert (bench.outlet.clear(), bench.outlet.gone) == (False, False)
    bench.transport.waiting = b""
    assert bench.outlet.clear() is True


def test_a_closing_transport_gets_nothing_since_its_descriptor_may_be_anothers_already(pair):
    bench = Bench(pair[0])
    bench.transport.closing = True

    assert bench.outlet.send(b"x") is False
    assert bench.outlet.gone is True
    assert (read_all(pair[1]), bench.transport.waiting) == (b"", b"")


def test_a_reset_connection_is_gone(pair):
    bench = Bench(pair[0])
    pair[1].close()

    assert bench.outlet.send(b"x") is False
    assert bench.outlet.gone is True


@pytest.mark.parametrize("how", [{"split_at": 3}, {"chunked": False}], ids=["cut writes", "no chunks"])
def test_writes_that_are_not_one_whole_chunk_never_go_the_short_way(pair, how):
    assert Bench(pair[0], **how).outlet.clear() is False


def test_a_closed_outlet_is_not_clear(pair):
    bench = Bench(pair[0])
    bench.outlet.close()

    assert bench.outlet.clear() is False
