"""The result in a terminal: verdict and reasons first, then figures, at most 100 columns wide."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from loadtest.experiment import sentences
from loadtest.experiment.latency_wording import latency_rows, latency_sentences
from loadtest.experiment.number_formats import duration

__all__ = ["WIDTH", "render_text", "table", "verdict_lines", "wrapped"]

WIDTH = 100
_NAME_WIDTH = 20


def render_text(result: Mapping[str, Any], report: Path | None, gates: str = "") -> str:
    """The whole of it; ``report`` is where the HTML is, ``gates`` what stands before that."""
    body = _compare(result) if result["schema"].startswith("disagg-sim/compare/") else _run(result)
    lines = [*verdict_lines(result["verdict"]), *body]
    if gates:
        lines += ["", gates.rstrip("\n")]
    if report is not None:
        lines += ["", f"report: {report}"]
    return "\n".join(lines)


def verdict_lines(verdict: Mapping[str, Any]) -> list[str]:
    """The verdict's line and one for each reason."""
    lines = [f"VERDICT: {verdict['state'].upper()} - {sentences.verdict_line(verdict)}"]
    for reason in verdict["reasons"]:
        lines += wrapped(reason["text"], f"  {reason['state']:8}")
    return lines


def _compare(result: Mapping[str, Any]) -> list[str]:
    at, state = result["at_tok_s"], result["verdict"]["state"]
    rows = [[_short(name, _NAME_WIDTH), *_arm_row(arm)] for name, arm in result["arms"].items()]
    lines = [
        "",
        *table(
            ["CPU by arm", "us/chunk", "95 % interval", "chunks/s", f"core at {at:,.0f}", "events/read", "lag p99"],
            rows,
        ),
    ]
    differences = [*result["differences"], *([result["control"]] if result["control"] else [])]
    rows = [[_pair(difference), *_difference_row(difference)] for difference in differences]
    lines += ["", *table(["difference, CPU us/chunk", "a - b", "95 % interval", "mde", ""], rows), ""]
    for difference in result["differences"]:
        sentence = sentences.difference_sentence(difference, at)
        claims = difference["cpu_us_per_chunk"] is not None
        lines += wrapped(sentences.qualified(sentence, state) if claims else sentence)
    lines += wrapped(sentences.control_sentence(result["control"]))
    lines += _restarts(result["restarts"], state)
    lines += _slopes(result["regression"], state)
    known = any(arm["cpu_us_per_request"] for arm in result["arms"].values())
    sentence = sentences.request_cost_sentence(result["arms"])
    lines += wrapped(sentences.qualified(sentence, state) if known else sentence)
    lines += wrapped(
        f"{sentences.rounds_sentence(result['rounds'])} {sentences.gate_sentence(result['equality'])} "
        f"{sentences.streams_sentence(result['client']['streams'])} {_counters(result)}"
    )
    return lines


def _arm_row(arm: Mapping[str, Any]) -> list[str]:
    if arm["cpu_us_per_chunk"] is None:
        return ["-"] * 6
    lag = arm["loop_lag_s"]
    return [
        f"{arm['cpu_us_per_chunk']['mean']:.2f}",
        _interval(arm["cpu_us_per_chunk"]["ci95"]),
        f"{arm['chunks_per_s']:,.0f}",
        f"{arm['core_share_at_rate'] * 100:.1f} %",
        f"{arm['events_per_read']:.2f}",
        "-" if lag is None else duration(lag["p99"]),
    ]


def _difference_row(difference: Mapping[str, Any]) -> list[str]:
    figure = difference["cpu_us_per_chunk"]
    if figure is None:
        return ["withheld", "-", "-", ""]
    control = difference["b"].startswith(f"{difference['a']}:")
    differs = "differs" if difference["significant"] else ""
    mark = "A/A" if control else ("too few rounds" if figure["ci95"] is None else differs)
    mde = "-" if figure["mde"] is None else f"{figure['mde']:.2f}"
    return [f"{figure['estimate']:+.2f}", _interval(figure["ci95"]), mde, mark]


def _pair(difference: Mapping[str, Any]) -> str:
    return f"{_short(difference['a'], 21)} - {_short(difference['b'], 21)}"


def _restarts(restarts: Mapping[str, Any] | None, state: str) -> list[str]:
    if restarts is None:
        return []
    lines = []
    for spread in restarts["differences"]:
        if spread["mean"] is not None:
            text = (
                f"Over {restarts['starts']} process starts, {spread['a']} minus {spread['b']} is "
                f"{spread['mean']:+.2f} us on average, from {spread['low']:+.2f} to {spread['high']:+.2f}."
            )
            lines += wrapped(sentences.qualified(text, state))
    return lines


