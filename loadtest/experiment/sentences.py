"""Results in words: what terminal and report both say, said once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = [
    "control_sentence",
    "difference_sentence",
    "gate_sentence",
    "qualified",
    "request_cost_sentence",
    "rounds_sentence",
    "streams_sentence",
    "verdict_line",
    "workers_sentence",
]

_HEADLINES = {
    "valid": "this run can be believed",
    "suspect": "read the reasons before the figures",
    "void": "the figures of this run are not to be used",
}


def verdict_line(verdict: Mapping[str, Any]) -> str:
    """What the verdict's state asks of the reader."""
    return _HEADLINES[verdict["state"]]


def workers_sentence(by_worker: Mapping[str, int]) -> str:
    """How the kernel dealt the connections out to several orchestrators."""
    shares = ", ".join(f"{name} {count:,}" for name, count in by_worker.items())
    return f"Streams by worker of the orchestrator, as the kernel dealt connections out: {shares}."


def qualified(sentence: str, state: str) -> str:
    """A claim about speed, so said that nobody can quote it without what the verdict thinks of it."""
    return f"{_QUALIFIERS.get(state, '')}{sentence}"


_QUALIFIERS = {"void": "not to be used: ", "suspect": "read the reasons first: "}


def difference_sentence(difference: Mapping[str, Any], at_tok_s: float) -> str:
    """One difference in plain words, with its interval or the reason why it is withheld."""
    a, b, figure = difference["a"], difference["b"], difference["cpu_us_per_chunk"]
    if figure is None:
        return f"No claim about {a} against {b}: {difference['withheld']}."
    if figure["ci95"] is None:
        return f"{a} minus {b} is {figure['estimate']:+.2f} us: too few rounds for an interval, so no claim."
    low, high = figure["ci95"]
    if not difference["significant"]:
        return (
            f"No difference seen between {a} and {b}: {figure['estimate']:+.2f} us of CPU per chunk "
            f"[{low:.2f}, {high:.2f}]; an effect of {figure['mde']:.2f} us would be seen four times in five."
        )
    more, sign = ("more", 1) if figure["estimate"] > 0 else ("less", -1)
    low, high = sorted((sign * low, sign * high))
    share = sign * difference["core_share_at_rate"]["estimate"]
    return (
        f"{a} costs {sign * figure['estimate']:.2f} us {more} CPU per chunk than {b} [{low:.2f}, {high:.2f}], "
        f"i.e. {share * 100:.1f} % of a core at {at_tok_s:,.0f} tok/s."
    )


def request_cost_sentence(arms: Mapping[str, Mapping[str, Any]]) -> str:
    """What a request costs each arm beside its chunks, or why that is not known."""
    if not any(arm["cpu_us_per_request"] for arm in arms.values()):
        reasons = dict.fromkeys(arm["cpu_us_per_request_reason"] for arm in arms.values())
        return f"CPU per request is not known: {'; '.join(reasons)}."
    return "CPU per request, its chunks not counted: " + "; ".join(map(_request_cost, arms, arms.values())) + "."


def _request_cost(name: str, arm: Mapping[str, Any]) -> str:
    figure = arm["cpu_us_per_request"]
    if figure is None:
        return f"{name} not known ({arm['cpu_us_per_request_reason']})"
    if figure["ci95"] is None:
        return f"{name} {figure['estimate']:.0f} us (too few rounds for an interval)"
    low, high = figure["ci95"]
    return f"{name} {figure['estimate']:.0f} us [{low:.0f}, {high:.0f}]"


def control_sentence(control: Mapping[str, Any] | None) -> str:
    """What the A/A control says of the harness."""
    if control is None or control["cpu_us_per_chunk"] is None:
        return "There is no A/A control to judge the harness by."
    figure = control["cpu_us_per_chunk"]
    if figure["ci999"] is None:
        return (
            f"A/A control: {control['a']} against itself differs by {figure['estimate']:+.2f} us; too few rounds for "
            "an interval."
        )
    low, high = figure["ci999"]
    held = "holds" if low <= 0 <= high else "leaves out"
    return (
        f"A/A control: {control['a']} against itself differs by {figure['estimate']:+.2f} us; its 99.9 % interval "
        f"[{low:.2f}, {high:.2f}] {held} zero."
    )


def rounds_sentence(rounds: Mapping[str, Any]) -> str:
    """How many rounds count, and why the others do not."""
    void = ", ".join(f"{reason.replace('_', ' ')} {n}" for reason, n in rounds["void"].items())
    return f"{rounds['used']} of {rounds['planned']} rounds count" + (f" (void: {void})." if void else ".")


def gate_sentence(equality: Mapping[str, Any]) -> str:
    """What the equality gate found."""
    if equality["state"] == "not_run":
        return "The equality gate did not run."
    streams = f"{equality['streams']} complete streams"
    if equality["state"] == "equal":
        return f"Equality gate: over {streams} every policy gave the client the same events."
    wrong = [name for name, outcome in equality["policies"].items() if outcome["state"] != "equal"]
    return f"Equality gate: over {streams} the output of {', '.join(wrong)} differs from the reference."


def streams_sentence(streams: Mapping[str, Any]) -> str:
    """What became of the client's streams."""
    if not streams["started"]:
        unknown = streams.get("planned") is None  # the load was killed before it wrote what it had counted
        return "The load left no record of its streams." if unknown else "No stream was started."
    failed = ", ".join(f"{reason} {n:,}" for reason, n in streams["failed"].items())
    aborted = f", {streams['aborted']:,} aborted" if streams.get("aborted") else ""
    cancelled = f", {streams['cancelled']:,} were cancelled as planned" if streams.get("cancelled") else ""
    text = f"{streams['ok']:,} of {streams['started']:,} streams passed every check{cancelled}{aborted}"
    text += f"; failed: {failed}" if failed else ""
    text += f"; {streams['lost']:,} were lost with their worker" if streams.get("lost") else ""
    return f"{text}; {streams['unsent']:,} were never sent." if streams.get("unsent") else f"{text}."
