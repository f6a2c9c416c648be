"""A load client in ordinary aiohttp style: a task for each stream, ``iter_any``, events split off a buffer."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import time

import aiohttp
import uvloop

from bench.candidates.programs.tally import BODY, PATH, PROGRESS_EVERY_S, Tally

RETRY_S = 1.0


class _Reader:
    """One stream after the other."""

    def __init__(self, session: aiohttp.ClientSession, url: str, counts: Tally) -> None:
        self.itl_max_s = 0.0
        self._session = session
        self._url = url
        self._counts = counts

    async def run(self, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        while True:
            done = False
            self._counts.streams += 1
            with contextlib.suppress(aiohttp.ClientError, OSError):
                async with self._session.post(self._url, json=BODY) as response:
                    done = response.status == 200 and await self._read(response)
            if not done:
                self._counts.failed += 1
                await asyncio.sleep(RETRY_S)

    async def _read(self, response: aiohttp.ClientResponse) -> bool:
        """Whether the reply was whole."""
        counts, buffer, done = self._counts, b"", False
        last_s = time.perf_counter()
        counts.live += 1
        try:
            async for piece in response.content.iter_any():
                *whole, buffer = (buffer + piece).split(b"\n\n")
                for event in whole:
                    if event == b"data: [DONE]":
                        done = True
                    elif event.startswith(b"data:"):
                        now_s = time.perf_counter()
                        self.itl_max_s = max(self.itl_max_s, now_s - last_s)
                        last_s = now_s
                        counts.tokens += 1
        finally:
            counts.live -= 1
        return done


async def _load(options: argparse.Namespace) -> None:
    counts = Tally(options.directory)
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=60)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as session:
        url = options.target_url + PATH
        gap_s = options.ramp_s / options.streams
        tasks = [
            asyncio.create_task(_Reader(session, url, counts).run(number * gap_s)) for number in range(options.streams)
        ]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(options.ramp_s + options.duration_s):
                while not ended.is_set():
                    counts.write()
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(ended.wait(), PROGRESS_EVERY_S)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    counts.write()
    print(counts.to_json(), flush=True)


def main() -> None:
    """Load until SIGTERM or the end of the time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target-url", required=True)
    parser.add_argument("--directory", required=True)
    parser.add_argument("--streams", type=int, required=True)
    parser.add_argument("--ramp-s", type=float, required=True)
    parser.add_argument("--duration-s", type=float, required=True)
    uvloop.run(_load(parser.parse_args()))


if __name__ == "__main__":
    main()
