"""Readiness: each upstream's /health asked about once a second.

While a block schedule runs, a server that is ready is left alone: nothing of ours may run inside a block.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from sim.orchestrator.upstream import Upstream

__all__ = ["watch_readiness"]

READY_POLL_S = 1.0
NOT_READY_POLL_S = 0.2

log = logging.getLogger(__name__)


async def watch_readiness(upstreams: Iterable[Upstream], quiet: Callable[[], bool]) -> None:
    """Poll until cancelled; ``quiet`` says when ready servers are not to be asked."""
    async with asyncio.TaskGroup() as group:
        for upstream in upstreams:
            group.create_task(_watch(upstream, quiet))


async def _watch(upstream: Upstream, quiet: Callable[[], bool]) -> None:
    while True:
        was_ready = upstream.ready
        if not (was_ready and quiet()):
            await upstream.poll()
        if upstream.ready != was_ready:
            state = "ready" if upstream.ready else f"not ready: {upstream.problem}"
            log.info("%s server %s is %s", upstream.role, upstream.url, state)
        await asyncio.sleep(READY_POLL_S if upstream.ready else NOT_READY_POLL_S)
