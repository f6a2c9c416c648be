"""The equality gate: before any claim about speed, every policy relays the same complete streams.

Gen's own bytes are fetched first, by the gate playing the orchestrator (hand-off from ctx, then gen); each
policy's relayed bytes are held against them.  How many events each policy changed is read from the
orchestrator's own counters: 0 where the rewrite has moved elsewhere, and then the policy sits on a dead path.
A policy that fails on a stream is the one that differs, whichever is active.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp

from loadtest.experiment.gate_cases import (
    CASES,
    Case,
    Difference,
    Relayed,
    compare_streams,
    cut_events,
    mask_identity,
    outcomes,
    policy_failure,
)
from loadtest.experiment.processes import ChildFailedError
from loadtest.experiment.server_counters import combined
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


async def run_gate(topology: Topology, policies: Sequence[str], *, usage_by: str) -> dict[str, Any]:
    """Run every case under every policy; the content of ``equality.json``.

    Leaves the policy that was active before active again.  ChildFailedError if a server does not answer.
    """
    try:
        return await _run_cases(topology, policies, usage_by)
    except (aiohttp.ClientError, HandoffError, TimeoutError) as error:
        raise ChildFailedError(f"equality gate: {str(error) or type(error).__name__}") from error


async def _run_cases(topology: Topology, policies: Sequence[str], usage_by: str) -> dict[str, Any]:
    before, *_ = await topology.of_orchestrators("GET", "/admin/policy")
    own_names = await _own_names(topology, policies)
    async with (
        _direct(topology, "ctx0") as ctx,
        _direct(topology, "gen0") as gen,
        aiohttp.ClientSession(timeout=_TIMEOUT) as session,
    ):
        references = await asyncio.gather(*(_reference(ctx, gen, case, usage_by) for case in CASES))
        played = {policy: await _play(topology, session, own_names, policy, references) for policy in policies}
    await topology.of_orchestrators("POST", "/admin/policy", {"policy": before["policy"]})
    results = outcomes(own_names, played)
    return {
        "state": "equal" if all(result["state"] == "equal" for result in results.values()) else "differs",
        "requests": len(references),
        "streams": sum(reference.case.stream for reference in references),
        "events": sum(len(reference.events) for reference in references),
        "policies": results,
        "cases": [{"name": c.name, "endpoint": c.endpoint, "stream": c.stream, **c.script} for c in CASES],
        "dead_path": [
            name
            for name, result in results.items()
            if result["state"] == "equal" and result["events"] and not result["changed"]
        ],
    }


def _direct(topology: Topology, name: str) -> aiohttp.ClientSession:
    """A session to a fake itself, past the orchestrator; paths are relative to it."""
    listen = topology.address(name, "listen")
    if listen.startswith("unix:"):
        connector, base = aiohttp.UnixConnector(listen.removeprefix("unix:")), "http://gate"
    else:
        connector, base = None, listen
    return aiohttp.ClientSession(base, connector=connector, timeout=_TIMEOUT, raise_for_status=True)


async def _reference(ctx: aiohttp.ClientSession, gen: aiohttp.ClientSession, case: Case, usage_by: str) -> _Reference:
    path = _PATHS[case.endpoint]
    async with ctx.post(path, json=ctx_request(case.body(), 1)) as response:
        handoff = read_ctx_answer(await response.json())
    body = gen_request(case.body(), handoff, case.endpoint, with_ctx_usage=usage_by == "gen")
    async with gen.post(path, json=body) as response:
        if not case.stream:
            return _Reference(case, [], await response.json(), handoff.usage)
        events = mask_identity(cut_events(await response.read()))
        return _Reference(case, events, {}, handoff.usage)


async def _own_names(topology: Topology, policies: Sequence[str]) -> dict[str, str]:
    """Each policy's own name.  ChildFailedError if two names stand for one policy: the A/A arm does that already."""
    own_names: dict[str, str] = {}
    for policy in policies:
        own_name = await _switch(topology, policy)
        twin = next((name for name, own in own_names.items() if own == own_name), None)
        if twin is not None:
            raise ChildFailedError(f"{twin} and {policy} are one policy; the A/A arm comes by itself", usage_error=True)
        own_names[policy] = own_name
    return own_names


async def _switch(topology: Topology, policy: str) -> str:
    """Make ``policy`` the active one; its own name, which counters and errors go by, not by an alias."""
    switched, *_ = await topology.of_orchestrators("POST", "/admin/policy", {"policy": policy})
    own_name: str = switched["policy"]
    return own_name


async def _play(
    topology: Topology,
    session: aiohttp.ClientSession,
    own_names: Mapping[str, str],
    policy: str,
    references: Sequence[_Reference],
) -> tuple[list[Relayed], int]:
    """All cases, at once, under ``policy``; and how many events it says it changed."""
    own_name = await _switch(topology, policy)
    names = list(own_names.values())
    before = await _counters(topology, own_name)
    relayed = await asyncio.gather(*(_relayed(topology, session, reference, names) for reference in references))
    after = await _counters(topology, own_name)
    return relayed, after["changed"] - before["changed"]


async def _relayed(
    topology: Topology, session: aiohttp.ClientSession, reference: _Reference, policies: Sequence[str]
) -> Relayed:
    case = reference.case
    async with session.post(topology.url + _PATHS[case.endpoint], json=case.body()) as response:
        if not case.stream:
            return Relayed(0, 0, _body_difference(case.name, reference, await response.json()))
        events = mask_identity(cut_events(await response.read()))
        changes, difference = compare_streams(case.name, reference.events, events, reference.usage)
        failure = policy_failure(events, policies)
        if failure is None:
            return Relayed(len(events), changes, difference)
        failed, text = failure
        complete = len(events) - 1
        return Relayed(complete, changes, Difference(case.name, complete, "a complete stream", text), failed)


async def _counters(topology: Topology, policy: str) -> dict[str, Any]:
    total: dict[str, Any] = {}
    for counted in await topology.of_orchestrators("GET", "/admin/counters"):
        total = combined(total, counted["policies"][policy], 1)
    return total


def _body_difference(case: str, reference: _Reference, got: Mapping[str, Any]) -> Difference | None:
    expected = dict(rewrite_body(reference.body, reference.usage))
    comparable = {**got, "id": expected.get("id"), "created": expected.get("created")}
    if comparable == expected:
        return None
    return Difference(case, 0, str(expected)[:600], str(got)[:600])
