"""Whether two runs can be held against each other: the same machine, the same settings.

What is asked of a run stands in its manifest and in its result alike, so both can be given.  Versions of packages
and the kernel do not part two runs: what a new one costs is a fair question, and they are listed.  Seeds do not
either: another draw of the same load.  Pure.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from loadtest.scenario import TABLES

__all__ = ["NEEDED", "identity", "machine_of", "settings_of", "unlike", "versions_of"]

NEEDED = ("host", "scenario", "versions", "started")
"""Keys of a result without which it can't be held against another."""
_DEFAULTS = {table: dataclasses.asdict(settings()) for table, settings in TABLES.items()}
_HOW_MEASURED = ("block_s", "settle_s", "at_tok_s")


def machine_of(run: Mapping[str, Any]) -> dict[str, Any]:
    """What a cost in CPU time belongs to, beside the code."""
    host, pinning = run["host"], run["host"].get("pinning", {})
    return {
        "CPU model": host.get("model"),
        "CPUs": host.get("cpus"),
        "architecture": host.get("machine"),
        "orchestrator on a CPU of its own": pinning.get("orchestrator") != pinning.get("others"),
        "Python": ".".join(str(run["versions"].get("python")).split(".")[:2]),
    }


def settings_of(run: Mapping[str, Any]) -> dict[str, Any]:
    """Scenario, those of its keys that are not at their defaults, and how blocks were measured.

    A key that only the later version knows parts two runs when it is used, not by being there.
    """
    scenario = run["scenario"]
    return {
        "scenario": scenario.get("name"),
        **{
            f"{table}.{key}": value
            for table, defaults in _DEFAULTS.items()
            for key, value in scenario.get(table, {}).items()
            if key != "seed" and value != defaults.get(key)
        },
        **{key: run[key] for key in _HOW_MEASURED if key in run},
    }


def versions_of(run: Mapping[str, Any]) -> dict[str, Any]:
    """What may differ and is listed: the kernel and each package."""
    return {"kernel": run["host"].get("kernel"), **run["versions"]}


def unlike(now: Mapping[str, Any], then: Mapping[str, Any], missing: str = "unknown") -> list[str]:
    """Each fact that two runs do not share, in words; ``missing`` is what one is that a run does not say."""

    def word(value: Any) -> str:
        return missing if value in (None, "") else str(value)

    facts = [*now, *(name for name in then if name not in now)]
    return [
        f"{name} {word(now.get(name))} now, {word(then.get(name))} then"
        for name in facts
        if now.get(name) != then.get(name)
    ]


def identity(facts: Mapping[str, Any]) -> str:
    """A short name that two runs share as long as all of these facts are the same."""
    text = json.dumps({name: str(value) for name, value in facts.items()}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:10]
