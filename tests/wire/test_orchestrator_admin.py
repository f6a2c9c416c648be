"""The operations port: switching policies and running block schedules while streams run."""

from __future__ import annotations

import asyncio
import time

import pytest

from sim.orchestrator import app
from sim.orchestrator.ledger import Meter
from sim.orchestrator.policies import BUILTIN
from tests.wire.fakes import on_uvloop
from tests.wire.scripted import DONE, ROLE, orchestrating, prefill, scripted, streaming, token, until

pytestmark = pytest.mark.usefixtures("engine")

MS = 1_000_000


def schedule(*policies, in_ms=20, length_ms=40, settle_ms=10):
    rows = [
        {"round": 0, "slot": slot, "arm": f"{name}:arm", "policy": name, "length_ns": length_ms * MS}
        for slot, name in enumerate(policies)
    ]
    return {"start_ns": time.monotonic_ns() + in_ms * MS, "settle_ns": settle_ms * MS, "blocks": rows}


async def forever(peer, request):
    """A stream of one token a millisecond until the orchestrator hangs up."""
    await peer.open_stream()
    await peer.chunk(ROLE)
    while True:
        await peer.chunk(token("a"))
        await asyncio.sleep(0.001)


async def finished(orchestrator, state="done"):
    async with asyncio.timeout(10):
        while (answer := (await orchestrator.ops("/admin/blocks")).json)["state"] != state:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return answer["blocks"]


@on_uvloop
async def test_the_policy_can_be_read_and_switched_by_the_names_known_at_start():
    async with (
        scripted(prefill) as ctx,
        scripted(streaming(DONE)) as gen,
        orchestrating(ctx, gen, ["parse", "prefilter"]) as orchestrator,
    ):
        known = {"policies": ["parse", "prefilter"]}
        assert (await orchestrator.ops("/admin/policy")).json == {"policy": "prefilter", **known}
        assert (await orchestrator.ops("/admin/policy", {"policy": "filter-off"})).json == {"policy": "parse", **known}
        for body in ({"policy": "prefilter-find"}, {"policy": "os:getcwd"}):
            answer = await orchestrator.ops("/admin/policy", body)
            assert (answer.status, answer.code) == (400, "unknown_policy")
            assert "known: parse, prefilter" in answer.json["error"]["message"]
        for body in ([], {"policy": 3}, {}, b"{"):
            assert (await orchestrator.ops("/admin/policy", body)).status == 400
        assert (await orchestrator.ops("/admin/policy")).json["policy"] == "parse"


@on_uvloop
async def test_verbatim_is_a_409_while_the_orchestrator_rewrites():
    async with scripted(prefill) as ctx, scripted(streaming(DONE)) as gen, orchestrating(ctx, gen) as orchestrator:
        assert "verbatim" in (await orchestrator.ops("/admin/policy")).json["policies"]
        answer = await orchestrator.ops("/admin/policy", {"policy": "verbatim"})
        assert (answer.status, answer.code) == (409, "needs_usage_by_gen")
        answer = await orchestrator.ops("/admin/blocks", schedule("parse", "verbatim"))
        assert (answer.status, answer.code) == (409, "needs_usage_by_gen")
        assert (await orchestrator.ops("/admin/blocks")).json == {"state": "idle", "blocks": []}


@on_uvloop
async def test_a_schedule_switches_live_streams_and_counts_each_block_by_itself():
    async with scripted(prefill) as ctx, scripted(forever) as gen, orchestrating(ctx, gen) as orchestrator:
        client = await orchestrator.client()
        await client.send()
        await client.head()
        answer = await orchestrator.ops("/admin/blocks", schedule("parse", "prefilter", "parse"))
        assert (answer.status, answer.json) == (202, {"state": "running", "blocks": 3})
        before = orchestrator.counters["policies"]["parse"]["parsed"]
        blocks = await finished(orchestrator)
        assert [(b["slot"], b["arm"], b["policy"]) for b in blocks] == [
            (0, "parse:arm", "parse"),
            (1, "prefilter:arm", "prefilter"),
            (2, "parse:arm", "parse"),
        ]
        for block in blocks:
            assert block["wall_ns"] == block["end_ns"] - block["start_ns"] > 0
            assert block["cpu_ns"] > 0
            assert block["loop_cpu_ns"] > 0
            assert block["spin_ns"] > 0
            assert block["chunks"] == block["events"] == block["unchanged"] > 0
            assert block["parsed"] == (block["events"] if block["policy"] == "parse" else 0)
            assert block["live_streams"] == 1
            assert block["requests"] == 0
            assert block["bytes_in"] == block["bytes_out"] == block["chunks"] * len(token("a"))
        assert (
            orchestrator.counters["policies"]["parse"]["parsed"] - before >= blocks[0]["parsed"] + blocks[2]["parsed"]
        )
        assert (await orchestrator.ops("/admin/policy")).json["policy"] == "prefilter"
        metrics = (await orchestrator.ops("/metrics")).body.decode().splitlines()
        assert 'disagg_policy_blocks_total{policy="parse"} 2.0' in metrics
        chunks = float(blocks[0]["chunks"] + blocks[2]["chunks"])
        assert f'disagg_policy_chunks_total{{policy="parse"}} {chunks}' in metrics


