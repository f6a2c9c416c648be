"""What `disagg-sim scenarios` prints: the list of them, or one with every key, its value and what it means."""

from __future__ import annotations

import json

from loadtest.scenario import load_scenario, scenario_names
from sim.core.settings import describe

__all__ = ["scenario_list", "scenario_page"]


def scenario_list() -> list[str]:
    """A line for each."""
    return [f"{name:14} {load_scenario(name, []).description}" for name in scenario_names()]


def scenario_page(name: str) -> list[str]:
    """All lines of one, as TOML.  SettingError for a name that is none."""
    scenario = load_scenario(name, [])
    lines = [f"# {scenario.name}: {scenario.description}"]
    for table, settings in scenario.tables().items():
        lines += ["", f"[{table}]"]
        for row in describe(type(settings)):
            value = json.dumps(getattr(settings, row.name))
            lines.append(f"{row.name + ' = ' + value:32} # {row.description} [{row.allowed}]")
    return lines
