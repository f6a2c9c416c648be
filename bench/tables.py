"""The tables of the document: relays, climbs, chain, requests, fakes and clients.  Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from bench.figures import Cells, Figure, figure_at
from bench.programme import DIRECT
from bench.targets import CPU, REQUEST, RSS, SYSCALLS, TRANSIT_P99, climb_text, find
from bench.wording import NOTHING, short_problem, spread_text

__all__ = ["chain", "climbs", "fakes", "relays", "requests", "table"]

_TRANSIT_P50 = figure_at("transit_s", "p50")
_ROLES = ("gen", "ctx", "relay", "client")


def relays(cells: Cells, load: str, ours: Collection[str]) -> list[str]:
    """Every relay at one load; names of ours are set apart."""
    names = cells.names("relay", load)
    nginx = find(names, "nginx")
    head = (
        *("relay", "CPU us/token", "/ nginx", "share of a core", "added p50, ms", "added p99, ms"),
        *("system calls/token", "events/read", "KB/stream", "streams"),
    )

    def row(name: str) -> tuple[str, ...]:
        def one(figure: Figure, digits: int, scale: float = 1.0) -> str:
            return spread_text(cells.spread("relay", load, name, figure), digits, scale)

        def added(figure: Figure) -> str:
            if name == DIRECT:
                return one(figure, 2, 1e3) + (" in all" if cells.spread("relay", load, name, figure) else "")
            spread = cells.difference(("relay", load, name), ("relay", load, DIRECT), figure)
            return spread_text(spread, 2, 1e3)

        over = None
        if nginx is not None:
            over = cells.ratio(("relay", load, name), ("relay", load, nginx), CPU["relay"])
        return (
            f"`{name}`" if name in ours else name,
            one(CPU["relay"], 1),
            spread_text(over, 2),
            one(figure_at("processes", "relay", "cpu_share"), 2),
            added(_TRANSIT_P50),
            added(TRANSIT_P99),
            one(SYSCALLS, 2),
            one(figure_at("events_per_read"), 2),
            one(RSS["relay"], 1),
            _streams_text(cells.of("relay", load, name)),
        )

    return [*table(head, map(row, names)), *_syscall_notes(cells, load)]


def _syscall_notes(cells: Cells, load: str) -> list[str]:
    counted = [cell["syscalls"] for cell in cells.cells if cell["load"] == load and cell.get("syscalls")]
    problems = {one["problem"] for one in counted if one["problem"]}
    by = {one["by"] for one in counted if one["per_token"] is not None}
    if problems:
        return ["", f"System calls were not counted: {short_problem(min(problems))}."]
    text = f"System calls were counted by {' and '.join(sorted(by))}, in a window of their own in the first pass."
    return ["", text] if by else []


def _streams_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Whether anything was lost, was behind its rate, or could not be measured."""
    faults = [short_problem(cell["problem"]) for cell in rows if cell.get("problem")]
    measured = [cell for cell in rows if not cell.get("problem")]
    faults += [cell["lost"] for cell in measured if cell["lost"]]
    open_streams = [cell for cell in measured if cell.get("open_streams", 0) < cell.get("streams", 0)]
    if open_streams:
        least = min(open_streams, key=lambda cell: int(cell["open_streams"]))
        faults.append(f"only {least['open_streams']:,} of {least['streams']:,} streams were open in time")
    behind = [cell["tok_s"] for cell in measured if cell.get("behind") and cell["tok_s"]]
    if behind:
        faults.append(f"behind: {min(behind):,.0f} tok/s arrived")
    if not faults:
        return "all right"
    return _cell_safe("; ".join(dict.fromkeys(faults)))


