"""A bench run made up from known numbers: manifest and cells, as `python -m bench` leaves them."""

from __future__ import annotations

import dataclasses
from typing import Any

from bench.programme import Plan

LEAD = "splice+prefilter-tail"
RELAYS = {  # name -> CPU us per token of the first pass; each later pass is dearer by DRIFT
    "direct": None,
    "stream+parse": 50.0,
    LEAD: 20.0,
    "nginx": 18.0,
    "sglang-router": 25.0,
    "vllm-router": 24.0,
    "fastapi-trt-shape": 48.0,
}
DRIFT = 1.2
PASSES = 3


def cell(cpu: dict[str, float], **more: Any) -> dict[str, Any]:
    """A cell of standing streams at 15,000 tok/s in which nothing was lost; ``cpu`` is us per token by role."""
    processes = {
        role: {
            "cpu_us_per_token": us,
            "cpu_share": us * 15_000 / 1e6,
            "wait_share": 0.002,
            "rss_kb_per_stream": 25.0,
        }
        for role, us in cpu.items()
    }
    return {
        "processes": processes,
        "tok_s": 15_000.0,
        "gen_share": 1.0,
        "gen_late_p99_s": 0.002,
        "delivered_share": 1.0,
        "behind": False,
        "events_per_read": 1.0,
        "syscalls": None,
        "transit_s": {"p50": 0.0003, "p99": 0.001, "max": 0.01},
        "lost": None,
        **more,
    }


def results() -> list[dict[str, Any]]:
    found = []
    for number in range(PASSES):
        drift = DRIFT**number
        for load, scale in (("dense", 1.0), ("wide", 1.1), ("plain", 1.0), ("fast", 0.9)):
            for name, us in RELAYS.items():
                if load in ("plain", "fast") and name not in ("direct", LEAD):
                    continue
                cpu = {"gen": 10.0 * drift, "client": 11.0 * drift}
                if us is not None:
                    cpu["relay"] = us * drift * scale
                more: dict[str, Any] = {"events_per_read": 1.0 if "+" in name else None}
                if name == "direct":
                    more["transit_s"] = {"p50": 0.0001, "p99": 0.0004, "max": 0.002}
                elif number == 0:
                    more["syscalls"] = {"per_token": 2.16, "by": "perf", "problem": None}
                found.append(row("relay", load, name, number, cell(cpu, **more)))
        for role, own, other in (("gen", "our gen", "aiohttp write"), ("client", "our Locust load", "HttpUser")):
            found.append(row(role, "plain", own, number, cell({"gen": 10.0 * drift, "client": 11.0 * drift})))
            found.append(row(role, "plain", other, number, cell({"gen": 30.0 * drift, "client": 44.0 * drift})))
        for load, us in (("small", 550.0), ("large", 3500.0)):
            processes = {role: {"cpu_us_per_request": us * drift} for role in ("gen", "ctx", "relay", "client")}
            found.append(row("request", load, LEAD, number, {"processes": processes, "lost": None}))
    steps = [
        {"tok_s": 40_000, "state": "held", "why": ""},
        {"tok_s": 45_000, "state": "generator", "why": "44,000 tok/s arrived; the fakes' core is 99% busy"},
    ]
    found.append(row("capacity", "climb", LEAD, 0, {"highest_tok_s": 40_000, "bound": "generator", "steps": steps}))
    return found


def row(table: str, load: str, name: str, number: int, figures: dict[str, Any]) -> dict[str, Any]:
    return {"table": table, "load": load, "name": name, "pass": number, **figures}


def manifest(**changes: Any) -> dict[str, Any]:
    return {
        "kind": "bench",
        "started": "2026-12-01T12:00:00+00:00",
        "command": "python -m bench",
        "plan": dataclasses.asdict(Plan.full(PASSES, 5.0)),
        "quick": False,
        "lead": LEAD,
        "ours": ["stream+parse", LEAD],
        "missing": {"aiperf-mock-server": "is not installed; python -m pip install aiperf-mock-server"},
        "candidates": {"nginx": "1.22.1"},
        "versions": {"python": "3.12.1", "aiohttp": "3.14.5"},
        "host": {"cpus": 2, "model": "Some CPU", "kernel": "6.1", "memory_gib": 8.0},
        "pinned": True,
        "interrupted": False,
        "elsewhere": {},
        **changes,
    }
