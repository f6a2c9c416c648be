"""The report of a capacity run: one HTML file that asks nothing of any network, by the means of `report_page`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from loadtest.experiment import capacity_charts, capacity_text, sentences
from loadtest.experiment.capacity_fit import RESAMPLES
from loadtest.experiment.report_page import REPORT_NAME, page_parts, plain, template
from loadtest.experiment.rundir import write_whole

__all__ = ["render_capacity_report", "write_capacity_report"]


def write_capacity_report(run_dir: Path, manifest: Mapping[str, Any], result: Mapping[str, Any]) -> Path:
    """Write the report of the run in ``run_dir``, whole or not at all; the file's path."""
    path = run_dir / REPORT_NAME
    write_whole(path, render_capacity_report(run_dir, manifest, result))
    return path


def render_capacity_report(run_dir: Path, manifest: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    """The whole page."""
    looks = capacity_charts.looks(result)
    figures = capacity_charts.drawn(result, looks)
    load = manifest["scenario"]["load"]
    return template("report_capacity.html.j2").render(
        result=result,
        manifest=manifest,
        title=f"What rate holds: {', '.join(manifest['policies'])}",
        asked=[f"{load['streams']:,} standing streams", f"probes of {manifest['probe_s']:g} s"],
        verdict_line=sentences.verdict_line(result["verdict"]),
        slo_sentence=capacity_text.slo_sentence(result["slo"]),
        answers=[
            *capacity_text.limits_sentence(result),
            *capacity_text.comparison_sentences(result),
            *capacity_text.scaling_sentences(result),
        ],
        limit_rows=[
            (name, limit, *capacity_text.limit_text(limit), capacity_text.stop_text(limit["stopped_by"]))
            for name, limit in result["limits"].items()
        ],
        looks=looks,
        resamples=RESAMPLES,
        command=shlex.join(manifest["command"]),
        facts=_facts(run_dir, manifest),
        **page_parts(figures),
    )


def _facts(run_dir: Path, manifest: Mapping[str, Any]) -> list[tuple[str, str]]:
    rows = [
        ("scenario", manifest["scenario"].get("description", manifest["scenario"]["name"])),
        ("seed", str(manifest["seed"])),
        ("run directory", str(run_dir)),
        ("rates", f"from {manifest['from_tok_s']:,.0f} to {manifest['to_tok_s']:,.0f} tok/s"),
        ("rounds of repeats", str(manifest["repeats"])),
    ]
    tables = ("ctx", "gen", "orchestrator", "load")
    rows += [(f"[{table}]", plain(manifest["scenario"].get(table, {}))) for table in tables]
    rows += [(f"host {key.replace('_', ' ')}", plain(value)) for key, value in manifest["host"].items()]
    rows.append(("versions", ", ".join(f"{name} {version}" for name, version in manifest["versions"].items())))
    return rows
