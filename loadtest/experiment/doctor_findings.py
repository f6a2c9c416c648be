"""What this machine can certify: each fact of it held against what a run needs, as one line with a judgement.

``ok`` limits nothing, ``limits`` says what a run here can't do or show, ``bad`` that a run here and now comes out
void or can't be had at all.  Pure: facts are arguments, reading them is `doctor_machine` and `doctor_probe`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loadtest.experiment import thresholds as limits
from loadtest.experiment.doctor_proc import Quota
from loadtest.experiment.ports import HIGHEST_PORT, LOWEST_PORT
from loadtest.experiment.topology import Pinning
from loadtest.socket_limits import SPARE_DESCRIPTORS

__all__ = ["STATES", "Finding"]

STATES = ("bad", "limits", "ok")
"""By weight."""

STREAMS_WANTED = 9_000
"""Streams of the largest load the project is tested with."""
SEED_TOK_S = 15_400.0
SEED_CPUS = 1.5
"""CPUs that the seed scenario keeps busy: 0.7 orchestrator, 0.6 fakes and load, and some air."""
TICK_S = 0.002
"""Of the timer wheel of gen: an overshoot below it moves no token to another tick."""
BUSY_SHARE = 0.2
"""Of a CPU that others may use; fakes and load need the rest of it at the seed's own rate."""
PORTS_WANTED = 100
ROUNDS = 40
"""Rounds of a default compare."""

TESTED = {"python": ("3.11", "3.12", "3.13"), "aiohttp": ("3.14",), "uvloop": ("0.22", "0.23")}
"""Versions the project is tested with, by how they begin."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line: ``figures`` are the numbers behind ``value``, ``meaning`` is what they mean for a run."""

    section: str
    name: str
    value: str
    state: str
    meaning: str
    figures: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """As the command's JSON holds it."""
        return {
            "section": self.section,
            "name": self.name,
            "value": self.value,
            "state": self.state,
            "meaning": self.meaning,
            "figures": dict(self.figures),
        }


def version_finding(package: str, version: str) -> Finding:
    """Whether a version is one the project is tested with."""
    tested = TESTED[package]
    known = any(version == wanted or version.startswith(f"{wanted}.") for wanted in tested)
    meaning = f"tested with {', '.join(tested)}"
    if not known:
        meaning += ": what the relay uses of it may differ here; run the tests first"
    return Finding("software", package, version, "ok" if known else "limits", meaning, {"version": version})


def clock_finding(resolution_s: float, source: str | None) -> Finding:
    """CLOCK_MONOTONIC: every figure is a difference of two of its readings."""
    state = "ok" if resolution_s <= 1e-6 else "limits"
    meaning = "every reading of a block is good to that" if state == "ok" else "intervals are that coarse"
    value = f"{resolution_s * 1e9:,.0f} ns" + (f", source {source}" if source else "")
    return Finding("timers", "clock", value, state, meaning, {"resolution_s": resolution_s, "source": source})


def sleep_finding(p50_s: float, p99_s: float) -> Finding:
    """How late sleeps of 1 ms end: the fakes' pace, and every lag that is measured, hang on it."""
    if p99_s <= TICK_S:
        state, meaning = "ok", f"within gen's tick of {TICK_S * 1e3:g} ms"
    elif p99_s <= limits.LATENESS_SUSPECT_S:
        state, meaning = "limits", "ITL and lag below p99 are the machine's, not the orchestrator's"
    else:
        state, meaning = "bad", f"tokens would be over {limits.LATENESS_SUSPECT_S * 1e3:g} ms late: suspect at best"
    value = f"p50 {p50_s * 1e3:.2f}, p99 {p99_s * 1e3:.2f} ms"
    return Finding("timers", "late from 1 ms sleep", value, state, meaning, {"late_p50_s": p50_s, "late_p99_s": p99_s})


def grain_finding(asked_s: float, came_s: float) -> Finding:
    """Uvloop keeps time in whole milliseconds."""
    coarse = came_s > asked_s + TICK_S
    meaning = "timers have whole ms, so lag has that grain" if not coarse else "gen's tokens come in bursts"
    value = f"{asked_s * 1e3:g} ms came as {came_s * 1e3:.2f}"
    figures = {"asked_s": asked_s, "came_p50_s": came_s}
    return Finding("timers", "uvloop timer", value, "limits" if coarse else "ok", meaning, figures)


