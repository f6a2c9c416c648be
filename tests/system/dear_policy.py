"""A plug-in that costs a lot: with 2 ms of CPU an event, a core carries no more than 500 a second."""

from __future__ import annotations

import time
from collections.abc import Callable

COST_NS = 2_000_000


def policy(ctx_usage: object) -> Callable[[bytes], bytes]:
    """As `prefilter` does, after the wait."""
    from sim.orchestrator.policies import make

    rewrite = make("prefilter", ctx_usage)  # type: ignore[arg-type]

    def dear(event: bytes) -> bytes:
        end_ns = time.thread_time_ns() + COST_NS
        while time.thread_time_ns() < end_ns:
            pass
        return rewrite(event)

    return dear
