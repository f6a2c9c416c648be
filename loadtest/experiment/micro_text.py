"""The table of ``disagg-sim micro`` in a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from loadtest.experiment.micro import MAX_WAIT_SHARE

__all__ = ["render_micro"]

_TITLES = {
    "absent": "no usage",
    "null": "usage null on every chunk",
    "final": "the closing event, which holds the usage (one a stream)",
    "continuous": "a whole usage on every chunk",
}
_CELL_WIDTH = 18
_SHARE_WIDTH = 9
_SHARE_SIZE = 258  # bytes: the chunk of the seed's figures


def render_micro(result: Mapping[str, Any]) -> str:
    """Microseconds of CPU per chunk, median [lowest, highest] over processes; one part for each kind of usage."""
    seed, at = result["seed_figures"], result["at_tok_s"]
    heading = (
        f"CPU us per chunk: median [lowest, highest] over processes; core: share of one at {at:,.0f} tok/s.\n"
        f"The seed's figures ({seed['source']}): {seed['parse_us_per_chunk']} when every chunk is parsed, "
        f"{seed['prefilter_us_per_chunk']} with a filter."
    )
    lines = [heading]
    usages = list(dict.fromkeys(cell["usage"] for cell in result["cells"]))
    for usage in usages:
        lines += ["", *_part(usage, [cell for cell in result["cells"] if cell["usage"] == usage])]
    return "\n".join([*lines, "", *_notes(result)])


def _part(usage: str, cells: Sequence[Mapping[str, Any]]) -> list[str]:
    sizes = list(dict.fromkeys(cell["size"] for cell in cells))
    policies = list(dict.fromkeys(cell["policy"] for cell in cells))
    name_width = max(20, *(len(policy) + 1 for policy in policies))
    named = [f"{cells[0]['chunk_bytes']} B"] if usage == "final" else [f"{size:,} B" for size in sizes]
    shown = min(sizes, key=lambda size: abs(size - _SHARE_SIZE))
    title = _TITLES[usage] if usage == "final" else f"{_TITLES[usage]} (core: at {shown:,} B)"
    names = "".join(name.rjust(_CELL_WIDTH) for name in named)
    lines = [title, " " * name_width + names + ("" if usage == "final" else "core".rjust(_SHARE_WIDTH))]
    for policy in policies:
        own = {cell["size"]: cell for cell in cells if cell["policy"] == policy}
        share = own[shown]["core_share_at_rate"] if shown in own else None
        end = "" if share is None else f"{share * 100:.2f} %".rjust(_SHARE_WIDTH)
        figures = "".join(_figure(own.get(size)).rjust(_CELL_WIDTH) for size in sizes)
        lines.append(policy.ljust(name_width) + figures + end)
    return lines


def _figure(cell: Mapping[str, Any] | None) -> str:
    if cell is None:
        return "-"
    cost = cell["us_per_chunk"]
    digits = next(digits for limit, digits in ((10, 2), (100, 1), (float("inf"), 0)) if cost["high"] < limit)
    return f"{cost['median']:.{digits}f} [{cost['low']:.{digits}f}, {cost['high']:.{digits}f}]"


def _notes(result: Mapping[str, Any]) -> list[str]:
    processes = result["processes"]
    lines = ["Sizes are met within 15 %; a size is left out where no chunk with that usage is so small."]
    lines += ["A warm loop over few events: the least a policy costs, not what it costs in a relay (see `compare`)."]
    if processes["waited"]:
        wait = processes["run_queue_wait_share"]
        waited, limit = _pct(processes["waited"]), _pct(MAX_WAIT_SHARE)
        lines += [
            f"The machine was busy: {waited} of the figures come from a process that waited for a CPU for more than",
            f"{limit} of its time (median {_pct(wait['median'])}, most {_pct(wait['high'])}).",
        ]
    if result["interrupted"]:
        lines.append("Interrupted: what had been measured by then.")
    return lines


def _pct(share: float) -> str:
    return f"{share * 100:.0f} %"