def _slopes(regression: Mapping[str, Any] | None, state: str) -> list[str]:
    if regression is None:
        return []
    per_chunk = ", ".join(
        f"{name} {slope['estimate']:.2f} {_interval(slope['ci95'])}"
        for name, slope in regression["cpu_us_per_chunk"].items()
    )
    request = regression["cpu_us_per_request"]
    text = (
        f"Chunks and requests taken apart: us per chunk {per_chunk}; us per request {request['estimate']:.0f} "
        f"{_interval(request['ci95'], 0)}."
    )
    return wrapped(sentences.qualified(text, state))


def _run(result: Mapping[str, Any]) -> list[str]:
    client, relay = result["client"], result["orchestrator"]
    columns = ("p50", "p90", "p95", "p99", "max")
    rows = [
        [label, *(duration(client[key][column]) for column in columns), f"{client[key]['n']:,}"]
        for label, key in latency_rows(client)
    ]
    lines = ["", *table(["latency", *columns, "n"], rows), ""]
    for sentence in latency_sentences(client, result["verdict"]["state"]):
        lines += [*wrapped(sentence), ""]
    rows = [
        [
            name,
            _percent(process["cpu_share"]),
            _percent(process["run_queue_wait_share"]),
            duration(process["loop_lag_s"] and process["loop_lag_s"]["p99"]),
            *_memory(result["memory"]["processes"].get(name)),
        ]
        for name, process in result["processes"].items()
    ]
    head = ["process", "CPU of a core", "run-queue wait", "lag p99, whole run", "memory", "a stream", "2nd half"]
    lines += [*table(head, rows), ""]
    cost = relay["cpu_us_per_chunk"]
    if cost is not None:
        rate, per_read = relay["chunks_per_s"], relay["events_per_read"]
        text = (
            f"The orchestrator relayed {relay['chunks']:,} chunks for {relay['requests']:,} requests"
            f"{'' if rate is None else f', {rate:,.0f} chunks/s on average,'} at {cost:.1f} us of CPU per chunk, "
            f"requests included{'' if per_read is None else f'; {per_read:.2f} events per read'}."
        )
        lines += wrapped(sentences.qualified(text, result["verdict"]["state"]))
    if relay.get("streams_by_worker"):
        lines += wrapped(sentences.workers_sentence(relay["streams_by_worker"]))
    lines += wrapped(f"{sentences.streams_sentence(client['streams'])} {_counters(result)}")
    return lines


def _memory(memory: Mapping[str, Any] | None) -> tuple[str, str, str]:
    """Greatest size, growth per live stream, growth in the second half of the measured time."""
    if memory is None or memory["max_bytes"] is None:
        return "-", "-", "-"
    per_stream, growth = memory["bytes_per_stream"], memory["second_half_growth_bytes"]
    return (
        f"{memory['max_bytes'] / 1e6:.0f} MB",
        "-" if per_stream is None else f"{per_stream / 1e3:.1f} KB",
        "-" if growth is None else f"{growth / 1e6:+.1f} MB",
    )


def _counters(result: Mapping[str, Any]) -> str:
    return {
        "equal": "Counters of gen, orchestrator and client agree to the unit.",
        "within": (
            "Counters of gen, orchestrator and client agree to the unit where cancelled streams leave no room, and "
            "elsewhere within what those had still to come."
        ),
        "differs": "Counters of gen, orchestrator and client differ.",
        "unknown": "Counters could not be held against one another.",
    }[result["reconciliation"]["state"]]


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns as wide as their widest cell; the first to the left, the others to the right."""
    cells = [list(head), *(list(row) for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    lines = []
    for first, *others in cells:
        padded = [first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))]
        lines.append("  ".join(padded).rstrip())
    return lines


def _short(name: str, width: int) -> str:
    """A long name with its middle left out: both its package and its own name tell it apart."""
    if len(name) <= width:
        return name
    tail = width // 2
    return f"{name[: width - tail - 1]}…{name[-tail:]}"


def wrapped(text: str, lead: str = "") -> list[str]:
    """The text in lines of `WIDTH`, all indented by as much as ``lead`` is long."""
    return textwrap.wrap(text, WIDTH, initial_indent=lead, subsequent_indent=" " * len(lead))


def _interval(bounds: Sequence[float] | None, digits: int = 2) -> str:
    return "-" if bounds is None else f"[{bounds[0]:.{digits}f}, {bounds[1]:.{digits}f}]"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share * 100:.1f} %"
