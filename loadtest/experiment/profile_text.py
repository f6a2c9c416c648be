"""A profile in a terminal: verdict, then the table, at most 100 columns wide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from loadtest.experiment import sentences
from loadtest.experiment.text import WIDTH, table, verdict_lines, wrapped

__all__ = ["render_profile"]


def render_profile(result: Mapping[str, Any], run_dir: Path) -> str:
    """The whole of it."""
    lines = [*verdict_lines(result["verdict"]), "", *wrapped(_head(result)), ""]
    rows = [[row["class"], *_figures(row)] for row in result["classes"]]
    cost = result["cpu_us_per_chunk"]
    samples = result["sampler"]["samples"]
    rows.append(["all", "100.0 %" if samples else "-", "", "-" if cost is None else f"{cost:.2f}"])
    lines += _with_frames(table(["part of the work", "share", "±", "us/chunk"], rows), result["classes"])
    lines += ["", *wrapped(_method(result))]
    return "\n".join([*lines, "", f"flame graph: {run_dir / 'flamegraph.svg'}", f"figures: {run_dir / 'profile.json'}"])


def _head(result: Mapping[str, Any]) -> str:
    cost, rate = result["cpu_us_per_chunk"], result["chunks_per_s"]
    text = (
        f"Where a chunk's {'time' if cost is None else f'{cost:.1f} us of CPU'} goes under {result['policy']}, "
        f"engine {result['engine']}{'' if rate is None else f', at {rate:,.0f} chunks/s'}:"
    )
    return sentences.qualified(text, result["verdict"]["state"])


def _figures(row: Mapping[str, Any]) -> list[str]:
    if row["share"] is None:
        return ["-", "-", "-"]
    cost = row["cpu_us_per_chunk"]
    return [
        f"{row['share'] * 100:.1f} %",
        f"{row['share_half_width_95'] * 100:.1f}",
        "-" if cost is None else f"{cost:.2f}",
    ]


def _with_frames(lines: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The table with one column more, as wide as is left: which frames a class's samples were in, most first."""
    width = max(map(len, lines)) + 3
    mostly = ["most in", *(_mostly(row, WIDTH - width) for row in rows), ""]
    return [f"{line:{width}}{frames}".rstrip() for line, frames in zip(lines, mostly, strict=True)]


def _mostly(row: Mapping[str, Any], width: int) -> str:
    text = ""
    for entry in row["frames"]:
        name = entry["frame"].partition(" (")[0].replace(".<locals>", "")
        more = f"{', ' if text else ''}{name} {entry['share'] * 100:.1f}"
        if len(text) + len(more) > width:
            break
        text += more
    return text


def _method(result: Mapping[str, Any]) -> str:
    sampler, before = result["sampler"], result["cpu_us_per_chunk_unsampled"]
    text = (
        f"{sampler['samples']:,} samples by py-spy {sampler['version']} in {sampler['duration_s']:g} s at "
        f"{sampler['hz']} a second, waiting left out; ± is their 95 % sampling error, in points."
    )
    if before is not None:
        text += f" Just before, unsampled, a chunk cost {before:.1f} us."
    return text
