"""What the operations port adds: read and switch the policy, run a block schedule.

Only names loaded at start can be chosen over HTTP: a name never becomes an import here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from aiohttp import web

from sim.orchestrator.arms import Arms, NeedsGenError, UnknownPolicyError
from sim.orchestrator.blocks import ScheduleError, read_schedule
from sim.orchestrator.credit import PolicyCredit
from sim.orchestrator.ledger import BlockRunner, ScheduleRunningError
from sim.service.http_json import ApiError, json_response, read_json

__all__ = ["admin_routes"]


def admin_routes(
    arms: Arms, credit: PolicyCredit, runner: BlockRunner, clock: Callable[[], int]
) -> list[web.AbstractRouteDef]:
    """Routes for `sim.service.ops.ops_app`; ``clock`` is CLOCK_MONOTONIC ns."""

    async def get_policy(_request: web.Request) -> web.StreamResponse:
        return json_response({"policy": arms.policy, "policies": list(arms.names)})

    async def set_policy(request: web.Request) -> web.StreamResponse:
        body = await read_json(request)
        name = body.get("policy") if isinstance(body, Mapping) else None
        if not isinstance(name, str):
            raise ApiError(400, f'the body must be {{"policy": NAME}}; known: {", ".join(arms.names)}')
        if runner.running:
            raise ApiError(409, "a block schedule is running; DELETE /admin/blocks aborts it", code="schedule_running")
        try:
            index = arms.index_of(name)
        except UnknownPolicyError as error:
            raise ApiError(400, str(error), code="unknown_policy") from None
        except NeedsGenError as error:
            raise ApiError(409, str(error), code="needs_usage_by_gen") from None
        if index != arms.active:
            credit.switch(index)
        return await get_policy(request)

    async def get_blocks(_request: web.Request) -> web.StreamResponse:
        return json_response({"state": runner.state, "blocks": runner.records})

    async def start_blocks(request: web.Request) -> web.StreamResponse:
        body = await read_json(request)
        try:
            schedule = read_schedule(body, arms.index_of, arms.names, clock())
            runner.start(schedule)
        except ScheduleError as error:
            raise ApiError(400, str(error), code="bad_schedule") from None
        except UnknownPolicyError as error:
            raise ApiError(400, str(error), code="unknown_policy") from None
        except NeedsGenError as error:
            raise ApiError(409, str(error), code="needs_usage_by_gen") from None
        except ScheduleRunningError as error:
            raise ApiError(409, str(error), code="schedule_running") from None
        return json_response({"state": runner.state, "blocks": len(schedule.blocks)}, 202)

    async def abort_blocks(request: web.Request) -> web.StreamResponse:
        runner.abort()
        return await get_blocks(request)

    return [
        web.get("/admin/policy", get_policy),
        web.post("/admin/policy", set_policy),
        web.get("/admin/blocks", get_blocks),
        web.post("/admin/blocks", start_blocks),
        web.delete("/admin/blocks", abort_blocks),
    ]
