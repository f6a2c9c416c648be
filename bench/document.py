"""The document of a bench run, written from its raw results.  Pure: manifest and cells in, markdown out.

Only what stands between the two marks is the bench's; what others wrote into the same file stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bench.figures import Cells, Figure, figure_at
from bench.programme import DIRECT
from bench.targets import CPU, REQUEST, RSS, SYSCALLS, TRANSIT_P99, climb_text, find, verdicts
from bench.wording import NOTHING, short_problem, spread_text

__all__ = ["BEGIN", "END", "render", "replaced"]

BEGIN, END = "<!-- bench: begin -->", "<!-- bench: end -->"
WAITED_SHARE = 0.05
"""Run-queue wait of a subject above this share of a window is told: the box was in its way."""

_TRANSIT_P50 = figure_at("transit_s", "p50")
_ROLES = ("gen", "ctx", "relay", "client")


def replaced(document: str, part: str) -> str:
    """``document`` with the bench's part in place of the old one; at the end where there was none."""
    marked = f"{BEGIN}\n{part.strip()}\n{END}"
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if begin and end:
        return before + marked + after
    return (document.rstrip() + "\n\n" if document.strip() else "# Benchmarks\n\n") + marked + "\n"


def render(manifest: Mapping[str, Any], results: Sequence[Mapping[str, Any]]) -> str:
    """The bench's part of the document."""
    cells = Cells(results)
    plan = manifest["plan"]
    lines = [*_head(manifest, cells), "", "## Speed to reach", "", *_targets(manifest, cells)]
    for load in ("dense", "wide"):
        shape = plan[load]
        lines += ["", f"## Relays, {_shape_text(shape)}", "", *_relays(cells, load, manifest)]
    lines += ["", "## The highest rate of one core", "", *_climbs(cells, plan)]
    lines += [
        "",
        f"## The whole chain, {plan['wide']['streams']:,} streams",
        "",
        *_chain(cells, plan, manifest["lead"]),
    ]
    lines += ["", "## Requests", "", *_requests(cells, plan)]
    lines += ["", f"## Gen servers, {_shape_text(plan['dense'])}", "", *_fakes(cells, "gen", "gen")]
    lines += ["", f"## Load clients, {_shape_text(plan['dense'])}", "", *_fakes(cells, "client", "client")]
    lines += _missing(manifest)
    return "\n".join(lines) + "\n"


def _head(manifest: Mapping[str, Any], cells: Cells) -> list[str]:
    host, plan = manifest["host"], manifest["plan"]
    programs = ", ".join(f"{name} {version}" for name, version in manifest["candidates"].items())
    libraries = ", ".join(f"{name} {version}" for name, version in manifest["versions"].items())
    notes = []
    if manifest["interrupted"]:
        notes.append("**The run was interrupted: what is missing below was not measured.**")
    if manifest["quick"]:
        notes.append("**A quick run: it shows that everything works; its figures are none.**")
    if not manifest["pinned"]:
        notes.append("**Nothing was pinned: one CPU cannot be shared out.**")
    waited = _waited(cells)
    if waited:
        notes.append(f"Other work was in the way (run-queue wait above {WAITED_SHARE:.0%} of a window) in {waited}.")
    return [
        f"Written by `{manifest['command']}` on {manifest['started'][:10]}; `make bench` measures anew.",
        "",
        *(line for note in notes for line in (note, "")),
        f"- Machine: {host['model'] or 'CPU not known'}, {host['cpus']} CPUs usable, {host['memory_gib']:g} GiB, "
        f"Linux {host['kernel']}.",
        f"- Ours: {libraries}.",
        *([f"- Others: {programs}."] if programs else []),
        f"- {plan['passes']} interleaved passes (A B C ... A B C ...), every cell with processes of its own: "
        f"all streams open, {plan['settle_s']:g} s to settle, a window of {plan['window_s']:g} s. "
        "Figures are medians over passes with least and greatest; ratios are taken within a pass, then their median.",
        "- What is measured has one CPU to itself; all else (gen, ctx, load) shares the rest. "
        "CPU is the kernel's own count in ns (schedstat) of all threads and children, per token that arrived.",
        "- A cost per token falls as load rises, and a box drifts by a fifth within an hour: "
        "compare figures of one table, not of two runs.",
        "- Every stream was checked (count, order, end; behind our relay usage too, and bytes by sample) and the "
        "client's counts held against gen's; a cell that lost anything says so.",
    ]


def _waited(cells: Cells) -> str:
    names = []
    for cell in cells.cells:
        role = {"gen": "gen", "client": "client"}.get(cell["table"], "relay")
        share = figure_at("processes", role, "wait_share")(cell)
        if share is not None and share > WAITED_SHARE and cell["table"] != "step":
            names.append(f"{cell['name']} ({cell['table']} {cell['load']}, pass {cell['pass'] + 1}: {share:.0%})")
    return f"{len(names)} cells, such as {names[0]}" if len(names) > 3 else ", ".join(names)


