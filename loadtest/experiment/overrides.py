"""From options to a scenario: which of its keys each option sets, and which options it has no use for."""

from __future__ import annotations

import argparse
import dataclasses

from loadtest.load_settings import LoadSettings
from loadtest.scenario import Scenario, load_scenario
from loadtest.workload import PRESETS
from sim.core.latency import step_s
from sim.core.settings import SettingError

__all__ = ["check_run_ends", "check_streams_outlive", "drained_after_s", "lasting", "scenario_from", "settled_after_s"]

LONGEST_UNASKED_S = 900.0
MARGIN_S = 30.0
DRAIN_BEFORE_S = 5.0
"""Of the time that streams get to finish, what is left for those that gen has to end."""


def scenario_from(options: argparse.Namespace) -> Scenario:
    """The scenario with every option that overrides one of its keys applied.  SettingError says what cannot be."""
    scenario = load_scenario(options.scenario, options.overrides)
    extra = [*_rate_overrides(options, scenario)]
    if options.verb == "compare" and options.engine is not None:
        extra.append(f"orchestrator.engine={options.engine}")
    if options.verb == "run" and options.duration:
        extra.append(_lasting_override(options.duration, scenario.load))
    if options.seed is not None:
        extra += [f"{table}.seed={options.seed}" for table in ("ctx", "gen", "load")]
    if not extra:
        return scenario
    try:
        return load_scenario(options.scenario, [*options.overrides, *extra])
    except SettingError as error:
        # What the user gave was an option, not --set.
        raise SettingError(
            str(error).replace("--set", "--rate, --streams, --request-rate, --duration, --engine or --seed")
        ) from None


def _rate_overrides(options: argparse.Namespace, scenario: Scenario) -> list[str]:
    load = scenario.load
    staggered = load.arrivals == "staggered"
    if options.streams and not staggered:
        raise SettingError(f"--streams: {scenario.name} has {load.arrivals} arrivals; give --request-rate")
    if options.request_rate and load.arrivals not in ("constant", "poisson"):
        raise SettingError(
            f"--request-rate: {scenario.name} has {load.arrivals} arrivals; it is for constant or poisson"
        )
    extra = [f"load.streams={options.streams}"] if options.streams else []
    if options.request_rate:
        extra.append(f"load.request_rate={options.request_rate}")
    if options.rate and load.arrivals == "trace":
        raise SettingError("--rate: a trace has its own; --set speed=N replays it faster or slower")
    if options.rate and staggered:
        extra.append(f"gen.tok_s={options.rate / (options.streams or load.streams)}")
    elif options.rate:
        if options.request_rate:
            raise SettingError("--rate: contradicts --request-rate; give one of the two")
        extra.append(f"load.request_rate={options.rate / _reply_tokens(scenario)}")
    return extra


def _lasting_override(seconds: float, load: LoadSettings) -> str:
    """What makes requests due for that long: a ramp is as long as the load, steps share it, the others just end."""
    if load.arrivals == "steps":
        return f"load.step_s={seconds / len(load.rates_of_steps())}"
    return f"load.duration_s={seconds}"


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


def _reply_tokens(scenario: Scenario) -> float:
    """Length of a reply, on average where lengths are drawn."""
    load = scenario.load
    return load.output_tokens if load.lengths == "fixed" else PRESETS[load.lengths][1].mean_tokens


def _stream_s(scenario: Scenario) -> float:
    """How long such a reply streams, seconds."""
    return _reply_tokens(scenario) * step_s(scenario.gen, 0.0)


def check_streams_outlive(scenario: Scenario, needed_s: float) -> None:
    """SettingError if staggered streams end before blocks that begin after the ramp are over."""
    lasts_s = _stream_s(scenario) - scenario.load.ramp_s
    if scenario.load.arrivals == "staggered" and lasts_s < needed_s + MARGIN_S:
        raise SettingError(
            f"load.output_tokens: streams of {_reply_tokens(scenario):g} tokens last {_stream_s(scenario):.0f} s and "
            f"would end before the blocks do; at least {needed_s + MARGIN_S + scenario.load.ramp_s:.0f} s are needed"
        )


def lasting(scenario: Scenario, seconds: float) -> Scenario:
    """The scenario with requests due for ``seconds`` (constant and Poisson), so that no block sees their end."""
    if scenario.load.arrivals not in ("constant", "poisson"):
        return scenario
    load = dataclasses.replace(scenario.load, duration_s=seconds, limit=0)
    return dataclasses.replace(scenario, load=load)


def check_run_ends(scenario: Scenario) -> None:
    """SettingError for a run that would go on for hours although nobody said so."""
    load = scenario.load
    if load.arrivals == "staggered" and not load.duration_s and _stream_s(scenario) > LONGEST_UNASKED_S:
        raise SettingError(
            f"--duration: the streams of {scenario.name} last {_stream_s(scenario) / 3600:.1f} h; say how long to run"
        )
