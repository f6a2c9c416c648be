"""What one request costs the orchestrator: replies of one token, open loop, so that little but requests is left.

Two hops each: the client's body to ctx, its answer and the body to gen, and one token back.
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
from bench.edges import Sources, read_edge
from bench.proc_tree import spent_between
from bench.rig import Rig
from loadtest.experiment.ports import free_ports
from loadtest.load_settings import LoadSettings
from loadtest.plan import LoadPlan

__all__ = ["Churn", "request_cost"]

_TAIL_S = 1.0  # of load after the window
_END_TIMEOUT_S = 30.0
_REPLY_TOK_S = 1_000.0


@dataclass(frozen=True, slots=True)
class Churn:
    """Requests of ``prompt_tokens`` at ``requests_s``; after ``warmup_s`` they are measured for ``window_s``."""

    prompt_tokens: int
    requests_s: float
    warmup_s: float
    window_s: float

    @property
    def duration_s(self) -> float:
        """How long requests are sent, s."""
        return self.warmup_s + self.window_s + _TAIL_S


async def request_cost(rig: Rig, relay: Candidate, churn: Churn) -> dict[str, Any]:
    """CPU per request of every process.  ChildFailedError if one cannot be started or dies."""
    ports = iter(free_ports(8))
    settings = ours.gen_settings(_REPLY_TOK_S)
    at_gen, at_ctx = (Addresses(next(ports), second_port=next(ports)) for _ in range(2))
    await asyncio.gather(
        rig.start("gen", ours.gen(settings), at_gen),
        rig.start("ctx", ours.ctx(), at_ctx),
    )
    gen_url, ctx_url = f"http://127.0.0.1:{at_gen.port}", f"http://127.0.0.1:{at_ctx.port}"
    at_relay = Addresses(next(ports), gen_url, ctx_url, second_port=next(ports))
    await rig.start("relay", relay, at_relay, alone=True)

    def plan_of(addresses: Addresses, folder: Path, _load: Load) -> LoadPlan:
        load = LoadSettings(
            arrivals="constant",
            request_rate=churn.requests_s,
            duration_s=churn.duration_s,
            prompt_tokens=churn.prompt_tokens,
            output_tokens=1,
        )
        ops = f"127.0.0.1:{addresses.second_port}"
        out = str(folder.absolute())
        return LoadPlan(host=addresses.target_url, settings=load, gen=settings, cache_hit_ratio=0.25, out=out, ops=ops)

    at_client = Addresses(next(ports), target_url=f"http://127.0.0.1:{at_relay.port}", second_port=next(ports))
    await rig.start("client", ours.client(plan_of), at_client, Load(1, _REPLY_TOK_S, 0.0, churn.duration_s))
    await rig.wait_for_word("client", ours.READY_WORD)
    await asyncio.sleep(churn.warmup_s)
    sources = Sources(gen=f"http://127.0.0.1:{at_gen.second_port}", relay=None, client=None)
    first = await read_edge(rig, sources, first=True)
    await asyncio.sleep(churn.window_s)
    last = await read_edge(rig, sources, first=False)
    rig.check_alive()
    assert first.gen is not None
    assert last.gen is not None
    requests_s = (last.gen[1]["requests"] - first.gen[1]["requests"]) / (last.gen[0] - first.gen[0]) * 1e9
    wall_ns = last.at_ns - first.at_ns
    processes = {}
    for role, tree in last.trees.items():
        spent = spent_between(first.trees[role], tree)
        per_request = spent.cpu_ns / 1e3 / (requests_s * wall_ns / 1e9) if requests_s else None
        processes[role] = {
            "cpu_us_per_request": per_request,
            "cpu_share": spent.cpu_ns / wall_ns,
            "wait_share": spent.wait_ns / wall_ns,
        }
    client = rig.children["client"]
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(client.process.wait(), _END_TIMEOUT_S)
    await client.stop()
    counts = await rig.call(f"{sources.gen}/admin/counters")
    try:
        seen = json.loads((client.log_path.parent / "client.json").read_text())
    except (OSError, ValueError):
        seen = None
    planned = 0 if seen is None else seen["streams"]["planned"]
    return {
        "prompt_tokens": churn.prompt_tokens,
        "requests_s": requests_s,
        "asked_requests_s": churn.requests_s,
        "processes": processes,
        "lost": lost_in(seen, counts, planned),
    }