@on_uvloop
async def test_a_running_schedule_is_not_disturbed_and_an_abort_keeps_what_was_measured():
    async with scripted(prefill) as ctx, scripted(forever) as gen, orchestrating(ctx, gen) as orchestrator:
        long = schedule("parse", *["prefilter"] * 500)
        assert (await orchestrator.ops("/admin/blocks", long)).status == 202
        for path, body in (("/admin/policy", {"policy": "parse"}), ("/admin/blocks", schedule("parse"))):
            answer = await orchestrator.ops(path, body)
            assert (answer.status, answer.code) == (409, "schedule_running")
        async with asyncio.timeout(10):
            while not (await orchestrator.ops("/admin/blocks")).json["blocks"]:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        answer = await orchestrator.ops("/admin/blocks", method="DELETE")
        assert answer.json["state"] == "aborted"
        assert answer.json["blocks"][0]["policy"] == "parse"
        assert len(answer.json["blocks"]) < 500
        assert (await orchestrator.ops("/admin/policy", {"policy": "parse"})).status == 200


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ([], "bad_schedule"),
        ({}, "bad_schedule"),
        ({"start_ns": 1, "settle_ns": 0, "blocks": [{}]}, "bad_schedule"),
        ({"start_ns": 1 << 62, "settle_ns": 0, "blocks": [{"arm": "a", "policy": "x"}]}, "unknown_policy"),
    ],
)
@on_uvloop
async def test_a_bad_schedule_is_refused(body, code):
    async with scripted(prefill) as ctx, scripted(streaming(DONE)) as gen, orchestrating(ctx, gen) as orchestrator:
        answer = await orchestrator.ops("/admin/blocks", body)
        assert (answer.status, answer.code) == (400, code)


@on_uvloop
async def test_ready_servers_are_left_alone_while_a_schedule_runs():
    async with scripted(prefill) as ctx, scripted(streaming(DONE)) as gen, orchestrating(ctx, gen) as orchestrator:
        await orchestrator.ops("/admin/blocks", schedule("parse", in_ms=60_000))
        ctx.healthy = False
        upstream = orchestrator.counters["upstreams"][0]
        await asyncio.sleep(1.3)  # longer than a poll's interval: there is no event for a poll that is not made
        assert upstream["ready"] is True
        await orchestrator.ops("/admin/blocks", method="DELETE")
        await until(lambda: not orchestrator.counters["upstreams"][0]["ready"])


@on_uvloop
async def test_the_ops_port_tells_counters_by_policy_and_by_upstream():
    async with scripted(prefill) as ctx, scripted(streaming(DONE)) as gen, orchestrating(ctx, gen) as orchestrator:
        await orchestrator.ask()
        counters = (await orchestrator.ops("/admin/counters")).json
        assert list(counters["policies"]) == list(BUILTIN)
        assert counters["policies"]["prefilter"] == {
            "offered": 1, "unchanged": 1, "changed": 0, "failed": 0, "parsed": 0,
        }  # fmt: skip
        assert counters["upstreams"] == [
            {"url": ctx.url, "role": "ctx", "outstanding": 0, "ready": True, "problem": ""},
            {"url": gen.url, "role": "gen", "outstanding": 0, "ready": True, "problem": ""},
        ]
        assert counters["streams"]["started"] == counters["done_events"] == 1


@on_uvloop
async def test_the_meter_lets_its_files_go_when_the_orchestrator_ends(monkeypatch):
    closed = []

    class Watched(Meter):
        def close(self):
            closed.append(self)
            super().close()

    monkeypatch.setattr(app, "Meter", Watched)
    async with scripted(prefill) as ctx, scripted(streaming(DONE)) as gen:
        async with orchestrating(ctx, gen):
            assert closed == []
        assert len(closed) == 1
