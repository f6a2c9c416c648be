"""Options that shape the load, under the names other load generators use: how they read, and which keys they set.

An option beats the scenario.  What contradicts is refused, and so is an option that the load has no use for; where
that depends on the scenario it is found out in `overrides`.
"""

from __future__ import annotations

import argparse

from loadtest.experiment.argument_types import at_least_one, positive
from loadtest.load_settings import ARRIVALS, RATED, LoadSettings
from sim.core.settings import SettingError

__all__ = ["LOAD_OPTIONS", "add_load_options", "check_load_options", "cleared", "load_overrides"]

GOODPUT_KEYS = {"ttft": "goodput_ttft_ms", "itl": "goodput_itl_ms", "tpot": "goodput_itl_ms", "e2e": "goodput_e2e_ms"}
LOAD_OPTIONS = {
    "arrivals": None, "request_rate": None, "burstiness": None, "max_concurrency": None, "trace": None, "speed": None,
    "skip_bad_rows": False, "goodput": None,
}  # fmt: skip
"""The options' names and what each is when it is not given."""
_RECORDED = ("arrivals", "request_rate", "burstiness")
_OF_SOME_ARRIVALS = ("burstiness", "end_request_rate", "step_rates")
"""Keys that only one kind of arrivals may have."""


def add_load_options(verb: argparse.ArgumentParser) -> None:
    """Add them to a verb that sends load."""
    verb.add_argument(
        "--arrivals", choices=ARRIVALS, default=None, metavar="NAME", help=f"one of {', '.join(ARRIVALS)}"
    )
    verb.add_argument("--request-rate", type=positive, default=None, metavar="R_S", help="requests per second")
    verb.add_argument(
        "--burstiness",
        type=positive,
        default=None,
        metavar="SHAPE",
        help="gamma arrivals of that shape: 1 is Poisson, below 1 burstier, above 1 more even",
    )
    verb.add_argument(
        "--max-concurrency",
        type=at_least_one,
        default=None,
        metavar="N",
        help="requests under way at any time; further ones wait and are late by it",
    )
    verb.add_argument("--trace", default=None, metavar="FILE", help="replay a recording (Azure, Mooncake, BurstGPT)")
    verb.add_argument("--speed", type=positive, default=None, metavar="X", help="of a replay; 2: twice as fast")
    verb.add_argument("--skip-bad-rows", action="store_true", help="of a recording: leave broken rows out, count them")
    verb.add_argument(
        "--goodput",
        type=_goodput_limit,
        nargs="+",
        default=None,
        metavar="KEY:MS",
        help="what a good stream keeps to, such as ttft:500 itl:50 e2e:5000; tpot is the same as itl",
    )


def check_load_options(options: argparse.Namespace) -> None:
    """SettingError for options that contradict each other whatever the scenario is."""
    arrivals = options.arrivals
    if options.trace is not None:
        for name in _RECORDED:
            if getattr(options, name) and (name, arrivals) != ("arrivals", "trace"):
                raise SettingError(f"{_flag(name)}: contradicts --trace; a recording has its own arrivals")
    if arrivals is None:
        return
    if options.burstiness and arrivals != "gamma":
        raise SettingError(f"--burstiness: contradicts --arrivals {arrivals}; it is for gamma")
    if options.request_rate and arrivals not in RATED:
        raise SettingError(f"--request-rate: contradicts --arrivals {arrivals}; it is for {', '.join(RATED)}")
    if arrivals == "closed" and not (options.max_concurrency or _is_set(options.overrides, "max_concurrency")):
        raise SettingError("--arrivals: closed ones need --max-concurrency, the number of requests under way")


def cleared(options: argparse.Namespace) -> list[str]:
    """Overrides that take away what the scenario's own arrivals had, where an option asks for others."""
    if options.arrivals is None and options.trace is None:
        return []
    defaults = LoadSettings()
    keys = _OF_SOME_ARRIVALS if options.arrivals in (None, "trace") else (*_OF_SOME_ARRIVALS, "trace")
    return [f"load.{key}={getattr(defaults, key)}" for key in keys]


def load_overrides(options: argparse.Namespace) -> list[str]:
    """The keys that the options set, but for ``--burstiness``.  SettingError as `check_load_options`."""
    check_load_options(options)
    extra = [
        f"load.{name}={getattr(options, name)}"
        for name in ("arrivals", "request_rate", "max_concurrency", "trace", "speed")
        if getattr(options, name) is not None
    ]
    if options.skip_bad_rows:
        extra.append("load.skip_bad_rows=true")
    limits: dict[str, float] = {}
    for name, limit_ms in options.goodput or ():
        if GOODPUT_KEYS[name] in limits:
            raise SettingError(f"--goodput: {name} is given twice (tpot is the same as itl)")
        limits[GOODPUT_KEYS[name]] = limit_ms
    return [*extra, *(f"load.{key}={limit_ms}" for key, limit_ms in limits.items())]


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _is_set(overrides: list[str], key: str) -> bool:
    return any(override.partition("=")[0].strip() in (key, f"load.{key}") for override in overrides)


def _goodput_limit(text: str) -> tuple[str, float]:
    name, _, limit = text.partition(":")
    if name not in GOODPUT_KEYS:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not of the form KEY:MS, such as ttft:500; keys: {', '.join(GOODPUT_KEYS)}"
        )
    return name, positive(limit)
