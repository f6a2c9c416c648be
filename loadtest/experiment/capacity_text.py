"""A capacity result in words and in a terminal: verdict, limits, how they compare, what is not certified."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from loadtest.experiment import sentences
from loadtest.experiment.number_formats import duration
from loadtest.experiment.text import table, verdict_lines, wrapped

__all__ = [
    "comparison_sentences", "limit_text", "limits_sentence", "render_capacity", "scaling_sentences", "slo_sentence",
    "stop_text",
]  # fmt: skip

_STOPS = {
    "slo:lag": "loop lag",
    "slo:itl": "ITL",
    "slo:ttft": "TTFT",
    "slo:rate": "rate not relayed",
    "slo:loss": "lost streams",
    "generator": "generator gave out",
    "load": "load gave out",
    "machine": "machine gave out",
    "ceiling": "--to reached",
    "time": "time was over",
}


def stop_text(stopped_by: str | None) -> str:
    """What ended the climb, in few words."""
    return "not probed" if stopped_by is None else _STOPS[stopped_by]


def limit_text(limit: Mapping[str, Any]) -> tuple[str, str]:
    """(limit in tok/s, its interval) as a table shows them."""
    if limit["limit_tok_s"]:
        low, high = limit["limit_tok_s"]["ci95"]
        return f"{limit['limit_tok_s']['estimate']:,.0f}", f"[{low:,.0f}, {high:,.0f}]"
    if limit["at_least_tok_s"]:
        return f"at least {limit['at_least_tok_s']:,.0f}", "-"
    return (f"below {limit['below_tok_s']:,.0f}", "-") if limit["below_tok_s"] else ("unknown", "-")


def slo_sentence(slo: Mapping[str, float]) -> str:
    """What a rate had to keep."""
    return (
        f"A rate holds while the orchestrator's loop lag stays within {slo['lag_ms']:g} ms (p99), a short request's "
        f"first token within {slo['ttft_ms']:g} ms (p95), a gap between tokens within {slo['itl_ms']:g} ms of the "
        f"stream's own pace (p99), what gen writes is relayed, and no stream fails."
    )


def limits_sentence(result: Mapping[str, Any]) -> Iterator[str]:
    """One sentence per limit."""
    state = result["verdict"]["state"]
    for name, limit in result["limits"].items():
        value, interval = limit_text(limit)
        if limit["limit_tok_s"]:
            text = f"{name} holds {value} tok/s {interval}; then {stop_text(limit['stopped_by'])} breaks the objective."
        elif limit["at_least_tok_s"]:
            text = f"{name} holds {value} tok/s ({stop_text(limit['stopped_by'])})."
        elif limit["below_tok_s"]:
            text = f"{name} does not even hold {limit['below_tok_s']:,.0f} tok/s ({stop_text(limit['stopped_by'])})."
        else:
            yield f"Nothing is known of {name}: {stop_text(limit['stopped_by'])}."
            continue
        yield sentences.qualified(text, state)


def comparison_sentences(result: Mapping[str, Any]) -> Iterator[str]:
    """One sentence per pair of policies; a difference that was not shown is no claim."""
    state = result["verdict"]["state"]
    for pair in result["comparisons"]:
        a, b, ratio = pair["a"], pair["b"], pair["ratio"]
        interval = "" if ratio is None else " [{:.2f}, {:.2f}]".format(*ratio["ci95"])
        match pair["order"]:
            case "<" | ">" as order if ratio is not None:
                text = f"{a} {order} {b}: the limit of {a} is {ratio['estimate']:.2f} times that of {b}{interval}."
                yield sentences.qualified(text, state)
            case "<" | ">" as order:
                yield sentences.qualified(f"{a} {order} {b}: one's interval ends where the other still held.", state)
            case "unknown":
                yield f"{a} and {b} cannot be compared: at least one limit is only a bound."
            case words:
                yield f"{a} and {b}: {words}; the ratio of their limits is within{interval}."


def scaling_sentences(result: Mapping[str, Any]) -> Iterator[str]:
    """What more workers brought, per policy and engine."""
    for curve in result["scaling"]:
        parts = []
        for point in curve["points"]:
            ratio = point["over_first"]
            times = "" if ratio is None else " ({:.2f} x [{:.2f}, {:.2f}])".format(ratio["estimate"], *ratio["ci95"])
            parts.append(f"{point['workers']}: {limit_text(point)[0]}{times}")
        yield f"{curve['policy']}, engine {curve['engine']}, tok/s by workers: {'; '.join(parts)}."


def render_capacity(result: Mapping[str, Any], report: Path | None) -> str:
    """The whole of it, at most 100 columns wide; ``report`` is where the HTML is."""
    rows = [[name, *_row(limit)] for name, limit in result["limits"].items()]
    lines = [
        *verdict_lines(result["verdict"]),
        "",
        *wrapped(slo_sentence(result["slo"])),
        "",
        *table(["limit", "tok/s", "95 % interval", "stopped by", "us/chunk", "core", "events/read", "lag p99"], rows),
        "",
    ]
    for sentence in (*comparison_sentences(result), *scaling_sentences(result)):
        lines += wrapped(sentence)
    if result["certified"]:
        lines += ["", "not certified here:"]
        for entry in result["certified"]:
            lines += wrapped(f"{entry['figure']}: {entry['why']}", "  ")
    lines += ["", *wrapped(_streams_sentence(result["places"]))]
    if report is not None:
        lines += ["", f"report: {report}"]
    return "\n".join(lines)


def _row(limit: Mapping[str, Any]) -> list[str]:
    value, interval = limit_text(limit)
    at = limit["at_limit"]
    figures = ["-"] * 4
    if at is not None:
        share = f"{at['cpu_share'] * 100:.0f} %"
        figures = [f"{at['cpu_us_per_chunk']:.1f}", share, f"{at['events_per_read']:.2f}", duration(at["lag_p99_s"])]
    return [value, interval, stop_text(limit["stopped_by"]), *figures]


def _streams_sentence(places: Mapping[str, Mapping[str, Any]]) -> str:
    streams = [place["streams"] for place in places.values() if place["streams"]]
    if not streams:
        return "What became of the streams is not known."
    started, ok, aborted = (sum(counted[key] for counted in streams) for key in ("started", "ok", "aborted"))
    states = {place["reconciliation"]["state"] for place in places.values()}
    counts = {"equal": "agree to the unit", "differs": "differ", "unknown": "could not be compared"}
    worst: Sequence[str] = [state for state in ("differs", "unknown", "equal") if state in states]
    return (
        f"{ok:,} of {started - aborted:,} streams passed every check, short requests included. Counters of gen, "
        f"orchestrator and clients {counts[worst[0]]}."
    )
