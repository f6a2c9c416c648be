"""What a request costs the orchestrator beside its chunks, where a run can tell the two apart.

CPU is measured over blocks in which chunks and requests both came.  Where the two vary independently, as with
streams that come and go at random, least squares of CPU on both gives each its slope; where they do not, any
split would fit, so none is given and the reason is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from loadtest.experiment.blocks import Block
from loadtest.experiment.stats import marginal_costs, mean_over_rounds

__all__ = ["RUN_HAS_NO_COUNTS", "request_cost", "without_request_cost"]

RUN_HAS_NO_COUNTS = (
    "a run's one-second samples hold CPU but no counts of chunks and requests, so their costs can't be told apart; "
    "compare measures both"
)
_SLOPES = 2  # a chunk's cost and a request's


def request_cost(blocks: Sequence[Block], rng: np.random.Generator) -> dict[str, Any]:
    """``cpu_us_per_request`` of one arm from its blocks, one a round: estimate and 95 % interval, or why there is none.

    The interval is clustered by round, as every other; it is None below four rounds.
    """
    if (reason := _why_not(blocks)) is not None:
        return without_request_cost(reason)
    slopes = marginal_costs(
        [[block.chunks] for block in blocks],
        [[block.requests] for block in blocks],
        [[block.cpu_ns / 1e3] for block in blocks],
    )
    if slopes is None:
        return without_request_cost(
            "chunks and requests rose and fell together from block to block, so their costs can't be told apart"
        )
    cost = mean_over_rounds(slopes[:, -1], rng)
    figure = {"estimate": cost.value, "ci95": None if cost.ci95 is None else list(cost.ci95)}
    return {"cpu_us_per_request": figure, "cpu_us_per_request_reason": None}


def without_request_cost(reason: str) -> dict[str, Any]:
    """The same two keys where there is no figure."""
    return {"cpu_us_per_request": None, "cpu_us_per_request_reason": reason}


def _why_not(blocks: Sequence[Block]) -> str | None:
    if not blocks:
        return "no round counts"
    if not any(block.requests for block in blocks):
        return "no request came inside a measured block"
    if len(blocks) <= _SLOPES:
        return f"{len(blocks)} rounds are too few to tell chunks from requests: it takes more than {_SLOPES}"
    return None
