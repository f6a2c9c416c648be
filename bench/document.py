"""The document of a bench run, written from its raw results.  Pure: manifest and cells in, markdown out.

Only what stands between the two marks is the bench's; what others wrote into the same file stays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.figures import Cells, figure_at
from bench.tables import chain, climbs, fakes, relays, requests, table
from bench.targets import verdicts
from bench.wording import NOTHING

__all__ = ["BEGIN", "END", "render", "replaced"]

BEGIN, END = "<!-- bench: begin -->", "<!-- bench: end -->"
WAITED_SHARE = 0.05
"""Run-queue wait of a subject above this share of a window is told: the box was in its way."""

_METHOD = """\
- What is measured has one CPU to itself; all else (gen, ctx, load) shares the rest.
  CPU is the kernel's own count in ns (schedstat), of all threads and children, per token that arrived.
- Figures are medians over passes, with least and greatest; a ratio is taken within each pass, then the median of those.
- A cost per token falls as load rises, and a box drifts by a fifth within an hour: compare figures of one run, at one load.
- Added latency is the time from gen's write to the client's read, over every token of the window, less the same without a relay.
- Events of the relay tables carry that time, which differs in each: `prefilter-tail`, which knows events by what stands
  before and behind the text, has to search them all. What it costs otherwise is in the table of `disagg-sim micro`.
- Every stream was checked (count, order, end; behind our relay usage too, and bytes by sample), and the client's counts
  held against gen's to the unit; a cell that lost anything says so.
- Memory per stream is what a process grew by while its streams opened.  A KB is 1,000 bytes.\
"""  # noqa: E501


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
    cells, plan = Cells(results), manifest["plan"]
    dense, wide = (f"{plan[load]['streams']:,} x {plan[load]['tok_s']:g} tok/s" for load in ("dense", "wide"))
    sections = {
        "Speed to reach": _targets(manifest, cells),
        f"Relays, {dense}": relays(cells, "dense", manifest["ours"]),
        f"Relays, {wide}": relays(cells, "wide", manifest["ours"]),
        "The highest rate of one core": climbs(cells, plan),
        f"The whole chain, {plan['wide']['streams']:,} streams": chain(cells, plan, manifest["lead"]),
        "Requests": requests(cells, plan),
        f"Gen servers, {dense}": fakes(cells, "gen"),
        f"Load clients, {dense}": fakes(cells, "client"),
        "Not run here": [f"- {name}: {reason}" for name, reason in manifest["missing"].items()],
    }
    lines = _head(manifest, cells)
    for title, section in sections.items():
        lines += ["", f"## {title}", "", *section] if section else []
    return "\n".join(lines) + "\n"


def _head(manifest: Mapping[str, Any], cells: Cells) -> list[str]:
    host, plan = manifest["host"], manifest["plan"]
    libraries, programs = (
        ", ".join(f"{name} {version}" for name, version in manifest[group].items())
        for group in ("versions", "candidates")
    )
    machine = f"{host['model'] or 'CPU not known'}, {host['cpus']} CPUs, {host['memory_gib']:g} GiB"
    passes = "1 pass" if plan["passes"] == 1 else f"{plan['passes']} interleaved passes (A B C ... A B C ...)"
    lines = [f"Written by `{manifest['command']}` on {manifest['started'][:10]}; `make bench` measures anew.", ""]
    for note in _notes(manifest, cells):
        lines += [note, ""]
    lines += [f"- Machine: {machine}, Linux {host['kernel']}.", f"- Ours: {libraries}."]
    lines += [f"- Others: {programs}."] if programs else []
    lines.append(
        f"- {passes}; every cell has processes of its own: all streams open, {plan['settle_s']:g} s to settle, "
        f"a window of {plan['window_s']:g} s. With {plan['wide']['streams']:,} streams, what no target names is "
        "measured in every other pass."
    )
    return [*lines, *_METHOD.splitlines()]


def _notes(manifest: Mapping[str, Any], cells: Cells) -> list[str]:
    """What a reader must know before any figure."""
    notes = []
    if manifest["interrupted"]:
        notes.append("**The run was interrupted: what is missing below was not measured.**")
    if manifest["quick"]:
        notes.append("**A quick run: it shows that everything works; nothing is to be concluded from its figures.**")
    if not manifest["pinned"]:
        notes.append("**Nothing was pinned: one CPU cannot be shared out.**")
    waited = []
    for cell in cells.cells:
        role = cell["table"] if cell["table"] in ("gen", "client") else "relay"
        share = figure_at("processes", role, "wait_share")(cell)
        if share is not None and share > WAITED_SHARE and cell["table"] != "step":
            waited.append((share, f"{cell['name']}, {cell['table']} {cell['load']}, pass {cell['pass'] + 1}"))
    if waited:
        share, where = max(waited)
        notes.append(
            f"**Other work was in the way: in {len(waited)} of {len(cells.cells)} cells what is measured waited for "
            f"its CPU for more than {WAITED_SHARE:.0%} of the window (most: {share:.0%}, {where}).**"
        )
    return notes


def _targets(manifest: Mapping[str, Any], cells: Cells) -> list[str]:
    rows = verdicts(cells, manifest["lead"], manifest.get("elsewhere", {}))
    return [
        *table(
            ("figure", "reach", "aim", "measured", "met"),
            # Loads that show nothing of a speed meet nothing either.
            ((row.figure, row.reach, row.aim, row.measured, NOTHING if manifest["quick"] else row.met) for row in rows),
        ),
        "",
        "Instructions per chunk come from `disagg-sim compare --counter instructions`, the mde from `make compare`.",
    ]
