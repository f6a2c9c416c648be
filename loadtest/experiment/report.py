"""The report: one HTML file beside ``result.json``, complete in itself, that asks nothing of any network.

Words and tables come from the result, curves from the run's raw files.  Figures are data in the page; the page's
own script draws them with the charting library that is in the page too.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from loadtest.experiment import compare_charts, load_charts, sentences
from loadtest.experiment.asked import asked_words
from loadtest.experiment.fail_if_text import gate_rows
from loadtest.experiment.figures import Figure, looks_of
from loadtest.experiment.latency_wording import goodput_sentence, latency_rows, latency_sentences
from loadtest.experiment.number_formats import FILTERS, duration
from loadtest.experiment.process_figures import Window, measured_window
from loadtest.experiment.report_page import REPORT_NAME, page_parts, plain, template
from loadtest.experiment.result import judged_rounds
from loadtest.experiment.run_files import RunFiles
from loadtest.experiment.rundir import write_whole
from sim.core.histogram import LogHistogram

__all__ = ["REPORT_NAME", "render_report", "write_report"]


def write_report(run_dir: Path, result: Mapping[str, Any]) -> Path:
    """Write the report of the run in ``run_dir``, whole or not at all; the file's path."""
    path = run_dir / REPORT_NAME
    write_whole(path, render_report(RunFiles.read(run_dir), result))
    return path


def render_report(files: RunFiles, result: Mapping[str, Any]) -> str:
    """The whole page."""
    words = _compare_words(files, result) if files.kind == "compare" else _run_words(result)
    drawn = _compare_figures(files, result) if files.kind == "compare" else _run_figures(files)
    return template("report.html.j2").render(
        kind=files.kind,
        result=result,
        manifest=files.manifest,
        title=_title(files),
        asked=_asked(files),
        verdict_line=sentences.verdict_line(result["verdict"]),
        vitals=_vitals(result),
        gates=gate_rows(result),
        streams_sentence=sentences.streams_sentence(result["client"]["streams"]),
        latency_rows=latency_rows(result["client"]),
        latency_sentences=[
            text
            for text in latency_sentences(result["client"], result["verdict"]["state"])
            if text not in words["answers"]
        ],
        instruments=_instruments(files),
        command=shlex.join(files.manifest["command"]),
        facts=_facts(files),
        **page_parts(drawn),
        **words,
    )


def _title(files: RunFiles) -> str:
    if files.kind == "compare":
        policies = [arm["name"] for arm in files.manifest["arms"] if not arm["name"].endswith(":again")]
        return f"What a chunk costs: {policies[0]} against {', '.join(policies[1:]) or 'itself'}"
    return f"Load run: {files.manifest['scenario']['name']}"


def _asked(files: RunFiles) -> list[str]:
    """What load the run asked for, overrides included."""
    parts = asked_words(files.manifest["scenario"].get("load", {}))
    rate = files.manifest.get("asked_chunks_per_s")
    return [*parts, f"{rate:,.0f} chunks/s asked"] if rate else parts


