"""The stall watch on a loop, with a body and a connection that the test moves."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from sim.orchestrator.watch import StallWatch
from tests.wire.fakes import on_uvloop


async def watch_ended(lost_while, timeout_s):
    """(whether the stream is told lost, errors the loop was told) when its connection is lost at that moment."""
    loop = asyncio.get_running_loop()
    errors = []
    loop.set_exception_handler(lambda _loop, context: errors.append(context))
    closed = loop.create_future()
    body = SimpleNamespace(heard=lambda: False, closed=closed, over=False)
    watch = StallWatch(loop, first_byte_timeout_s=timeout_s, stall_timeout_s=timeout_s)
    streams = []

    async def stream():
        async with asyncio.timeout(None) as deadline:
            streams.append(watch.enter(body, None, deadline))
            try:
                if lost_while == "waiting":
                    closed.set_result(None)
                await loop.create_future()
            finally:
                # Cancelled by the deadline and not yet out: what the watch is told now comes second.
                if lost_while == "ending":
                    closed.set_result(None)
                for _ in range(3):
                    await asyncio.sleep(0)
                watch.leave(streams[0])

    with pytest.raises(TimeoutError):
        await stream()
    watch.close()
    return streams[0].lost, errors


@on_uvloop
async def test_a_lost_connection_ends_the_stream_as_lost():
    assert await watch_ended("waiting", timeout_s=60) == (True, [])


@on_uvloop
async def test_a_connection_lost_while_a_stall_ends_the_stream_changes_nothing():
    assert await watch_ended("ending", timeout_s=0.01) == (False, [])