def cpus_finding(cpus: Sequence[int], pinning: Pinning, *, may_pin: bool) -> Finding:
    """Who gets which CPU."""
    figures = {"usable": list(cpus), "orchestrator": sorted(pinning.orchestrator), "others": sorted(pinning.others)}
    value = f"{len(cpus)} usable"
    if len(cpus) < 2:
        meaning = "orchestrator, fakes and load share it: a compare is void at all but small rates"
        return Finding("cpus", "CPUs", value, "limits", meaning, figures)
    if not may_pin:
        meaning = "but a process may not be pinned to one: others' work falls into the orchestrator's blocks"
        return Finding("cpus", "CPUs", value, "limits", meaning, figures)
    own, others = (_listed(sorted(part)) for part in (pinning.orchestrator, pinning.others))
    return Finding("cpus", "CPUs", value, "ok", f"the orchestrator gets CPU {own}, all else CPU {others}", figures)


def siblings_finding(cpu: int, siblings: Sequence[int] | None, others: Sequence[int]) -> Finding | None:
    """Hardware threads that share the core of the orchestrator's CPU; None where the machine doesn't say."""
    if siblings is None:
        return None
    shared = sorted(set(siblings) & set(others))
    figures = {"cpu": cpu, "siblings": list(siblings)}
    if shared:
        meaning = f"fakes and load run on CPU {_listed(shared)} of the same core: cost moves with their work"
        return Finding("cpus", "same core", f"CPU {_listed(siblings)}", "limits", meaning, figures)
    return Finding("cpus", "same core", f"CPU {cpu} alone", "ok", "as far as this machine shows its cores", figures)


def quota_finding(quota: Quota | None) -> Finding:
    """The control group's CPU quota."""
    if quota is None:
        return Finding("cpus", "CPU quota", "none", "ok", "nothing is throttled", {"cpus": None})
    figures = {"cpus": quota.cpus, "period_s": quota.period_s}
    value = f"{quota.cpus:.2f} CPUs per {quota.period_s * 1e3:.0f} ms"
    if quota.cpus < 1:
        return Finding("cpus", "CPU quota", value, "bad", "less than the orchestrator alone needs", figures)
    if quota.cpus < SEED_CPUS:
        rate = SEED_TOK_S * quota.cpus / SEED_CPUS
        return Finding("cpus", "CPU quota", value, "limits", f"throttled above about {rate:,.0f} tok/s", figures)
    return Finding("cpus", "CPU quota", value, "ok", "more than the seed scenario needs", figures)


def governor_finding(governor: str | None) -> Finding:
    """Who sets the clock frequency."""
    figures = {"governor": governor}
    if governor is None:
        return Finding("cpus", "clock frequency", "not known", "ok", "a compare shows if it moves", figures)
    if governor == "performance":
        return Finding("cpus", "clock frequency", governor, "ok", "held at the top", figures)
    meaning = "moves with load, so absolute costs do; `cpupower frequency-set -g performance` holds it"
    return Finding("cpus", "clock frequency", governor, "limits", meaning, figures)


