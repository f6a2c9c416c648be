"""One measurement of standing streams: start the chain, open all streams, read a window, end and check every stream.

A cell's result is a plain JSON object.  Its figures are in ``processes`` (per role: CPU per token, share of a core,
run-queue wait, memory per stream) and beside it; ``lost`` says what the checks of the streams found, None when nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import ours
from bench.candidate import Addresses, Candidate, Load
from bench.checks import lost_in
from bench.edges import Sources, read_edge, window_figures
from bench.proc_tree import rss_bytes, tree_of
from bench.rig import Rig
from bench.syscalls import count_syscalls
from loadtest.experiment.ports import free_ports
from loadtest.experiment.processes import ChildFailedError

__all__ = ["Chain", "Timing", "standing_streams"]

OPEN_TIMEOUT_S = 10.0
END_TIMEOUT_S = 15.0
LEAST_OPEN_SHARE = 0.5
DRAIN_EVERY_S = 1.0
POLL_S = 0.1
FOREVER_S = 600.0


@dataclass(frozen=True, slots=True)
class Chain:
    """Who talks to whom.  ``subject`` is the role that has a CPU to itself: relay, gen or client; "" none.

    ``judged``: the relay is ours, so that streams are held to usage and bytes as well, and a ctx server is there.
    ``stamped``: our gen's events say when they were sent, which costs gen and client a little.
    """

    subject: str
    relay: Candidate | None
    gen: Candidate | None  # None: ours
    client: Candidate | None  # None: ours
    judged: bool = False
    stamped: bool = False


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds: streams start over ``ramp_s``; after ``settle_s`` the window; ``syscalls_s`` 0 does not count them."""

    ramp_s: float
    settle_s: float
    window_s: float
    syscalls_s: float


async def standing_streams(rig: Rig, chain: Chain, streams: int, tok_s: float, timing: Timing) -> dict[str, Any]:
    """Measure.  ChildFailedError if a process cannot be started, dies, or does not get its streams."""
    load = Load(streams, tok_s, timing.ramp_s, FOREVER_S)
    before, sources = await _start(rig, chain, load)
    open_streams = await _wait_for_streams(rig, sources, load)
    await asyncio.sleep(timing.settle_s)
    first = await read_edge(rig, sources, first=True)
    await asyncio.sleep(timing.window_s)
    last = await read_edge(rig, sources, first=False)
    rig.check_alive()
    result = {"open_streams": open_streams, **window_figures(first, last, streams * tok_s)}
    for role, bytes_before in before.items():
        if bytes_before:
            rss = (rss_bytes(rig.pid(role)) - bytes_before) / 1e3 / streams
            result["processes"][role]["rss_kb_per_stream"] = rss
    result["syscalls"] = None
    if timing.syscalls_s and chain.subject:
        counted = await count_syscalls(tree_of(rig.pid(chain.subject)), timing.syscalls_s)
        tokens = (result["tok_s"] or 0.0) * timing.syscalls_s
        per_token = counted.calls / tokens if counted.calls is not None and tokens else None
        result["syscalls"] = {"per_token": per_token, "by": counted.by, "problem": counted.problem}
    rig.check_alive()
    seen, gen_counts = await _end(rig, sources)
    result["lost"] = lost_in(seen, gen_counts, streams, our_client=sources.client is not None)
    return result


async def _start(rig: Rig, chain: Chain, load: Load) -> tuple[dict[str, int], Sources]:
    """Start gen, ctx, relay and client in that order; memory of each before its first stream, and where counts are."""
    ports = iter(free_ports(8))
    settings = ours.gen_settings(load.tok_s, stamped=chain.stamped)
    at_gen = Addresses(next(ports), second_port=next(ports))
    at_ctx = Addresses(next(ports), second_port=next(ports))
    gen_url, ctx_url = f"http://127.0.0.1:{at_gen.port}", f"http://127.0.0.1:{at_ctx.port}"
    starts = [rig.start("gen", chain.gen or ours.gen(settings), at_gen, load, alone=chain.subject == "gen")]
    if chain.judged:
        starts.append(rig.start("ctx", ours.ctx(), at_ctx))
    await asyncio.gather(*starts)
    at_relay = Addresses(next(ports), gen_url, ctx_url, second_port=next(ports))
    endpoint = (chain.gen or ours.gen(settings)).endpoint
    target = gen_url
    if chain.relay is not None:
        await rig.start("relay", chain.relay, at_relay, alone=chain.subject == "relay")
        endpoint, target = chain.relay.endpoint, f"http://127.0.0.1:{at_relay.port}"
    before = {role: rss_bytes(rig.pid(role)) for role in rig.children}
    plan_of = ours.standing_plan(
        gen=settings if chain.gen is None else None,
        judged=chain.judged,
        endpoint=endpoint,
        drained=chain.gen is None,
        cache_hit_ratio=0.25,
    )
    at_client = Addresses(next(ports), target_url=target, second_port=next(ports))
    await rig.start("client", chain.client or ours.client(plan_of), at_client, load, alone=chain.subject == "client")
    if chain.client is None:
        await rig.wait_for_word("client", ours.READY_WORD)
        before["client"] = rss_bytes(rig.pid("client"))
    return before, Sources(
        gen=f"http://127.0.0.1:{at_gen.second_port}" if chain.gen is None else None,
        relay=f"http://127.0.0.1:{at_relay.second_port}" if chain.judged else None,
        client=f"http://127.0.0.1:{at_client.second_port}" if chain.client is None else None,
    )


async def _wait_for_streams(rig: Rig, sources: Sources, load: Load) -> int:
    """How many streams are open, all of them if the chain can.  ChildFailedError if it is not even half of them.

    One that is saturated by the streams it has takes no more, or not soon; its cost per token can be measured still.
    """
    live = 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(load.ramp_s + OPEN_TIMEOUT_S):
            await asyncio.sleep(load.ramp_s)
            while True:
                rig.check_alive()
                if sources.gen is not None:
                    live = (await rig.call(f"{sources.gen}/admin/counters"))["streams"]["live"]
                else:
                    seen = await rig.call(f"{sources.client}/admin/counters")
                    # A stream is live for the client once it was sent; its first token shows that it was answered.
                    live = min(seen["streams"]["live"], seen["ttft"]["count"])
                if live >= load.streams:
                    return load.streams
                await asyncio.sleep(POLL_S)
    if live >= LEAST_OPEN_SHARE * load.streams:
        return live
    raise ChildFailedError(f"only {live} of {load.streams} streams were open {OPEN_TIMEOUT_S:g} s after the last start")


async def _end(rig: Rig, sources: Sources) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """End the streams and the client; what the client saw and what gen counted, where they are ours."""
    client = rig.children["client"]
    if sources.gen is not None and sources.client is not None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END_TIMEOUT_S):
                while client.process.returncode is None:
                    await rig.call(f"{sources.gen}/admin/drain", "POST")
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(client.process.wait(), DRAIN_EVERY_S)
    await client.stop()
    seen = _read(client.log_path.parent / "client.json") if sources.client is not None else None
    gen_counts = None if sources.gen is None else await rig.call(f"{sources.gen}/admin/counters")
    return seen, gen_counts


def _read(path: Path) -> dict[str, Any] | None:
    try:
        value: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return value
