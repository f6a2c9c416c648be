"""From options to a scenario: which of its keys each option sets, and which options it has no use for."""

from __future__ import annotations

import argparse
import dataclasses

from loadtest.experiment.load_options import LOAD_OPTIONS, cleared, load_overrides
from loadtest.load_files import mean_output_tokens
from loadtest.load_settings import RATED, LoadSettings
from loadtest.scenario import Scenario, load_scenario
from sim.core.latency import step_s
from sim.core.settings import SettingError

__all__ = [
    "check_run_ends",
    "check_shared_cap",
    "check_streams_outlive",
    "drained_after_s",
    "lasting",
    "scenario_from",
    "settled_after_s",
]

LONGEST_UNASKED_S = 900.0
MARGIN_S = 30.0
DRAIN_BEFORE_S = 5.0
"""Of the time that streams get to finish, what is left for those that gen has to end."""
_PLAIN_OPTIONS = ("rate", "streams", "engine", "seed")


def scenario_from(options: argparse.Namespace) -> Scenario:
    """The scenario with every option that overrides one of its keys applied.  SettingError says what cannot be."""
    before, extra = cleared(options), load_overrides(options)
    if options.verb == "compare" and options.engine is not None:
        extra.append(f"orchestrator.engine={options.engine}")
    if options.duration and (options.verb == "run" or options.arrivals):
        # Where blocks follow, `lasting` makes it as long as they need.
        extra.append(f"load.duration_s={options.duration}")
    if options.seed is not None:
        extra += [f"{table}.seed={options.seed}" for table in ("ctx", "gen", "load")]

    def loaded() -> Scenario:
        try:
            return load_scenario(options.scenario, [*before, *options.overrides, *extra])
        except SettingError as error:
            raise SettingError(_with_options_named(str(error), options)) from None

    scenario = loaded()
    further = [*_burstiness_overrides(options, scenario), *_rate_overrides(options, scenario)]
    further += _step_overrides(options, scenario.load)
    if further:
        extra += further
        scenario = loaded()
    return scenario


def _with_options_named(message: str, options: argparse.Namespace) -> str:
    """What the user gave was perhaps an option, not --set."""
    names = [*_PLAIN_OPTIONS, *LOAD_OPTIONS, *(["duration"] if options.verb == "run" else [])]
    given = [f"--{name.replace('_', '-')}" for name in names if getattr(options, name, None)]
    if options.overrides or not given:
        given.append("--set")
    return message.replace("--set", " or ".join(given))


def _burstiness_overrides(options: argparse.Namespace, scenario: Scenario) -> list[str]:
    if not options.burstiness:
        return []
    if scenario.load.arrivals not in RATED:
        raise SettingError(
            f"--burstiness: {scenario.name} has {scenario.load.arrivals} arrivals; it is for {', '.join(RATED)}"
        )
    return ["load.arrivals=gamma", f"load.burstiness={options.burstiness}"]


def _rate_overrides(options: argparse.Namespace, scenario: Scenario) -> list[str]:
    load = scenario.load
    staggered = load.arrivals == "staggered"
    if options.arrivals and options.arrivals != load.arrivals:
        raise SettingError(f"--arrivals: contradicts load.trace, {load.trace}; a recording has its own arrivals")
    for name in ("speed", "skip_bad_rows"):
        if getattr(options, name) and not (load.trace or (name == "skip_bad_rows" and load.lengths_file)):
            raise SettingError(f"--{name.replace('_', '-')}: {scenario.name} reads no recording; give --trace")
    if options.streams and not staggered:
        raise SettingError(f"--streams: {scenario.name} has {load.arrivals} arrivals; it is for staggered")
    if options.request_rate and load.arrivals not in RATED:
        raise SettingError(
            f"--request-rate: {scenario.name} has {load.arrivals} arrivals; it is for {', '.join(RATED)}"
        )
    extra = [f"load.streams={options.streams}"] if options.streams else []
    if not options.rate:
        return extra
    if load.arrivals == "trace":
        raise SettingError("--rate: a trace has its own; --speed replays it faster or slower")
    if staggered:
        return [*extra, f"gen.tok_s={options.rate / (options.streams or load.streams)}"]
    if load.arrivals not in RATED:
        raise SettingError(f"--rate: {load.arrivals} arrivals have none; it is for staggered, {', '.join(RATED)}")
    if options.request_rate:
        raise SettingError("--rate: contradicts --request-rate; give one of the two")
    return [*extra, f"load.request_rate={options.rate / mean_output_tokens(load)}"]