def descriptors_finding(soft: int, hard: int) -> Finding:
    """Open files: the orchestrator needs two a stream and raises its own soft limit to the hard one."""
    streams = max(0, (hard - SPARE_DESCRIPTORS) // 2)
    state = "ok" if streams >= STREAMS_WANTED else "limits" if streams else "bad"
    figures = {"soft": soft, "hard": hard, "streams": streams}
    meaning = f"at most {streams:,} streams an orchestrator (two each); a hard limit of 20,000 is common"
    return Finding("sockets", "open files", f"soft {soft:,}, hard {hard:,}", state, meaning, figures)


def ports_finding(low: int, high: int) -> Finding:
    """Local ports of outgoing connections to one address."""
    count = high - low + 1
    figures = {"low": low, "high": high, "connections": count}
    value = f"{low} to {high}"
    if low < HIGHEST_PORT:
        meaning = f"reach into {LOWEST_PORT} to {HIGHEST_PORT}, the servers' ports: one may be taken at a start"
        return Finding("sockets", "local ports", value, "limits", meaning, figures)
    state = "ok" if count >= STREAMS_WANTED else "limits"
    return Finding("sockets", "local ports", value, state, f"at most {count:,} streams to one server address", figures)


def server_ports_finding(taken: int) -> Finding:
    """Ports that servers are started on."""
    free = HIGHEST_PORT - LOWEST_PORT - taken
    state = "ok" if free >= PORTS_WANTED else "bad"
    value = f"{free:,} free"
    meaning = f"from {LOWEST_PORT} to {HIGHEST_PORT}; a run needs 7"
    return Finding("sockets", "server ports", value, state, meaning, {"free": free, "taken": taken})


def wait_finding(cpu: int | None, share: float) -> Finding:
    """Run-queue wait of a probe that spins on the orchestrator's CPU: others want that CPU now."""
    figures = {"cpu": cpu, "wait_share": share}
    name = "run-queue wait" if cpu is None else f"wait on CPU {cpu}"
    if share > limits.ORCHESTRATOR_WAIT_VOID:
        state, meaning = "bad", "a run started now is void: something else uses this CPU; see `top`"
    elif share > limits.ORCHESTRATOR_WAIT_SUSPECT:
        state, meaning = "limits", "a run started now is suspect: something else uses this CPU; see `top`"
    else:
        state, meaning = "ok", f"a run is suspect from {limits.ORCHESTRATOR_WAIT_SUSPECT:.0%} on"
    return Finding("noise now", name, f"{share:.1%} of a spin", state, meaning, figures)


def busy_finding(busy: Mapping[int, float]) -> Finding:
    """What others use now of the CPUs that fakes and load will run on."""
    text = ", ".join(f"CPU {cpu} {share:.0%}" for cpu, share in busy.items())
    least = min(busy.values(), default=0.0)
    state = "ok" if least <= BUSY_SHARE else "limits"
    meaning = "left for fakes and load" if state == "ok" else "fakes and load will come late: a quieter time is better"
    figures = {str(cpu): share for cpu, share in busy.items()}
    return Finding("noise now", "busy with others", text or "-", state, meaning, {"busy_share_by_cpu": figures})


def steal_finding(share: float) -> Finding:
    """CPU that the hypervisor gave to other machines."""
    if share > limits.STEAL_VOID:
        state, meaning = "bad", "a run started now is void"
    elif share > limits.STEAL_SUSPECT:
        state, meaning = "limits", "a run started now is suspect"
    else:
        state, meaning = "ok", f"a run is suspect from {limits.STEAL_SUSPECT:.0%} on"
    return Finding("noise now", "steal", f"{share:.2%}", state, meaning, {"share": share})


def yardstick_finding(spins_ns: Sequence[float]) -> Finding:
    """CPU time of the same fixed work, in tenths of a second: what one machine's speed moves by."""
    mean = sum(spins_ns) / len(spins_ns)
    spread = math.sqrt(sum((spin - mean) ** 2 for spin in spins_ns) / max(1, len(spins_ns) - 1)) / mean
    # Of a difference of two blocks, over the rounds; 2.8 standard errors as in `stats`.
    resolved = 2.8 * math.sqrt(2.0) * spread / math.sqrt(ROUNDS)
    state = "ok" if resolved <= 0.04 else "limits"
    meaning = f"a compare resolves about {max(0.01, resolved):.0%} of a chunk's cost at best"
    figures = {"mean_ns": mean, "spread": spread, "resolved_share": resolved}
    return Finding("noise now", "fixed work", f"{mean / 1e6:.2f} ms ±{spread:.1%}", state, meaning, figures)


def tool_finding(name: str, path: str | None, purpose: str, how: str) -> Finding:
    """A program that some commands need."""
    if path is not None:
        return Finding("tools", name, "found", "ok", purpose, {"path": path})
    return Finding("tools", name, "not found", "limits", f"no {purpose}; {how}", {"path": None})


def counter_finding(devices: Sequence[str]) -> Finding:
    """A performance-monitoring unit."""
    units = [name for name in devices if name.startswith(("cpu", "armv8"))]
    figures = {"units": units}
    if units:
        return Finding("tools", "hardware counters", ", ".join(units), "ok", "`perf stat` counts instructions", figures)
    meaning = "`perf` counts no instructions here; valgrind does, on any machine"
    return Finding("tools", "hardware counters", "none", "limits", meaning, figures)


def _listed(cpus: Sequence[int]) -> str:
    """0-2,5 as the kernel writes it."""
    parts: list[list[int]] = []
    for cpu in sorted(cpus):
        if parts and cpu == parts[-1][-1] + 1:
            parts[-1].append(cpu)
        else:
            parts.append([cpu])
    return ",".join(f"{part[0]}-{part[-1]}" if len(part) > 1 else str(part[0]) for part in parts)