def climbs(cells: Cells, plan: Mapping[str, Any]) -> list[str]:
    """The highest rate of each relay that was looked for, and what ended the climb."""
    rows = []
    for name in cells.names("capacity"):
        climb = cells.of("capacity", "climb", name)[0]
        if climb.get("problem"):
            rows.append((name, NOTHING, _cell_safe(short_problem(climb["problem"]))))
            continue
        beyond = next((step for step in climb["steps"] if step["state"] != "held"), None)
        why = "" if beyond is None else f"{beyond['tok_s']:,} tok/s: {short_problem(beyond['why'])}"
        rows.append((name, climb_text(climb), _cell_safe(why)))
    text = (
        f"{plan['climb_streams']:,} streams; a step is held while added p99 is below 50 ms and the streams keep their "
        "rate. One climb each, after all passes."
    )
    return [text, "", *table(("relay", "tok/s", "first step that was not held"), rows)]


def chain(cells: Cells, plan: Mapping[str, Any], lead: str) -> list[str]:
    """All processes together, at both rates of many streams."""

    def row(load: str) -> tuple[str, ...]:
        shape = plan[load]

        def total(cell: Mapping[str, Any]) -> float | None:
            processes = cell.get("processes")
            return None if not processes else sum(figures["cpu_share"] for figures in processes.values())

        shares = [
            spread_text(cells.spread("relay", load, lead, figure_at("processes", role, "cpu_share")), 2)
            for role in _ROLES
        ]
        added = cells.difference(("relay", load, lead), ("relay", load, DIRECT), TRANSIT_P99)
        return (
            f"{shape['streams'] * shape['tok_s']:,.0f}",
            *shares,
            spread_text(cells.spread("relay", load, lead, total), 2),
            spread_text(added, 2, 1e3),
            _streams_text(cells.of("relay", load, lead)),
        )

    head = ("tok/s", *_ROLES, "sum of cores", "added p99, ms", "streams")
    return [f"Relay `{lead}`; shares of a core.", "", *table(head, map(row, ("wide", "fast")))]


def requests(cells: Cells, plan: Mapping[str, Any]) -> list[str]:
    """What a request costs, small and large."""
    rows = []
    for load in ("small", "large"):
        asked = plan[f"{load}_request"]
        for name in cells.names("request", load):
            costs = [
                spread_text(cells.spread("request", load, name, _per_request(role)), 0)
                for role in ("relay", "ctx", "gen")
            ]
            rows.append(
                (
                    f"`{name}`",
                    f"{asked['prompt_tokens']:,}",
                    f"{asked['requests_s']:g}",
                    *costs,
                    _streams_text(cells.of("request", load, name)),
                )
            )
    head = ("orchestrator", "prompt, tokens", "requests/s", "its CPU us/request", "ctx's", "gen's", "streams")
    return ["Two hops, a reply of one token, open loop; what an idle process costs is in it.", "", *table(head, rows)]


def _per_request(role: str) -> Figure:
    return REQUEST if role == "relay" else figure_at("processes", role, "cpu_us_per_request")


def fakes(cells: Cells, role: str) -> list[str]:
    """Gen servers or load clients, each alone with its counterpart of ours; ratios are to the first, which is ours."""
    names = cells.names(role, "plain")

    def row(name: str) -> tuple[str, ...]:
        def one(figure: Figure, digits: int, scale: float = 1.0) -> str:
            return spread_text(cells.spread(role, "plain", name, figure), digits, scale)

        over = cells.ratio((role, "plain", name), (role, "plain", names[0]), CPU[role])
        return (
            name,
            one(CPU[role], 1),
            spread_text(over, 2),
            one(figure_at("tok_s"), 0),
            one(RSS[role], 1),
            _streams_text(cells.of(role, "plain", name)),
        )

    head = (role, "CPU us/token", f"/ {names[0]}" if names else "/", "tok/s", "KB/stream", "streams")
    return table(head, map(row, names))


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A markdown table; a sentence where there is no row."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    if not lines:
        return ["Not measured in this run."]
    return [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}", *lines]


def _cell_safe(text: str) -> str:
    return text.replace("|", "/").replace("\n", " ")
