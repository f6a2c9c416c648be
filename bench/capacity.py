"""The highest rate that one core holds: up a ladder of rates until the relay is late or behind.

Saturated relays merge tokens into fewer reads, and tok/s keep rising while latency collapses; so the limit is set by
added latency and by the rate asked for.  Where gen or the client give out first, the relay's own limit is not known.
Pure but for `climb`, which is given what measures one step.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

__all__ = ["LADDER_TOK_S", "climb", "judge_step", "start_of"]

LADDER_TOK_S = (
    *(2_000, 4_000, 6_000, 8_000, 10_000, 12_500, 15_000, 20_000, 25_000, 30_000, 35_000, 40_000, 45_000, 50_000),
    *(55_000, 60_000, 70_000, 80_000, 100_000),
)  # fmt: skip
ADDED_P99_S = 0.050
DELIVERED_SHARE = 0.97
GEN_SHARE = 0.98
RELAY_BUSY, OTHERS_BUSY = 0.90, 0.95
START_SHARE = 0.7
"""Of what the cost per token at 15,000 tok/s would allow: a token costs less at higher rates."""

HELD, RELAY, GENERATOR = "held", "relay", "generator"


def judge_step(cell: Mapping[str, Any], direct_p99_s: float) -> tuple[str, str]:
    """(held, relay or generator; why) of one step's cell; ``direct_p99_s`` is the latency without a relay."""
    if cell.get("problem"):
        return RELAY, str(cell["problem"])
    shares = {role: figures["cpu_share"] for role, figures in cell["processes"].items()}
    relay = shares.pop("relay")
    late = []
    if cell["behind"] or (cell["delivered_share"] or 0.0) < DELIVERED_SHARE:
        late.append(f"{cell['tok_s'] or 0:,.0f} tok/s arrived")
    transit = cell.get("transit_s")
    added_s = None if transit is None else transit["p99"] - direct_p99_s
    if added_s is not None and added_s >= ADDED_P99_S:
        late.append(f"added p99 {added_s * 1e3:.0f} ms")
    elif added_s is None and relay >= RELAY_BUSY:
        late.append("latency is not known")  # a saturated relay may keep its rate, with its tokens ever later
    if cell.get("lost"):
        late.append(str(cell["lost"]))
    if not late:
        return HELD, ""
    gen_late = (cell["gen_share"] or 0.0) < GEN_SHARE or (cell["gen_late_p99_s"] or 0.0) >= ADDED_P99_S
    others = sum(shares.values())
    if relay < RELAY_BUSY and (others > OTHERS_BUSY or gen_late):
        return GENERATOR, f"{', '.join(late)}; the fakes' core is {others:.0%} busy, the relay's {relay:.0%}"
    return RELAY, f"{', '.join(late)}; the relay's core is {relay:.0%} busy"


def start_of(ladder: Sequence[int], cpu_us_per_token: float | None) -> int:
    """The index of the first step to try, from the cost at 15,000 tok/s, where that is known."""
    allowed = START_SHARE * 1e6 / cpu_us_per_token if cpu_us_per_token else ladder[len(ladder) // 2]
    below = [index for index, rate in enumerate(ladder) if rate <= allowed]
    return below[-1] if below else 0


async def climb(
    ladder: Sequence[int],
    first: int,
    measure: Callable[[int], Awaitable[Mapping[str, Any]]],
    direct_p99_s: float,
) -> dict[str, Any]:
    """Up from step ``first`` to the first that is not held, or down to the first that is.

    ``highest_tok_s`` is None if none is held; ``bound`` says what ended the climb: relay, generator, or ladder.
    """
    steps: list[dict[str, Any]] = []
    highest: int | None = None
    bound = "ladder"
    index = first
    while 0 <= index < len(ladder):
        rate = ladder[index]
        state, why = judge_step(await measure(rate), direct_p99_s)
        steps.append({"tok_s": rate, "state": state, "why": why})
        if state == HELD:
            highest = rate
            if bound != "ladder":
                break  # on the way down
            index += 1
            continue
        bound = state
        if highest is not None:
            break
        index -= 1
    return {"highest_tok_s": highest, "bound": bound, "steps": steps}
