"""What load a run asked for, in words, from its manifest's ``load`` table; an older manifest may lack keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["asked_words"]


def asked_words(load: Mapping[str, Any]) -> list[str]:
    """Arrivals, then the cap on concurrency; no words for what the table does not say."""
    words = [_arrivals(load)]
    if load.get("max_concurrency"):
        words.append(f"{load['max_concurrency']:,} at a time{', closed loop' if load['arrivals'] == 'closed' else ''}")
    return [word for word in words if word]


def _arrivals(load: Mapping[str, Any]) -> str:
    arrivals, rate = load.get("arrivals"), load.get("request_rate", 0.0)
    match arrivals:
        case "staggered":
            return f"{load['streams']:,} streams" if load.get("streams") else ""
        case "gamma":
            return f"{rate:g} requests/s, gamma of burstiness {load['burstiness']:g}"
        case "ramp":
            return f"{rate:g} to {load['end_request_rate']:g} requests/s over {load['duration_s']:g} s"
        case "steps":
            return f"{load['step_rates']} requests/s, {load['step_s']:g} s each"
        case "bursts":
            again = f", again each {load['burst_every_s']:g} s" if load["burst_every_s"] else ""
            return f"{load['burst_size']:,} requests at once{again}"
        case "trace":
            return _replay(load)
    return f"{rate:g} requests/s, {arrivals}" if rate and arrivals != "closed" else ""


def _replay(load: Mapping[str, Any]) -> str:
    words = f"replay of {load['trace']}"
    if load.get("window_from_s") or load.get("window_s"):
        words += f" from {load['window_from_s']:g} s on"
        words += f" for {load['window_s']:g} s" if load["window_s"] else ""
    return words + (f" at speed {load['speed']:g}" if load.get("speed", 1.0) != 1.0 else "")