def _targets(manifest: Mapping[str, Any], cells: Cells) -> list[str]:
    rows = verdicts(cells, manifest["lead"], manifest.get("elsewhere", {}))
    return [
        *_table(
            ("figure", "reach", "aim", "measured", "met"),
            ((row.figure, row.reach, row.aim, row.measured, row.met) for row in rows),
        ),
        "",
        "Instructions per chunk come from `disagg-sim compare --counter instructions`, the mde from `make compare`.",
    ]


def _relays(cells: Cells, load: str, manifest: Mapping[str, Any]) -> list[str]:
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
            f"`{name}`" if name in manifest["ours"] else name,
            one(CPU["relay"], 1),
            spread_text(over, 2),
            one(figure_at("processes", "relay", "cpu_share"), 0, 100) + ("" if name == DIRECT else " %"),
            added(_TRANSIT_P50),
            added(TRANSIT_P99),
            one(SYSCALLS, 2),
            one(figure_at("events_per_read"), 2),
            one(RSS["relay"], 1),
            _streams_text(cells.of("relay", load, name)),
        )

    return [*_table(head, map(row, names)), *_syscall_notes(cells, load)]


def _syscall_notes(cells: Cells, load: str) -> list[str]:
    counted = [cell["syscalls"] for cell in cells.cells if cell["load"] == load and cell.get("syscalls")]
    problems = {one["problem"] for one in counted if one["problem"]}
    by = {one["by"] for one in counted if one["per_token"] is not None}
    if problems:
        return ["", f"System calls were not counted: {short_problem(sorted(problems)[0])}."]
    return ["", f"System calls were counted by {' and '.join(sorted(by))} after the first pass's window."] if by else []


def _streams_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Whether anything was lost, was behind its rate, or could not be measured."""
    faults = [short_problem(cell["problem"]) for cell in rows if cell.get("problem")]
    measured = [cell for cell in rows if not cell.get("problem")]
    faults += [cell["lost"] for cell in measured if cell["lost"]]
    behind = [cell["tok_s"] for cell in measured if cell.get("behind") and cell["tok_s"]]
    if behind:
        faults.append(f"behind: {min(behind):,.0f} tok/s arrived")
    if not faults:
        return "all right"
    return _cell_safe("; ".join(dict.fromkeys(faults)))


def _climbs(cells: Cells, plan: Mapping[str, Any]) -> list[str]:
    rows = []
    for name in cells.names("capacity"):
        climb = cells.of("capacity", "climb", name)[0]
        if climb.get("problem"):
            rows.append((name, NOTHING, _cell_safe(short_problem(climb["problem"]))))
            continue
        beyond = next((step for step in climb["steps"] if step["state"] != "held"), None)
        why = "" if beyond is None else f"{beyond['tok_s']:,} tok/s: {short_problem(beyond['why'])}"
        rows.append((name, climb_text(climb), _cell_safe(why)))
    return [
        f"{plan['climb_streams']:,} streams; a step is held while added p99 is below 50 ms and the stream keeps its "
        "rate. One climb each, after all passes.",
        "",
        *_table(("relay", "tok/s", "first step that was not held"), rows),
    ]


def _chain(cells: Cells, plan: Mapping[str, Any], lead: str) -> list[str]:
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
    return [f"Relay `{lead}`; shares of a core.", "", *_table(head, map(row, ("wide", "fast")))]


def _requests(cells: Cells, plan: Mapping[str, Any]) -> list[str]:
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
    return ["Two hops, a reply of one token, open loop; what an idle process costs is in it.", "", *_table(head, rows)]


def _per_request(role: str) -> Figure:
    return REQUEST if role == "relay" else figure_at("processes", role, "cpu_us_per_request")


def _fakes(cells: Cells, table: str, role: str) -> list[str]:
    names = cells.names(table, "dense")

    def row(name: str) -> tuple[str, ...]:
        def one(figure: Figure, digits: int, scale: float = 1.0) -> str:
            return spread_text(cells.spread(table, "dense", name, figure), digits, scale)

        over = cells.ratio((table, "dense", name), (table, "dense", names[0]), CPU[role])
        return (
            name,
            one(CPU[role], 1),
            spread_text(over, 2),
            one(figure_at("tok_s"), 1, 1e-3) + "k",
            one(RSS[role], 1),
            _streams_text(cells.of(table, "dense", name)),
        )

    head = (role, "CPU us/token", f"/ {names[0]}" if names else "/", "tok/s", "KB/stream", "streams")
    return _table(head, map(row, names))


def _missing(manifest: Mapping[str, Any]) -> list[str]:
    if not manifest["missing"]:
        return []
    return ["", "## Not run here", "", *(f"- {name}: {reason}" for name, reason in manifest["missing"].items())]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(row)} |" for row in rows]
    if not lines:
        return ["Not measured in this run."]
    return [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}", *lines]


def _shape_text(shape: Mapping[str, Any]) -> str:
    return f"{shape['streams']:,} x {shape['tok_s']:g} tok/s"


def _cell_safe(text: str) -> str:
    return text.replace("|", "/").replace("\n", " ")
