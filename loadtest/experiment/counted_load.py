"""The small load of an instruction count: an exact number of requests, each of an exact number of tokens.

Driven from the experiment itself and not by Locust: it goes in lockstep with what arrives (`lockstep`), not by the
clock.  Requests are those of the scenario's own plan.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import aiohttp

from loadtest.experiment.lockstep import EVENT_END, Lockstep
from loadtest.load_settings import LoadSettings
from loadtest.plan import Target
from loadtest.prompts import Prompts
from loadtest.workload import request_bytes

__all__ = ["BASE", "LOADS", "CountedLoad", "send_load"]

_OPENING, _STREAMS, _CHURN = 5, 20, 80
_SHORT, _FEW, _MANY = 4, 20, 420
_TIMEOUT = aiohttp.ClientTimeout(total=300)
_END = b"[DONE]"


@dataclass(frozen=True, slots=True)
class CountedLoad:
    """Five requests one by one, 20 streams of ``tokens`` at once, then ``churn`` short requests one by one.

    The streams are all open before any goes on: every load opens the same connections, and later requests find
    them open.
    """

    name: str
    tokens: int = _FEW
    churn: int = 0


BASE = CountedLoad("base")
LOADS: Sequence[CountedLoad] = (BASE, CountedLoad("chunks", tokens=_MANY), CountedLoad("requests", churn=_CHURN))
"""Each of the others is the first with more of one thing."""


async def send_load(url: str, load: CountedLoad, settings: LoadSettings, lockstep: Lockstep) -> list[str]:
    """Send the load, read every reply to its end; what went wrong, a line for each failure."""
    target, prompts = Target.parse(url), Prompts(settings.seed)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=_TIMEOUT, auto_decompress=False) as session:

        async def send(seq: int, tokens: int, began: Callable[[], None] = lambda: None) -> str | None:
            prompt = prompts.make(seq, settings.prompt_tokens)
            head, _, body = request_bytes(target, settings, prompt, tokens).partition(b"\r\n\r\n")
            return await _read_reply(session, target, head.split(b" ", 2)[1].decode(), body, lockstep, began)

        results = [await send(seq, _SHORT) for seq in range(_OPENING)]
        lockstep.go.clear()
        streams = []
        for seq in range(_OPENING, _OPENING + _STREAMS):
            began = asyncio.Event()
            streams.append(asyncio.create_task(send(seq, load.tokens, began.set)))
            await began.wait()
        lockstep.go.set()
        results += await asyncio.gather(*streams)
        first = _OPENING + _STREAMS
        results += [await send(seq, _SHORT) for seq in range(first, first + load.churn)]
    return [failure for failure in results if failure is not None]


async def _read_reply(
    session: aiohttp.ClientSession,
    target: Target,
    path: str,
    body: bytes,
    lockstep: Lockstep,
    began: Callable[[], None],
) -> str | None:
    """Read one stream and tell ``lockstep`` what arrives; what is wrong with it, if anything."""
    url = f"http://{target.host}:{target.port}{path}"
    headers = {"Content-Type": "application/json", "Accept": "text/event-stream"}
    tail = b""
    try:
        async with session.post(url, data=body, headers=headers, skip_auto_headers=("User-Agent",)) as response:
            async for data in response.content.iter_any():
                lockstep.arrived((tail[-1:] + data).count(EVENT_END))
                tail = (tail + data)[-64:]
                began()
    except (aiohttp.ClientError, TimeoutError) as error:
        return str(error) or type(error).__name__
    finally:
        began()
    if response.status != 200:
        return f"status {response.status}: {tail.decode(errors='replace')}"
    return None if _END in tail else "the reply ended without [DONE]"
