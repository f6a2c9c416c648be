"""Our own programs as candidates: orchestrator by engine and policy, ctx and gen server, the Locust load.

They are started as processes and known by URL, as everybody else's.  What each can do (engines, policies) is asked of
its own command line, so that a policy which is new needs no word here.
"""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import loadtest
from bench.candidate import Addresses, Candidate, Load
from loadtest.load_settings import LoadSettings
from loadtest.plan import LoadPlan
from sim.core.settings import GenSettings, OrchestratorSettings

__all__ = [
    "CHUNK_BYTES",
    "CLIENT_NAME",
    "GEN_NAME",
    "READY_WORD",
    "can_stamp",
    "client",
    "ctx",
    "engines",
    "gen",
    "gen_settings",
    "orchestrator",
    "policies",
    "standing_plan",
]

GEN_NAME, CLIENT_NAME = "our gen", "our Locust load"
CHUNK_BYTES = 258
READY_WORD = '"ready": true'
_LONGEST_REPLY_TOKENS = 1_000_000
_LOCUSTFILE = Path(loadtest.__path__[0]) / "locustfile.py"
_HELP_TIMEOUT_S = 30

PlanOf = Callable[[Addresses, Path, Load], LoadPlan]


def engines() -> tuple[str, ...]:
    """Relay engines that the orchestrator has."""
    known = next(entry for entry in dataclasses.fields(OrchestratorSettings) if entry.name == "engine")
    return tuple(known.metadata["choices"])


def policies() -> tuple[str, ...]:
    """Policies that the orchestrator has built in, as its ``--help`` lists them."""
    argv = [sys.executable, "-m", "sim.orchestrator", "--help"]
    text = subprocess.run(argv, capture_output=True, text=True, timeout=_HELP_TIMEOUT_S, check=True).stdout  # noqa: S603  our own
    found = re.search(r"\[default:\s*([\w,\s-]+)\]", text.partition("--policies")[2])
    if found is None:
        raise RuntimeError("python -m sim.orchestrator --help names no policies")
    return tuple(re.sub(r"\s", "", found[1]).split(","))


def orchestrator(engine: str, policy: str) -> Candidate:
    """The orchestrator with one engine and one policy; ``verbatim`` needs gen to report ctx's usage."""

    def argv(addresses: Addresses, _folder: Path, _load: Load | None) -> Sequence[str]:
        return [
            *_server("orchestrator", addresses),
            *("--ctx", addresses.ctx_url, "--gen", addresses.gen_url),
            *("--engine", engine, "--policies", policy, "--policy", policy),
            *(("--usage-by", "gen") if policy == "verbatim" else ()),
        ]

    return Candidate(f"{engine}+{policy}", "relay", _version, _is_there, argv)


def can_stamp() -> bool:
    """Whether our gen can say in each event when it was sent."""
    return any(entry.name == "stamp_sent" for entry in dataclasses.fields(GenSettings))


def gen_settings(tok_s: float, *, stamped: bool = False) -> GenSettings:
    """What our gen server is told; ``stamped``: every event says when it was sent, where gen can do that."""
    stamps: dict[str, Any] = {"stamp_sent": True} if stamped and can_stamp() else {}
    return GenSettings(tok_s=tok_s, chunk_bytes=CHUNK_BYTES, usage="final", **stamps)


def gen(settings: GenSettings) -> Candidate:
    """Our gen server."""

    def argv(addresses: Addresses, _folder: Path, _load: Load | None) -> Sequence[str]:
        return [*_server("gen_server", addresses), *_flags(settings)]

    return Candidate(GEN_NAME, "gen", _version, _is_there, argv)


def ctx() -> Candidate:
    """Our ctx server, as it is by default."""
    return Candidate("our ctx", "ctx", _version, _is_there, lambda addresses, _, __: _server("ctx_server", addresses))


def client(plan_of: PlanOf) -> Candidate:
    """Our Locust load; ``plan_of`` makes its plan from (addresses, folder for results, load)."""

    def argv(addresses: Addresses, folder: Path, load: Load | None) -> Sequence[str]:
        assert load is not None
        plan = plan_of(addresses, folder, load)
        plan.write(folder / "plan.json")
        return [
            *(sys.executable, "-m", "locust", "-f", str(_LOCUSTFILE), "--headless", "-u", "1", "-r", "1"),
            *("--only-summary", "--host", plan.host, "--plan", str(folder / "plan.json")),
        ]

    return Candidate(CLIENT_NAME, "client", _version, _is_there, argv, ready_path="")


def standing_plan(
    *, gen: GenSettings | None, judged: bool, endpoint: str, drained: bool, cache_hit_ratio: float | None
) -> PlanOf:
    """Streams that outlive the measurement.

    ``gen`` are the settings of our gen server, None for another's.
    ``judged``: the relay must tell ctx's usage, and a sample is compared byte for byte.
    Of others usage is not asked for: a reply that gen was told to drain shows by its finish_reason that it is whole.
    ``drained``: gen will be told to; else the load closes its streams when it is told to end.
    """
    path = "/v1/chat/completions" if endpoint.endswith("/chat/completions") else "/v1/completions"

    def plan_of(addresses: Addresses, folder: Path, load: Load) -> LoadPlan:
        return LoadPlan(
            host=addresses.target_url + endpoint.removesuffix(path),
            settings=LoadSettings(
                endpoint="chat" if path == "/v1/chat/completions" else "completions",
                include_usage=judged,
                streams=load.streams,
                ramp_s=load.ramp_s,
                output_tokens=_LONGEST_REPLY_TOKENS,
                sample_every=100 if judged else 0,
                stop_timeout_s=0.0,
            ),
            gen=gen,
            cache_hit_ratio=cache_hit_ratio if judged else None,
            usage_by_ctx=judged,
            may_end_early=drained,
            out=str(folder.absolute()),
            ops=f"127.0.0.1:{addresses.second_port}",
        )

    return plan_of


def _server(module: str, addresses: Addresses) -> list[str]:
    listen = ("--listen", f"127.0.0.1:{addresses.port}", "--ops", f"127.0.0.1:{addresses.second_port}")
    return [sys.executable, "-m", f"sim.{module}", *listen]


def _flags(settings: GenSettings) -> list[str]:
    """Flags of what differs from the defaults."""
    flags: list[str] = []
    for entry in dataclasses.fields(settings):
        value = getattr(settings, entry.name)
        if value != entry.default:
            text = str(value).lower() if isinstance(value, bool) else str(value)
            flags += [f"--{entry.name.replace('_', '-')}", text]
    return flags


def _version() -> str:
    return metadata.version("disagg-sim")


def _is_there() -> str | None:
    return None