def _step_overrides(options: argparse.Namespace, load: LoadSettings) -> list[str]:
    """Steps share the time that was asked for, where other arrivals are as long as it (a ramp) or just end."""
    if options.verb != "run" or not options.duration or load.arrivals != "steps":
        return []
    return [f"load.step_s={options.duration / len(load.rates_of_steps())}"]


def drained_after_s(load: LoadSettings) -> float | None:
    """When gen is told to end what is still live, seconds after the load's start; None: the schedule alone ends it.

    Standing streams are for the whole run.  Others get `stop_timeout_s` to finish, less a while: they are to end
    in order, and be checked, before the load gives them up.
    """
    if load.end_s is None:
        return None
    return load.end_s + (0.0 if load.arrivals == "staggered" else max(0.0, load.stop_timeout_s - DRAIN_BEFORE_S))


def settled_after_s(scenario: Scenario) -> float:
    """When as many streams end as begin, seconds after the first: after one stream's life; 0 for staggered ones."""
    return 0.0 if scenario.load.arrivals == "staggered" else _stream_s(scenario)


def _stream_s(scenario: Scenario) -> float:
    """How long such a reply streams, seconds."""
    return mean_output_tokens(scenario.load) * step_s(scenario.gen, 0.0)


def check_streams_outlive(scenario: Scenario, needed_s: float) -> None:
    """SettingError if staggered streams end before blocks that begin after the ramp are over."""
    lasts_s = _stream_s(scenario) - scenario.load.ramp_s
    if scenario.load.arrivals == "staggered" and lasts_s < needed_s + MARGIN_S:
        raise SettingError(
            f"load.output_tokens: streams of {mean_output_tokens(scenario.load):g} tokens last "
            f"{_stream_s(scenario):.0f} s and would end before the blocks do; at least "
            f"{needed_s + MARGIN_S + scenario.load.ramp_s:.0f} s are needed"
        )


def lasting(scenario: Scenario, seconds: float) -> Scenario:
    """The scenario with requests due for ``seconds``, where arrivals have no end of their own: no block sees it."""
    endless = scenario.load.arrivals in (*RATED, "closed") or scenario.load.burst_every_s
    if not endless or scenario.load.arrivals in ("staggered", "ramp", "steps", "trace"):
        return scenario
    load = dataclasses.replace(scenario.load, duration_s=seconds, limit=0)
    return dataclasses.replace(scenario, load=load)


def check_shared_cap(load: LoadSettings, workers: int) -> None:
    """SettingError if a cap on concurrency leaves one of the load's ``workers`` without a slot."""
    if 0 < load.max_concurrency < workers:
        raise SettingError(
            f"--workers: max_concurrency is {load.max_concurrency}, and each worker needs a slot of it; allowed: 1 to "
            f"{load.max_concurrency}"
        )


def check_run_ends(scenario: Scenario) -> None:
    """SettingError for a run that would go on for hours although nobody said so."""
    load = scenario.load
    if load.arrivals == "staggered" and not load.duration_s and _stream_s(scenario) > LONGEST_UNASKED_S:
        raise SettingError(
            f"--duration: the streams of {scenario.name} last {_stream_s(scenario) / 3600:.1f} h; say how long to run"
        )
