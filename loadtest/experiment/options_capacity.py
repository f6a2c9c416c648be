"""The options of ``disagg-sim capacity``, their checks, and the scenario and plan that follow from them."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable
from typing import Any

from loadtest.experiment.argument_types import add_policies, at_least_one, positive, worker_counts
from loadtest.experiment.capacity_slo import Slo, parse_slo
from loadtest.experiment.topology import pinning_of, usable_cpus
from loadtest.scenario import Scenario, load_scenario
from sim.core.settings import OrchestratorSettings, SettingError, from_mapping

__all__ = ["add_capacity", "planned_capacity"]

_STREAMS = 1000
_OUTPUT_TOKENS = 10_000_000
"""Of a standing stream: at 1,000 tok/s of its own it lasts longer than any run."""


def add_capacity(verb: argparse.ArgumentParser, add_topology_options: Callable[..., None]) -> None:
    """Add the arguments of the verb; ``add_topology_options`` adds those that every verb with servers has."""
    slo = Slo()
    add_policies(verb)
    add_topology_options(verb, scenario="seed")
    verb.add_argument("--engine", default=None, metavar="NAME,...", help="relay engines (default: the scenario's)")
    verb.add_argument(
        "--orchestrator-workers",
        type=worker_counts,
        default=[1],
        metavar="N,...",
        help="numbers of orchestrator processes, such as 1,2,4: gives the scaling curve (default 1)",
    )
    verb.add_argument(
        "--slo",
        type=_slo,
        default=slo,
        metavar="KEY:MS...",
        help=f"what a rate must keep, such as 'lag:{slo.lag:g} ttft:{slo.ttft:g} itl:{slo.itl:g}' (the defaults): loop "
        "lag p99, TTFT p95, ITL p99 above the stream's own pace, ms",
    )
    verb.add_argument("--streams", type=at_least_one, default=_STREAMS, metavar="N", help="standing streams")
    verb.add_argument(
        "--from", type=positive, default=5_000.0, metavar="TOK_S", dest="from_tok_s", help="first rate (default 5000)"
    )
    verb.add_argument(
        "--to",
        type=positive,
        default=150_000.0,
        metavar="TOK_S",
        dest="to_tok_s",
        help="no rate above this (default 150000)",
    )
    verb.add_argument(
        "--repeats", type=at_least_one, default=3, metavar="N", help="rounds of probes around the limit (default 3)"
    )
    verb.add_argument("--probe-s", type=positive, default=1.5, metavar="S", help="time of a probe (default 1.5)")
    verb.add_argument(
        "--max-minutes",
        type=positive,
        default=5.0,
        metavar="M",
        help="time for probing, shared out evenly; starting the servers comes on top (default 5)",
    )
    verb.add_argument("--json", action="store_true", help="print the result as JSON; progress goes to stderr")


def _slo(text: str) -> Slo:
    try:
        return parse_slo(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def planned_capacity(options: argparse.Namespace) -> tuple[Scenario, dict[str, Any]]:
    """The scenario, and what the manifest holds beside it.  SettingError for options that cannot be."""
    scenario = load_scenario(options.scenario, options.overrides)
    load = scenario.load
    if load.arrivals != "staggered":
        raise SettingError(f"--scenario: {scenario.name} has {load.arrivals} arrivals; capacity needs standing streams")
    if options.to_tok_s <= options.from_tok_s:
        raise SettingError(f"--to: {options.to_tok_s:g} tok/s is not above --from, {options.from_tok_s:g}")
    fastest = options.to_tok_s / options.streams
    if fastest > 1000:
        raise SettingError(f"--to: {fastest:,.0f} tok/s a stream are too many; at most 1000, so give more --streams")
    if len(set(options.policies)) < len(options.policies):
        raise SettingError("POLICY: one is named twice")
    engines = options.engine.split(",") if options.engine else [scenario.orchestrator.engine]
    for engine in engines:
        try:
            from_mapping(OrchestratorSettings, {"engine": engine}, "-")
        except SettingError as error:
            raise SettingError(str(error).replace("-.engine", "--engine")) from None
    if len(set(engines)) < len(engines):
        raise SettingError("--engine: one is named twice")
    seeded = {} if options.seed is None else {"seed": options.seed}
    scenario = dataclasses.replace(
        scenario,
        ctx=dataclasses.replace(scenario.ctx, **seeded),
        gen=dataclasses.replace(scenario.gen, **seeded),
        load=dataclasses.replace(load, streams=options.streams, output_tokens=_OUTPUT_TOKENS, **seeded),
    )
    return scenario, {
        "policies": options.policies,
        "engines": engines,
        "workers": options.orchestrator_workers,
        "cpus_by_workers": {
            str(workers): sorted(pinning_of(usable_cpus(), wanted=not options.no_pin, workers=workers).orchestrator)
            for workers in options.orchestrator_workers
        },
        "slo": dataclasses.asdict(options.slo),
        "from_tok_s": options.from_tok_s,
        "to_tok_s": options.to_tok_s,
        "probe_s": options.probe_s,
        "repeats": options.repeats,
        "max_minutes": options.max_minutes,
    }