def _vitals(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The few numbers that a verdict turns on, shown whatever it is."""
    percent = FILTERS["pct"]
    machine, streams = result["machine"], result["client"]["streams"]
    rows = [
        ("orchestrator's run-queue wait", percent(machine["orchestrator_run_queue_wait_share"])),
        ("steal", percent(machine["steal_share"], 2)),
    ]
    if "rounds" in result:
        rows.append(("rounds that count", f"{result['rounds']['used']} of {result['rounds']['planned']}"))
        figure = (result["control"] or {}).get("cpu_us_per_chunk")
        rows.append(("A/A", "none" if figure is None else f"{figure['estimate']:+.2f} us per chunk"))
    failed = sum(streams["failed"].values())
    rows.append(("streams failed", f"{failed:,} of {streams['started']:,}"))
    agree = result["reconciliation"]["state"]
    rows.append(("counters", "not compared" if agree == "unknown" else agree))
    return rows


def _compare_words(files: RunFiles, result: Mapping[str, Any]) -> dict[str, Any]:
    differences, control = list(result["differences"]), result["control"]
    return {
        "answers": [
            _claim(sentences.difference_sentence(d, result["at_tok_s"]), d["cpu_us_per_chunk"], result)
            for d in differences
        ],
        "request_cost_sentence": _claim(
            sentences.request_cost_sentence(result["arms"]),
            next((arm["cpu_us_per_request"] for arm in result["arms"].values() if arm["cpu_us_per_request"]), None),
            result,
        ),
        "control_sentence": sentences.control_sentence(control),
        "rounds_sentence": sentences.rounds_sentence(result["rounds"]),
        "gate_sentence": sentences.gate_sentence(result["equality"]),
        "differences": [*differences, *([control] if control else [])],
        "looks": looks_of(list(result["arms"])),
        "at_tok_s": f"{result['at_tok_s']:,.0f}",
        "events_per_write": files.setting("gen", "events_per_write", 1),
        "void_reasons": ("missed_rate", "incomplete", "missing"),
        "dead_path": result["dead_path"],
    }


def _claim(sentence: str, figure: object, result: Mapping[str, Any]) -> str:
    """A sentence with what the verdict thinks of it, if it states a figure."""
    return sentence if figure is None else sentences.qualified(sentence, result["verdict"]["state"])


def _run_words(result: Mapping[str, Any]) -> dict[str, Any]:
    client, relay = result["client"], result["orchestrator"]
    answers = [sentences.streams_sentence(client["streams"])]
    if client["ttft_s"]["n"]:
        answers.append(
            f"Half of the streams had their first token within {duration(client['ttft_s']['p50'])} of the planned "
            f"send, 99 in 100 within {duration(client['ttft_s']['p99'])}."
        )
    goodput = goodput_sentence(client["goodput"], result["verdict"]["state"])
    if goodput is not None:
        answers.append(goodput)
    if relay["cpu_us_per_chunk"]:
        text = (
            f"The orchestrator spent {relay['cpu_us_per_chunk']:.1f} us of CPU per chunk, requests included, on "
            f"{relay['chunks']:,} chunks of {relay['requests']:,} requests."
        )
        answers.append(sentences.qualified(text, result["verdict"]["state"]))
    if relay.get("streams_by_worker"):
        answers.append(sentences.workers_sentence(relay["streams_by_worker"]))
    return {"answers": answers, "looks": {}}


def _compare_figures(files: RunFiles, result: Mapping[str, Any]) -> dict[str, Figure | None]:
    judged = judged_rounds(files)
    looks = looks_of(list(result["arms"]))
    control = result["control"]
    by_pair = {(d["a"], d["b"]): d for d in [*result["differences"], *([control] if control else [])]}
    asked = files.manifest.get("asked_chunks_per_s")
    return {
        "differences_forest": compare_charts.differences_forest(result["differences"], control),
        "paired_differences": compare_charts.paired_differences(list(by_pair), judged, by_pair),
        "cost_by_arm": compare_charts.cost_by_arm(judged, result["arms"], looks),
        "cost_over_time": compare_charts.cost_over_time(judged, looks),
        "lag_by_arm": compare_charts.lag_by_arm(judged, looks),
        "events_per_read": compare_charts.events_per_read(judged, looks),
        "rate_over_time": compare_charts.rate_over_time(judged, looks, asked),
        "processes_over_time": load_charts.processes_over_time(
            files, measured_window(files, judged.blocks), judged.blocks
        ),
        **_shared_figures(files),
    }


def _run_figures(files: RunFiles) -> dict[str, Figure | None]:
    window: Window | None = measured_window(files, ())
    return {
        "ttft_over_time": load_charts.ttft_over_time(files),
        "load_over_time": load_charts.load_over_time(files),
        "lengths": load_charts.lengths(files),
        "orchestrator_lag": load_charts.orchestrator_lag(files),
        "processes_over_time": load_charts.processes_over_time(files, window, ()),
        **_shared_figures(files),
    }


def _shared_figures(files: RunFiles) -> dict[str, Figure | None]:
    return {
        "ttft": load_charts.ttft(files),
        "itl": load_charts.itl(files),
        "e2e": load_charts.e2e(files),
        "lateness_tails": load_charts.lateness_tails(files),
    }


def _instruments(files: RunFiles) -> list[dict[str, Any]]:
    """Asked against delivered, per fake server."""
    rows = []
    for name, counters in files.counters.items():
        pacing, prefill = counters.get("pacing"), counters.get("prefill")
        if pacing and pacing.get("asked_interval_s") and pacing.get("delivered_interval_s"):
            asked, delivered = pacing["asked_interval_s"], pacing["delivered_interval_s"]
            words = [f"{interval * 1e3:.3f} ms a token" for interval in (asked, delivered)]
            rows.append(
                {"name": name, "asked": words[0], "delivered": words[1], "share": asked / delivered, **_late(pacing)}
            )
        elif prefill and prefill.get("asked_s"):
            asked, delivered = prefill["asked_s"], prefill["delivered_s"]
            words = [f"{seconds:.2f} s of prefill" for seconds in (asked, delivered)]
            rows.append(
                {"name": name, "asked": words[0], "delivered": words[1], "share": asked / delivered, **_late(prefill)}
            )
    return rows


def _late(record: Mapping[str, Any]) -> dict[str, float | None]:
    lateness = LogHistogram.from_json(record["lateness"])
    return {"p50": lateness.quantile_s(0.5), "p99": lateness.quantile_s(0.99)}


def _facts(files: RunFiles) -> list[tuple[str, str]]:
    """What the run was made with, in words: settings that the scenario sets, host, versions."""
    manifest = files.manifest
    rows = [
        ("scenario", manifest["scenario"].get("description", manifest["scenario"]["name"])),
        ("seed", str(manifest["seed"])),
        ("run directory", str(files.path)),
    ]
    if files.kind == "compare":
        block, settle = manifest["block_s"], manifest["settle_s"]
        rows.append(("blocks", f"{block:g} s from switch to switch, the first {settle:g} s of each dropped"))
    for table in ("ctx", "gen", "orchestrator", "load"):
        settings = manifest["scenario"].get(table, {})
        rows.append((f"[{table}]", ", ".join(f"{key} {plain(value)}" for key, value in settings.items())))
    rows += [(f"host {key.replace('_', ' ')}", plain(value)) for key, value in manifest["host"].items()]
    rows.append(("versions", ", ".join(f"{name} {version}" for name, version in manifest["versions"].items())))
    return rows
