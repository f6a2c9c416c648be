"""The speeds to reach, and what a run says of each.  Pure.

Ratios are of CPU time per token within the same pass, at the dense load; their median decides.  What gen and client
cost beside the relay is taken without the stamps that latency is read from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.figures import Cells, Spread, figure_at, spread_of
from bench.programme import DIRECT
from bench.wording import NOTHING, rate_text, spread_text

__all__ = ["CPU", "REQUEST", "RSS", "SYSCALLS", "TRANSIT_P99", "Verdict", "climb_text", "find", "verdicts"]

CPU = {role: figure_at("processes", role, "cpu_us_per_token") for role in ("relay", "gen", "client")}
RSS = {role: figure_at("processes", role, "rss_kb_per_stream") for role in ("relay", "gen", "client", "ctx")}
REQUEST = figure_at("processes", "relay", "cpu_us_per_request")
SYSCALLS = figure_at("syscalls", "per_token")
TRANSIT_P99 = figure_at("transit_s", "p99")
REACH_TOK_S, AIM_TOK_S = 30_000, 55_000


@dataclass(frozen=True, slots=True)
class Verdict:
    """One row: the figure, what to reach and to aim at, what was measured, and whether it is met."""

    figure: str
    reach: str
    aim: str
    measured: str
    met: str


def verdicts(cells: Cells, lead: str, elsewhere: Mapping[str, float]) -> list[Verdict]:
    """Every target; ``lead`` is our leanest engine with its filter, ``elsewhere`` what other commands measured."""
    ours = ("relay", "dense", lead)

    def against(other: str | None) -> Spread | None:
        return None if other is None else cells.ratio(ours, ("relay", "dense", other), CPU["relay"])

    def beside(role: str) -> Spread | None:
        plain = ("relay", "plain", lead) if cells.of("relay", "plain", lead) else ours
        return cells.ratio(plain, plain, CPU[role], CPU["relay"])

    def added_p99_ms(load: str) -> Spread | None:
        added = cells.difference(("relay", load, lead), ("relay", load, DIRECT), TRANSIT_P99)
        return None if added is None else Spread(added.median * 1e3, added.low * 1e3, added.high * 1e3, added.count)

    def of_requests(load: str) -> Spread | None:
        cost = cells.spread("request", load, lead, REQUEST)
        return None if cost is None else Spread(cost.median / 1e3, cost.low / 1e3, cost.high / 1e3, cost.count)

    def given(name: str) -> Spread | None:
        return spread_of([elsewhere.get(name)])

    relays = cells.names("relay", "dense")
    nginx, trt, parse = find(relays, "nginx"), find(relays, "trt"), find(relays, "stream+parse")
    rivals = [against(find(relays, word)) for word in ("sglang", "vllm")]
    dearest = [rival.median for rival in rivals if rival is not None]
    rows = [
        _at_most(f"`{lead}` / nginx, CPU per token", against(nginx), 1.25, 1.10),
        _at_most(f"`{lead}` / FastAPI + aiohttp in TRT-LLM's shape", against(trt), 0.50, 0.40),
        _at_most(f"`{lead}` / `stream+parse`", against(parse), 0.45, 0.37),
        Verdict(
            f"`{lead}` / sglang-router and / vllm-router",
            "below 1 both",
            "",
            " and ".join(spread_text(rival, 2) for rival in rivals),
            NOTHING if len(dearest) < len(rivals) else "yes" if max(dearest) < 1 else "no",
        ),
        _at_most(f"user instructions per chunk, `{lead}`", given("instructions"), 12_000, 8_000, digits=0),
        _at_most("system calls per token", cells.spread(*ours, SYSCALLS), 2.25, 2.15),
        _highest_rate(cells, lead),
        _at_most("gen / relay, CPU per token", beside("gen"), 0.75, 0.6),
        _at_most("Locust load / relay, CPU per token", beside("client"), 0.75, 0.6),
        _at_most("whole chain, 3,000 streams, 15k tok/s, added p99, ms", added_p99_ms("wide"), 5, None),
        _at_most("whole chain, 3,000 streams, 30k tok/s, added p99, ms", added_p99_ms("fast"), None, 10),
        *(
            _at_most(f"memory per stream at 3,000, {role}, KB", cells.spread("relay", "wide", lead, rss), 60, 30)
            for role, rss in RSS.items()
        ),
        _at_most("two-hop request, orchestrator CPU, ms", of_requests("small"), 0.6, 0.4),
        _at_most("the same with a prompt of 40k tokens, ms", of_requests("large"), 3, None),
        _at_most("`make compare`: mde, % of cost per chunk", given("mde"), 4, 2),
    ]
    return list(rows)


def find(names: Sequence[str], word: str) -> str | None:
    """The first name that holds ``word``; others' programs are named by whoever adds them."""
    return next((name for name in names if word in name.lower()), None)


def _at_most(figure: str, measured: Spread | None, reach: float | None, aim: float | None, digits: int = 2) -> Verdict:
    def limit(value: float | None) -> str:
        return "" if value is None else f"<= {value:,g}"

    if measured is None:
        met = NOTHING
    elif aim is not None and measured.median <= aim:
        met = "yes, the aim too"
    elif reach is None:
        met = "no"
    else:
        met = "yes" if measured.median <= reach else "no"
    if met == "yes, the aim too" and reach is None:
        met = "yes"
    return Verdict(figure, limit(reach), limit(aim), spread_text(measured, digits), met)


def _highest_rate(cells: Cells, lead: str) -> Verdict:
    figure = "highest rate of one core, added p99 < 50 ms, tok/s"
    reach, aim = f">= {rate_text(REACH_TOK_S)}", f">= {rate_text(AIM_TOK_S)}"
    climbs = [cell for cell in cells.of("capacity", "climb", lead) if not cell.get("problem")]
    if not climbs:
        return Verdict(figure, reach, aim, NOTHING, NOTHING)
    highest = climbs[0]["highest_tok_s"] or 0
    bound_by_relay = climbs[0]["bound"] == "relay"
    met = "yes, the aim too" if highest >= AIM_TOK_S else "yes" if highest >= REACH_TOK_S else "no"
    if met == "no" and not bound_by_relay:
        met = "not known: generator-bound"
    return Verdict(figure, reach, aim, climb_text(climbs[0]), met)


def climb_text(climb: Mapping[str, Any]) -> str:
    """As in "25k", or ">= 35k, generator-bound"."""
    highest = climb["highest_tok_s"]
    if highest is None:
        return f"< {rate_text(min(step['tok_s'] for step in climb['steps']))}"
    if climb["bound"] == "relay":
        return rate_text(highest)
    return f">= {rate_text(highest)}" + (", generator-bound" if climb["bound"] == "generator" else "")
