"""A relay between orchestrator and gen that lets one HTTP chunk through at a time, each when the last has arrived.

Under a tool that slows the orchestrator fifty times, or on a busy machine, paced tokens pile up and one read brings
several: fewer instructions, of no meaning.  Here at most one chunk is on its way in the whole system, taken from the
live streams in turn, so that every read brings one, however slow the machine is.  The bytes are gen's own, as is
their HTTP framing.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

__all__ = ["EVENT_END", "Lockstep"]

EVENT_END = b"\n\n"
ARRIVAL_TIMEOUT_S = 60.0
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding: *chunked", re.IGNORECASE)


class Lockstep:
    """`front` it before gen; the client tells it what `arrived`.

    While ``go`` is not set every stream stops after its first chunk: so all can be opened before any ends.
    """

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.go.set()
        self._turn = asyncio.Lock()  # first come, first served: streams take turns
        self._more = asyncio.Event()
        self._arrived = 0
        self._gen: tuple[str, int] = ("", 0)
        self._serving: set[asyncio.Task[None]] = set()

    def arrived(self, events: int) -> None:
        """The client has got so many more events."""
        self._arrived += events
        self._more.set()

    @contextlib.asynccontextmanager
    async def front(self, gen_url: str) -> AsyncIterator[str]:
        """Listens for as long as the context lasts; gives the URL that stands for gen's."""
        parts = urlsplit(gen_url)
        self._gen = (str(parts.hostname), int(parts.port or 80))
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        try:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finally:
            server.close()
            for task in self._serving:
                task.cancel()
            await asyncio.gather(*self._serving, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection of the orchestrator's, to its end; a break on either side ends both."""
        writers = [writer]
        try:
            gen_reader, gen_writer = await asyncio.open_connection(*self._gen)
            writers.append(gen_writer)
            while True:
                gen_writer.write(await _message(reader))
                head = await gen_reader.readuntil(b"\r\n\r\n")
                writer.write(head)
                if _CHUNKED.search(head):
                    await self._chunks(gen_reader, writer)
                else:
                    writer.write(await gen_reader.readexactly(_length(head)))
        except (asyncio.IncompleteReadError, OSError, TimeoutError):
            return
        finally:
            for each in writers:
                each.close()

    async def _chunks(self, gen: asyncio.StreamReader, relay: asyncio.StreamWriter) -> None:
        """One reply's HTTP chunks up to and with the last, empty one."""
        while True:
            size = await gen.readuntil(b"\r\n")
            frame = size + await gen.readexactly(int(size, 16) + 2)
            if int(size, 16) == 0:
                relay.write(frame)
                return
            async with self._turn:
                due = self._arrived + frame.count(EVENT_END)
                relay.write(frame)
                async with asyncio.timeout(ARRIVAL_TIMEOUT_S):
                    while self._arrived < due:
                        self._more.clear()
                        await self._more.wait()
            await self.go.wait()


async def _message(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    return head + await reader.readexactly(_length(head))


def _length(head: bytes) -> int:
    found = _LENGTH.search(head)
    return int(found[1]) if found else 0
