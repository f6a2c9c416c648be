"""``disagg-sim doctor``: what this box can certify.  All findings, and how they are printed."""

from __future__ import annotations

import asyncio
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from loadtest.experiment.doctor_ceiling import measure_ceiling
from loadtest.experiment.doctor_findings import STATES
from loadtest.experiment.doctor_machine import machine_findings, title, tool_findings
from loadtest.experiment.doctor_probe import noise_findings, timer_findings
from loadtest.experiment.host import host_facts, versions
from loadtest.experiment.steps import progress
from loadtest.experiment.text import WIDTH

__all__ = ["examine", "render_doctor"]

_SECTIONS = ("software", "timers", "cpus", "sockets", "noise now", "ceiling", "tools")
_NAME, _VALUE, _STATE = 20, 25, 6


def examine(*, quick: bool) -> dict[str, Any]:
    """Everything, measured now; ``quick`` leaves the ceiling out.

    The state is bad if anything makes every run here and now void or impossible; a tool that is missing limits
    nothing but what needs it, so it does not count.
    """
    progress("timers and noise: 4 s")
    found = [*machine_findings(), *timer_findings(), *noise_findings(), *tool_findings()]
    if not quick:
        progress("fakes and load alone: about 20 s")
        found.append(asyncio.run(measure_ceiling()))
    found.sort(key=lambda finding: _SECTIONS.index(finding.section))
    counting = [finding for finding in found if finding.section != "tools"]
    return {
        "schema": "disagg-sim/doctor/1",
        "state": min((finding.state for finding in counting), key=STATES.index),
        "machine": title(),
        "findings": [finding.to_json() for finding in found],
        "versions": versions(),
        "host": host_facts(),
    }


def render_doctor(result: Mapping[str, Any]) -> str:
    """The lines by section, at most 100 columns wide, and one sentence at the end."""
    lines = [result["machine"]]
    section = None
    for finding in result["findings"]:
        if finding["section"] != section:
            section = finding["section"]
            lines += ["", section]
        lines += _lines(finding)
    return "\n".join([*lines, "", *textwrap.wrap(_sum(result), WIDTH)])


def _lines(finding: Mapping[str, Any]) -> list[str]:
    name, value = textwrap.wrap(finding["name"], _NAME), textwrap.wrap(finding["value"], _VALUE)
    meaning = textwrap.wrap(finding["meaning"], WIDTH - _NAME - _VALUE - _STATE - 8)
    lines = []
    for i in range(max(map(len, (name, value, meaning)))):
        state = finding["state"] if i == 0 else ""
        cells = f"{_at(name, i):{_NAME}}  {_at(value, i):{_VALUE}}  {state:{_STATE}}  {_at(meaning, i)}"
        lines.append(f"  {cells}".rstrip())
    return lines


def _at(lines: Sequence[str], number: int) -> str:
    return lines[number] if number < len(lines) else ""


def _sum(result: Mapping[str, Any]) -> str:
    names = {
        state: [f["name"] for f in result["findings"] if f["state"] == state and f["section"] != "tools"]
        for state in STATES
    }
    if names["bad"]:
        return f"BAD: a run here and now would be void or fail, because of {', '.join(names['bad'])}."
    if names["limits"]:
        return f"LIMITS: runs here can be valid within what is said of {', '.join(names['limits'])}."
    return "OK: nothing here limits a run of the seed scenario."
