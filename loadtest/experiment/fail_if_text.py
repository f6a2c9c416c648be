"""Gates and baseline in words: what terminal and report both say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from loadtest.experiment.sentences import qualified
from loadtest.experiment.text import wrapped

__all__ = ["gate_rows", "gates_text"]

_WORDS = {True: ("tripped", "void"), False: ("held", "valid"), None: ("not judged", "suspect")}


def gates_text(result: Mapping[str, Any]) -> str:
    """The lines of a terminal; empty where nothing was asked."""
    lines = [line for word, _, text in gate_rows(result) for line in wrapped(text, f"{word} ")]
    return "\n".join(lines)


def gate_rows(result: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """(word, how it is to be taken: valid, suspect, void or note, sentence): the baseline's, then one for each gate."""
    rows = [("baseline", "note", sentence) for sentence in _baseline(result)]
    for gate in result.get("gates", []):
        word, state = _WORDS[gate["tripped"]]
        rows.append((word, state, f"{gate['expression']} ({'; '.join(map(_sides, gate['comparisons']))})"))
    return [(f"gate {word}" if word != "baseline" else word, state, text) for word, state, text in rows]


def _sides(comparison: Mapping[str, Any]) -> str:
    if comparison["holds"] is None:
        return str(comparison["why"])
    sides = f"{_number(comparison['left'])} against {_number(comparison['right'])}"
    difference = comparison["difference"]
    if difference is None:
        return sides
    low, high = map(_number, difference["ci95"])
    return f"{sides}, difference {_number(difference['estimate'])} [{low}, {high}]"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.4g}"


def _baseline(result: Mapping[str, Any]) -> list[str]:
    """The ratios to the earlier run, the host's own speed, and what else is not the same."""
    baseline = result.get("baseline")
    if baseline is None:
        return []
    head = f"{baseline['path']}, a {baseline['state']} run of {baseline['started']}"
    if baseline["withheld"]:
        return [f"{head}: no claim, {baseline['withheld']}: {'; '.join(baseline['differs'])}"]
    found = [head, *(qualified(_ratio(entry), result["verdict"]["state"]) for entry in baseline["ratios"])]
    if baseline["spin_ratio"] is not None:
        found.append(
            f"the fixed spin takes {baseline['spin_ratio']:.3f} times as long as then: by so much the machine itself "
            "moved; what each start of the processes draws anew is in no interval here"
        )
    if baseline["differs"]:
        found.append(f"compared all the same: {'; '.join(baseline['differs'])}")
    if baseline["versions_differ"]:
        found.append(f"not the same versions: {'; '.join(baseline['versions_differ'])}")
    return found


def _ratio(entry: Mapping[str, Any]) -> str:
    if entry["ratio"] is None:
        return f"{entry['figure']}: not known"
    interval = "no interval" if entry["ci95"] is None else "[{:.3f}, {:.3f}]".format(*entry["ci95"])
    spin = "" if entry["by_spin"] is None else f"; {entry['by_spin']:.3f} in units of the fixed spin"
    values = f"{entry['now']:,.2f} now, {entry['then']:,.2f} then"
    return f"{entry['figure']}: {values}, {entry['ratio']:.3f} times {interval}{spin}"
