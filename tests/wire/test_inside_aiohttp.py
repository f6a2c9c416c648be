"""What `inside_aiohttp` uses of aiohttp beyond its public interface still is what it was, item by item."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
from yarl import URL

from sim.orchestrator.inside_aiohttp import LeanPost, TakeoverHandler, take_over, tcp_connector
from tests.wire.fakes import on_uvloop
from tests.wire.scripted import answering, closing, scripted, streaming, until

HEADERS = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
PATH = "/v1/chat/completions"


def headers_of(received):
    return sorted(line for line in received.head.split(b"\r\n") if line)


@on_uvloop
async def test_the_same_request_goes_out_as_by_an_ordinary_post_on_the_same_connection():
    async with scripted(answering(200, {"a": 1})) as server, aiohttp.ClientSession(headers=HEADERS) as session:
        url = URL(server.url + PATH)
        lean = LeanPost(session, url, HEADERS)
        for body in (b'{"x": 1}', b"{}"):
            async with session.post(url, data=body) as ordinary:
                expected = (ordinary.status, ordinary.content_type, dict(ordinary.headers), await ordinary.read())
            response = await lean.send(body)
            got = (response.status, response.content_type, dict(response.headers), await response.read())
            assert got == expected
        by_session, by_lean = server.requests[0::2], server.requests[1::2]
        assert list(map(headers_of, by_lean)) == list(map(headers_of, by_session))
        assert [one.body for one in by_lean] == [one.body for one in by_session] == [b'{"x": 1}', b"{}"]
        assert server.connections == 1


@on_uvloop
async def test_a_stream_is_read_as_it_comes_and_its_connection_used_again():
    async with scripted(streaming(b"one", b"two")) as server, aiohttp.ClientSession() as session:
        lean = LeanPost(session, URL(server.url + PATH), HEADERS)
        for _ in range(3):
            response = await lean.send(b"{}")
            assert await response.content.read() == b"onetwo"
            response.close()
        assert server.connections == 1


@on_uvloop
async def test_a_server_that_hangs_up_is_a_client_error():
    async with scripted(closing) as server, aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientError):
            await LeanPost(session, URL(server.url + PATH), HEADERS).send(b"{}")


@on_uvloop
async def test_a_server_that_is_not_there_is_a_client_error():
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientConnectorError):
            await LeanPost(session, URL("http://127.0.0.1:9" + PATH), HEADERS).send(b"{}")


@on_uvloop
async def test_giving_up_on_an_answer_closes_its_connection():
    left = asyncio.Event()

    async def silent(peer, request):
        await peer.hung_up()
        left.set()

    async with scripted(silent) as server, aiohttp.ClientSession() as session:
        sending = asyncio.create_task(LeanPost(session, URL(server.url + PATH), HEADERS).send(b"{}"))
        await until(lambda: bool(server.requests))
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        await left.wait()


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


class Taker(asyncio.Protocol):
    """Collects what comes once the connection is taken over."""

    def __init__(self, taken):
        self.taken, self.received, self.lost = taken, taken.early, False

    def data_received(self, data):
        self.received += data

    def connection_lost(self, exc):
        self.lost = True
        self.taken.lost(exc)


async def opened(session, server):
    return await session.post(server.url + PATH, data=b"{}")


@on_uvloop
async def test_the_connector_makes_the_handlers_that_can_be_taken_over():
    async with scripted(streaming(b"one")) as server, aiohttp.ClientSession(connector=tcp_connector()) as session:
        with_head = await opened(session, server)
        assert with_head.connection is None or isinstance(with_head.connection.protocol, TakeoverHandler)
        with_head.close()


@pytest.mark.parametrize("early", [b"", b"5", b"5\r\nfirst\r\n", b"5\r\nfir"])
@pytest.mark.parametrize("before", [b"", b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"])
@on_uvloop
async def test_every_byte_behind_the_head_is_there_whatever_came_with_it(before, early):
    """The body is ``5 first`` and the end; as much of it as ``early`` says comes in the head's own read."""
    rest = (b"5\r\nfirst\r\n" + END)[len(early) :]
    taken_over = asyncio.Event()

    async def script(peer, request):
        await peer.send(before + HEAD + early)
        await taken_over.wait()
        await peer.send(rest)

    async with scripted(script) as server, aiohttp.ClientSession(connector=tcp_connector()) as session:
        for _ in range(3):
            taken_over.clear()
            response = await opened(session, server)
            taken = take_over(response)
            assert taken is not None
            taker = Taker(taken)
            taken.connect(taker)
            taken_over.set()
            await until(lambda taker=taker: taker.received.endswith(END))
            assert taker.received == early + rest
            assert taken.body.feed(taker.received) == b"first"
            taken.give_back()
        # Given back, the connection has carried all three, and aiohttp has read each head afresh.
        assert server.connections == 1


@on_uvloop
async def test_a_connection_that_is_lost_while_taken_over_is_not_used_again():
    async def script(peer, request):
        await peer.send(HEAD)
        await peer.hung_up()

    async with scripted(script) as server, aiohttp.ClientSession(connector=tcp_connector()) as session:
        for _ in range(2):
            response = await opened(session, server)
            taken = take_over(response)
            taker = Taker(taken)
            taken.connect(taker)
            response.close()
            await until(lambda taker=taker: taker.lost)
        assert server.connections == 2


@on_uvloop
async def test_an_encoded_answer_and_one_that_came_whole_are_left_to_aiohttp():
    async def encoded(peer, request):
        await peer.send(HEAD[:-2] + b"Content-Encoding: gzip\r\n\r\n")
        await peer.hung_up()

    whole = answering(200, b"data: x\n\n", "text/event-stream")
    async with scripted(encoded, whole) as server, aiohttp.ClientSession(connector=tcp_connector()) as session:
        response = await opened(session, server)
        assert take_over(response) is None
        response.close()
        response = await opened(session, server)
        await until(lambda: response.connection is None)
        assert take_over(response) is None
        assert await response.read() == b"data: x\n\n"


@on_uvloop
async def test_without_a_handler_of_ours_nothing_can_be_taken_over():
    async def script(peer, request):
        await peer.send(HEAD)
        await peer.hung_up()

    async with scripted(script) as server, aiohttp.ClientSession() as session:
        response = await opened(session, server)
        assert take_over(response) is None
        response.close()
