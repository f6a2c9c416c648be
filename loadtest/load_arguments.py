"""The locustfile's own options on Locust's command line, and what they ask for: a plan, operations ports, limits."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

from loadtest import socket_limits
from loadtest.load_settings import LoadSettings
from loadtest.plan import LoadPlan, check_address
from loadtest.scenario import load_scenario
from sim.core.settings import SettingError

__all__ = ["add_arguments", "check_limits", "ops_address", "plan_of"]

DEFAULT_SCENARIO = "smoke"
ANY_PORT = "127.0.0.1:0"


def add_arguments(parser: Any) -> None:
    """Add them to Locust's parser; none is in the web UI's form."""
    hidden = {"include_in_web_ui": False}
    parser.add_argument("--plan", metavar="FILE", default=None, help="run this load plan (JSON)", **hidden)
    parser.add_argument(
        "--scenario",
        metavar="NAME|FILE",
        default=DEFAULT_SCENARIO,
        help=f"without a plan: the scenario whose load to send (default {DEFAULT_SCENARIO})",
        **hidden,
    )
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        dest="overrides",
        action="append",
        default=[],
        help="without a plan: override a key of the scenario, such as streams=50 or load.seed=2",
        **hidden,
    )
    parser.add_argument(
        "--ops",
        metavar="HOST:PORT",
        default=None,
        help="serve /metrics there (port 0: any; a worker's default is 127.0.0.1:0); the address is printed",
        **hidden,
    )
    parser.add_argument(
        "--share",
        metavar="INDEX",
        type=int,
        default=None,
        help="a worker's place among the workers, from 0 (default: in the order of connecting)",
        **hidden,
    )


def plan_of(options: argparse.Namespace, host: str | None) -> LoadPlan:
    """The plan's file, or a plan made of a scenario's load.  SettingError says what is wrong."""
    if options.plan:
        return LoadPlan.read(Path(options.plan))
    if not host:
        raise SettingError("--host: say where to send the load, such as --host http://127.0.0.1:8000")
    scenario = load_scenario(options.scenario, options.overrides)
    return LoadPlan(host=host, settings=scenario.load, usage_by_ctx=False)


def ops_address(options: argparse.Namespace, plan: LoadPlan | None) -> str | None:
    """Where this process serves its operations port; a worker has no ``plan``, and always a port."""
    address: str | None = options.ops
    if address is None:
        return ANY_PORT if plan is None else plan.ops
    check_address("--ops", address)
    if options.processes and not address.endswith(":0"):
        raise SettingError(f"--ops: {address!r} is one port for several processes; with --processes give port 0")
    return address


def check_limits(settings: LoadSettings, copies: float) -> None:
    """Refuse a load that cannot fit, as far as it is known how many streams there are at once.  SettingError."""
    streams = math.ceil(settings.streams_at_once * copies)
    descriptors = socket_limits.raise_descriptor_limit(streams + socket_limits.SPARE_DESCRIPTORS)
    reason = socket_limits.shortfall(streams, descriptors, socket_limits.local_ports())
    if reason is not None:
        raise SettingError(f"streams: {reason}")
