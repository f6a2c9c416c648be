"""The equality gate: before any claim about speed, every policy relays the same complete streams.

Gen's own bytes are fetched first, by the gate playing the orchestrator (hand-off from ctx, then gen); each
policy's relayed bytes are held against them.  How many events each policy changed is read from the
orchestrator's own counters: 0 where the rewrite has moved elsewhere, and then the policy sits on a dead path.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp

from loadtest.experiment.gate_cases import CASES, Case, compare_streams, cut_events, mask_identity
from loadtest.experiment.processes import ChildFailedError
from loadtest.experiment.topology import Topology
from sim.core.handoff import HandoffError, ctx_request, gen_request, read_ctx_answer
from sim.core.usage import Usage, rewrite_body

__all__ = ["run_gate"]

_PATHS = {"chat": "/v1/chat/completions", "completions": "/v1/completions"}
_TIMEOUT = aiohttp.ClientTimeout(total=60)


@dataclasses.dataclass(frozen=True, slots=True)
class _Reference:
    """What gen answered to a case on its own: raw bytes (streamed) or the decoded body, and ctx's usage."""

    case: Case
    events: Sequence[bytes]
    body: Mapping[str, Any]
    usage: Usage


@dataclasses.dataclass(frozen=True, slots=True)
class _Relayed:
    """A case under one policy: events relayed, events the reference changes, first difference if any."""

    events: int
    changes: int
    difference: dict[str, Any] | None


async def run_gate(topology: Topology, policies: Sequence[str], *, usage_by: str) -> dict[str, Any]:
    """Run every case under every policy; the content of ``equality.json``.

    Leaves the policy that was active before active again.  ChildFailedError if a server does not answer.
    """
    try:
        return await _run_cases(topology, policies, usage_by)
    except (aiohttp.ClientError, HandoffError, TimeoutError) as error:
        raise ChildFailedError(f"equality gate: {error or type(error).__name__}") from error


async def _run_cases(topology: Topology, policies: Sequence[str], usage_by: str) -> dict[str, Any]:
    before = await topology.ops("orchestrator", "GET", "/admin/policy")
    async with _session_of(topology) as direct, aiohttp.ClientSession(timeout=_TIMEOUT) as session:
        # All cases at once: a scenario's tokens may be a long time apart.
        references = await asyncio.gather(*(_reference(topology, direct, case, usage_by) for case in CASES))
        results = {policy: await _try_policy(topology, session, policy, references) for policy in policies}
    await topology.ops("orchestrator", "POST", "/admin/policy", {"policy": before["policy"]})
    return {
        "state": "equal" if all(result["state"] == "equal" for result in results.values()) else "differs",
        "requests": len(references),
        "streams": sum(reference.case.stream for reference in references),
        "events": sum(len(reference.events) for reference in references),
        "policies": results,
        "cases": [{"name": c.name, "endpoint": c.endpoint, "stream": c.stream, **c.script} for c in CASES],
        "dead_path": [
            name for name, result in results.items() if not result["changed"] and not result["expected_changes"]
        ],
    }


def _session_of(topology: Topology) -> aiohttp.ClientSession:
    listen = topology.address("gen0", "listen")
    connector = aiohttp.UnixConnector(listen.removeprefix("unix:")) if listen.startswith("unix:") else None
    return aiohttp.ClientSession(connector=connector, timeout=_TIMEOUT)


async def _reference(topology: Topology, gen: aiohttp.ClientSession, case: Case, usage_by: str) -> _Reference:
    path = _PATHS[case.endpoint]
    listen = topology.address("ctx0", "listen")
    connector = aiohttp.UnixConnector(listen.removeprefix("unix:")) if listen.startswith("unix:") else None
    async with (
        aiohttp.ClientSession(connector=connector, timeout=_TIMEOUT) as ctx,
        ctx.post(_base(listen) + path, json=ctx_request(case.body(), 1)) as response,
    ):
        handoff = read_ctx_answer(await response.json())
    body = gen_request(case.body(), handoff, case.endpoint, with_ctx_usage=usage_by == "gen")
    async with gen.post(_base(topology.address("gen0", "listen")) + path, json=body) as response:
        if not case.stream:
            return _Reference(case, [], await response.json(), handoff.usage)
        events = mask_identity(cut_events(await response.read()))
        return _Reference(case, events, {}, handoff.usage)


def _base(listen: str) -> str:
    return "http://gate" if listen.startswith("unix:") else listen


async def _try_policy(
    topology: Topology, session: aiohttp.ClientSession, policy: str, references: Sequence[_Reference]
) -> dict[str, Any]:
    switched = await topology.ops("orchestrator", "POST", "/admin/policy", {"policy": policy})
    own_name = switched["policy"]  # counters go by the policy's own name, not by an alias
    counters_before = await _counters(topology, own_name)
    relayed = await asyncio.gather(*(_relayed(topology, session, reference) for reference in references))
    expected_changes = sum(one.changes for one in relayed)
    first = next((one.difference for one in relayed if one.difference), None)
    counters = await _counters(topology, own_name)
    changed = counters["changed"] - counters_before["changed"]
    state = "equal" if first is None and changed == expected_changes else "differs"
    if first is None and state == "differs":
        first = {
            "case": "all",
            "event_index": 0,
            "expected": f"{expected_changes} events changed",
            "got": f"{changed} events changed",
        }
    return {
        "state": state,
        "events": sum(one.events for one in relayed),
        "changed": changed,
        "expected_changes": expected_changes,
        "first_difference": first,
    }


async def _relayed(topology: Topology, session: aiohttp.ClientSession, reference: _Reference) -> _Relayed:
    case = reference.case
    async with session.post(topology.url + _PATHS[case.endpoint], json=case.body()) as response:
        if not case.stream:
            return _Relayed(0, 0, _body_difference(case.name, reference, await response.json()))
        events = mask_identity(cut_events(await response.read()))
        changes, difference = compare_streams(case.name, reference.events, events, reference.usage)
        return _Relayed(len(events), changes, dataclasses.asdict(difference) if difference else None)


async def _counters(topology: Topology, policy: str) -> dict[str, Any]:
    answer = await topology.ops("orchestrator", "GET", "/admin/counters")
    counters: dict[str, Any] = answer["policies"][policy]
    return counters


def _body_difference(case: str, reference: _Reference, got: Mapping[str, Any]) -> dict[str, Any] | None:
    expected = dict(rewrite_body(reference.body, reference.usage))
    comparable = {**got, "id": expected.get("id"), "created": expected.get("created")}
    if comparable == expected:
        return None
    return {"case": case, "event_index": 0, "expected": str(expected)[:600], "got": str(got)[:600]}
