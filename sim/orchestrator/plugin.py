"""A user's own policy, named ``package.module:callable``: found, checked and called once at start.

The callable takes a stream's `Usage` from ctx and returns the function that maps each event's bytes.  It is
looked up only here, never by a name that came over HTTP.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any

from sim.core.usage import Usage
from sim.orchestrator.counters import PolicyCounters
from sim.orchestrator.policies import Factory, Policy

__all__ = ["PluginError", "load_plugin"]

_FORM = "a plug-in is package.module:callable with callable(ctx_usage: Usage) -> Callable[[bytes], bytes]"
_PROBE = Usage(prompt_tokens=2, cached_tokens=1, completion_tokens=1)


class PluginError(ValueError):
    """A plug-in that cannot be used; says which and why."""


def load_plugin(name: str) -> Factory:
    """The policy factory behind ``name``, made once as a trial.

    The trial finds a callable of the wrong form (one that takes the event itself, say) at start rather than on
    the first stream.  Raises PluginError.
    """
    module_name, _, path = name.partition(":")
    if not module_name or not path:
        raise PluginError(f"{name!r}: {_FORM}")
    try:
        target: Any = importlib.import_module(module_name)
        for part in path.split("."):
            target = getattr(target, part)
    except (Exception, SystemExit) as error:  # a script without a main guard exits
        raise PluginError(f"{name!r} cannot be loaded: {type(error).__name__}: {error}") from error
    if not callable(target):
        raise PluginError(f"{name!r} is a {type(target).__name__}, not a callable; {_FORM}")
    try:
        inspect.signature(target).bind(_PROBE)
    except TypeError as error:
        raise PluginError(f"{name!r} does not take the one argument ctx_usage ({error}); {_FORM}") from None
    except ValueError:
        pass  # written in C, without a signature: the trial tells
    try:
        made = target(_PROBE)
    except (Exception, SystemExit) as error:
        raise PluginError(f"{name!r} raised for {_PROBE}: {type(error).__name__}: {error}; {_FORM}") from error
    if not callable(made):
        raise PluginError(f"{name!r} returned a {type(made).__name__}, not a callable; {_FORM}")
    return _without_counters(target)


def _without_counters(target: Callable[[Usage], Policy]) -> Factory:
    """A plug-in counts nothing of its own: what it parses, nobody knows."""

    def factory(ctx_usage: Usage, counters: PolicyCounters) -> Policy:  # noqa: ARG001
        return target(ctx_usage)

    return factory
