"""From an instruction count's records to its result: differences between processes, spread, and what voids them.

    per chunk   = (I[chunks] - I[base]) / (chunks[chunks] - chunks[base])
    per request = (I[requests] - I[base] - per chunk x further chunks) / (requests[requests] - requests[base])

Start-up, connections, the interpreter's warm-up and whatever goes by the clock are in both processes and cancel.
Pure folds over the run directory; the schema is ``disagg-sim/instructions/1``.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from loadtest.experiment import sentences
from loadtest.experiment.arms import pairs_of
from loadtest.experiment.counted_load import BASE
from loadtest.experiment.reasons import Reason, percent
from loadtest.experiment.rounds import Arm
from loadtest.experiment.run_files import RunFiles, read_lines
from loadtest.experiment.text import WIDTH, table
from loadtest.experiment.verdict import verdict_of

__all__ = [
    "MERGED_SUSPECT",
    "PER_CHUNK",
    "PER_REQUEST",
    "count_figures",
    "count_text",
]

PER_CHUNK, PER_REQUEST = "user_instructions_per_chunk", "user_instructions_per_request"
MERGED_SUSPECT = 0.03
"""Share of the reads that are missing: a read that brings two events costs less than two reads."""

Record = Mapping[str, Any]


def count_figures(run_dir: Path) -> dict[str, Any]:
    """The result of the count in ``run_dir``.  ValueError for a file that is not what it should be."""
    files = RunFiles.read(run_dir)
    manifest = files.manifest
    records = read_lines(
        run_dir / "counts.jsonl", ("arm", "repeat", "load", "instructions", "chunks", "requests", "failures")
    )
    arms = [Arm(arm["name"], arm["policy"]) for arm in manifest["arms"]]
    by_arm = {arm.name: _by_repeat(records, arm.name) for arm in arms}
    figures = {arm.name: _arm(arm, files.setting("orchestrator", "engine"), by_arm[arm.name]) for arm in arms}
    return {
        "schema": "disagg-sim/instructions/1",
        "verdict": verdict_of(_reasons(files, records, by_arm)).to_json(),
        "equality": files.equality or {"state": "not_run", "policies": {}, "dead_path": []},
        "arms": figures,
        "differences": [_difference(figures, *pair) for pair in pairs_of(arms)[0]],
        "counts": list(records),
        **{key: manifest[key] for key in ("command", "started", "scenario", "seed", "versions", "host")},
    }


def _by_repeat(records: Sequence[Record], arm: str) -> list[dict[str, Record]]:
    """The arm's complete repeats, each as load name -> record."""
    repeats: dict[int, dict[str, Record]] = {}
    for record in records:
        if record["arm"] == arm:
            repeats.setdefault(record["repeat"], {})[record["load"]] = record
    return [repeats[number] for number in sorted(repeats) if len(repeats[number]) == 3]


def _arm(arm: Arm, engine: str, repeats: Sequence[Mapping[str, Record]]) -> dict[str, Any]:
    figures = [_figures(repeat) for repeat in repeats]
    columns = {key: [figure[key] for figure in figures] for key in (PER_CHUNK, PER_REQUEST)}
    return {
        "policy": arm.policy,
        "engine": engine,
        **{key: median(values) if values else None for key, values in columns.items()},
        "repeats": figures,
        "spread": {key: (max(values) - min(values)) / median(values) for key, values in columns.items()}
        if len(figures) > 1
        else None,
    }


def _figures(loads: Mapping[str, Record]) -> dict[str, float]:
    base, chunks, requests = (loads[name] for name in (BASE.name, "chunks", "requests"))
    per_chunk = _more(chunks, base, "instructions") / _more(chunks, base, "chunks")
    of_requests = _more(requests, base, "instructions") - per_chunk * _more(requests, base, "chunks")
    return {PER_CHUNK: per_chunk, PER_REQUEST: of_requests / _more(requests, base, "requests")}


def _more(record: Record, base: Record, key: str) -> int:
    return int(record[key]) - int(base[key])


