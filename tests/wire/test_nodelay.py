"""TCP_NODELAY on every connection that carries a stream.

Without it Nagle's algorithm holds the second of two small writes (a head, then the first token) until the reader's
delayed ACK comes: 40 ms on a short stream, which looks like a slow server and is none.  The option itself is asked
for: a time would say so only now and then.
"""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from pathlib import Path
from urllib.parse import urlsplit

from tests.wire.fakes import ctx_server, gen_server, on_uvloop
from tests.wire.scripted import CHAT, orchestrating, prefill, scripted, token, until


def nodelay_of(port: int, *, accepted: bool) -> list[bool]:
    """TCP_NODELAY of this process's connections: those accepted on ``port``, or those opened to it."""
    found = []
    for fd in [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]:
        try:
            if not stat.S_ISSOCK(os.fstat(fd).st_mode):
                continue
        except OSError:
            continue  # the descriptor that listed the directory
        with socket.socket(fileno=os.dup(fd)) as connection:
            if connection.family not in (socket.AF_INET, socket.AF_INET6) or connection.type != socket.SOCK_STREAM:
                continue
            try:
                own, other = connection.getsockname(), connection.getpeername()
            except OSError:
                continue  # it listens
            if (own if accepted else other)[1] == port:
                found.append(bool(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)))
    return found


@on_uvloop
async def test_a_connection_accepted_by_gen_sends_without_delay():
    async with gen_server(itl_ms=1000) as gen:
        clients = [await gen.client() for _ in range(2)]
        for client in clients:
            await client.send({**CHAT, "max_tokens": 5})
            await client.head()

        assert nodelay_of(gen.started.listen.port, accepted=True) == [True, True]


@on_uvloop
async def test_a_connection_accepted_by_ctx_sends_without_delay():
    async with ctx_server(overhead_ms=60_000) as ctx:
        client = await ctx.client()
        await client.send({**CHAT, "stream": False, "disaggregated_params": {"request_type": "context_only"}})
        await until(lambda: ctx.counters["requests"] == 1)

        assert nodelay_of(ctx.started.listen.port, accepted=True) == [True]


@on_uvloop
async def test_the_orchestrator_sends_without_delay_to_its_client_and_to_both_servers():
    gate = asyncio.Event()

    async def script(peer, request):
        await peer.open_stream()
        await peer.chunk(token("a"))
        await gate.wait()

    async with scripted(prefill) as ctx, scripted(script) as gen, orchestrating(ctx, gen) as orchestrator:
        client = await orchestrator.client()
        await client.send()
        await client.head()
        assert await client.chunk() == token("a")

        assert nodelay_of(orchestrator.started.listen.port, accepted=True) == [True]
        for server in (ctx, gen):
            opened = nodelay_of(urlsplit(server.url).port, accepted=False)
            assert opened == [True] * len(opened)
        assert opened, "the stream is under way: gen's connection is open"
        gate.set()


def test_the_probe_tells_a_connection_that_sends_with_delay_from_one_that_does_not():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)), socket.create_connection(("127.0.0.1", port)) as eager:
            eager.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with server.accept()[0], server.accept()[0]:
                assert sorted(nodelay_of(port, accepted=False)) == [False, True]
                assert nodelay_of(port, accepted=True) == [False, False]