def _difference(figures: Mapping[str, Any], a: str, b: str) -> dict[str, Any]:
    chunk_a, chunk_b = figures[a][PER_CHUNK], figures[b][PER_CHUNK]
    if chunk_a is None or chunk_b is None:
        return {"a": a, "b": b, PER_CHUNK: None, "relative": None, PER_REQUEST: None}
    return {
        "a": a,
        "b": b,
        PER_CHUNK: chunk_a - chunk_b,
        "relative": (chunk_a - chunk_b) / chunk_b,
        PER_REQUEST: figures[a][PER_REQUEST] - figures[b][PER_REQUEST],
    }


def _reasons(
    files: RunFiles, records: Sequence[Record], by_arm: Mapping[str, list[dict[str, Record]]]
) -> Iterator[Reason]:
    gate = files.equality
    if gate is None:
        yield Reason("equality_not_run", "void", "the equality gate did not run")
    elif gate["state"] != "equal":
        yield Reason("equality", "void", sentences.gate_sentence(gate))
    if files.manifest.get("failure"):
        yield Reason("failure", "void", f"a process failed: {files.manifest['failure']}")
    if files.manifest.get("interrupted"):
        yield Reason("interrupted", "suspect", "the run was interrupted: later counts are missing")
    for arm, repeats in by_arm.items():
        if not repeats:
            yield Reason("not_counted", "void", f"{arm} has no complete count")
    for record in records:
        yield from _merged(record)
        if record["failures"]:
            text = f"{record['arm']}, {record['load']}: {len(record['failures'])} replies failed: "
            yield Reason("failed_streams", "void", text + record["failures"][0], len(record["failures"]))


def _merged(record: Record) -> Iterator[Reason]:
    """Whether every chunk came in a read of its own; an engine or policy that counts no reads is taken at its word."""
    merged = max(0.0, 1 - record["reads"] / record["reads_due"]) if record["reads"] else 0.0
    if merged > MERGED_SUSPECT:
        text = f"{record['arm']}, {record['load']}: {percent(merged)} of the reads brought more than one write of gen's"
        yield Reason("merged_reads", "suspect", text, merged)


def count_text(result: Mapping[str, Any]) -> str:
    """The result in a terminal."""
    verdict = result["verdict"]
    lines = [f"VERDICT: {verdict['state'].upper()} - {sentences.verdict_line(verdict)}"]
    lines += [f"  {reason['state']:8}{reason['text']}" for reason in verdict["reasons"]]
    head = ["user instructions", "engine", "per chunk", "spread", "per request", "spread", "counts"]
    lines += ["", *table(head, [_row(name, arm) for name, arm in result["arms"].items()])]
    rows = [_difference_row(difference) for difference in result["differences"]]
    lines += ["", *table(["difference", "per chunk", "of b", "per request"], rows)] if rows else []
    note = (
        "Counted in user space by valgrind: the kernel's part (about two system calls a token) is not in it, nor how "
        "long an instruction takes. Requests are on open connections, their own chunk events not included."
    )
    return "\n".join(
        [*lines, "", *textwrap.wrap(note, WIDTH), *textwrap.wrap(sentences.gate_sentence(result["equality"]), WIDTH)]
    )


def _row(name: str, arm: Mapping[str, Any]) -> list[str]:
    spread = arm["spread"] or dict.fromkeys((PER_CHUNK, PER_REQUEST))
    cells = [cell for key in (PER_CHUNK, PER_REQUEST) for cell in (_count(arm[key]), _share(spread[key]))]
    return [name, arm["engine"], *cells, str(len(arm["repeats"]))]


def _difference_row(difference: Mapping[str, Any]) -> list[str]:
    per_chunk, share = difference[PER_CHUNK], difference["relative"]
    cells = [_count(per_chunk, "+"), "-" if share is None else f"{share * 100:+.1f} %"]
    return [f"{difference['a']} - {difference['b']}", *cells, _count(difference[PER_REQUEST], "+")]


def _count(value: float | None, sign: str = "") -> str:
    return "-" if value is None else f"{value:{sign},.0f}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value * 100:.1f} %"
