"""The policies known at start, which of them is active, and one stream's callables of all of them.

A switch moves one index.  Every stream holds a callable of each policy from the moment it opens, and an event
goes to the policy that is active when the read that completes it is processed; so a switch is clean on live
streams and costs none of them anything.

What a policy does is `policies`; when a switch happens is the business of `admin` and `ledger`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from sim.core.sse import is_done
from sim.core.usage import Usage
from sim.orchestrator.counters import PolicyCounters
from sim.orchestrator.plugin import PluginError, load_plugin
from sim.orchestrator.policies import ALIASES, BUILTIN, NEEDS_GEN, Factory, Policy, canonical

__all__ = [
    "Arms",
    "NeedsGenError",
    "PolicyFailedError",
    "StreamPolicies",
    "UnknownPolicyError",
    "build_arms",
    "differs",
]

log = logging.getLogger(__name__)

_LONGEST_USUAL_DONE = 64  # bytes; a longer end marker (with id: lines, say) is found when the stream ends


class UnknownPolicyError(ValueError):
    """A policy that was not known at start."""


class NeedsGenError(ValueError):
    """A policy that is right only with ``usage_by=gen``, asked for without it."""


class PolicyFailedError(Exception):
    """A policy raised, or returned something that is not bytes; ``sent`` is what the events before it became."""

    def __init__(self, policy: str, problem: str, sent: Sequence[bytes] = ()) -> None:
        super().__init__(f"policy {policy!r} {problem}")
        self.sent = sent


class Arms:
    """The loaded policies in order, and the index of the active one."""

    def __init__(self, factories: Sequence[tuple[str, Factory]], active: str, *, usage_by_gen: bool) -> None:
        self.names = tuple(name for name, _ in factories)
        self.counters = tuple(PolicyCounters() for _ in factories)
        self.usage_by_gen = usage_by_gen
        self._factories = tuple(factory for _, factory in factories)
        self._complained: set[str] = set()
        self.active = self.index_of(active)

    @property
    def policy(self) -> str:
        """The active policy's name."""
        return self.names[self.active]

    def index_of(self, name: str) -> int:
        """The index to switch to for ``name`` (or an alias).  UnknownPolicyError, NeedsGenError."""
        own = canonical(name)
        if own not in self.names:
            raise UnknownPolicyError(f"unknown policy {name!r}; known: {', '.join(self.names)}")
        if own == NEEDS_GEN and not self.usage_by_gen:
            raise NeedsGenError(
                f"policy {own!r} needs usage_by=gen: gen's usage is wrong otherwise, and it relays that"
            )
        return self.names.index(own)

    def factory_of(self, name: str) -> Factory:
        """What makes the callables of the policy ``name``."""
        return self._factories[self.index_of(name)]

    def open(self, ctx_usage: Usage) -> StreamPolicies:
        """One stream's callables.  PolicyFailedError when a plug-in fails to make one."""
        callables: list[Policy] = []
        for name, factory, counters in zip(self.names, self._factories, self.counters, strict=True):
            try:
                made = factory(ctx_usage, counters)
            except (Exception, SystemExit) as error:
                self.complain(name, error)
                raise PolicyFailedError(name, f"raised {type(error).__name__}") from error
            if not callable(made):
                raise PolicyFailedError(name, f"made a {type(made).__name__}, not a callable")
            callables.append(made)
        return StreamPolicies(self, callables)

    def complain(self, name: str, error: BaseException) -> None:
        """Log a policy's failure with its traceback, once: it is likely to fail on every stream."""
        if name not in self._complained:
            self._complained.add(name)
            log.warning("policy %s failed", name, exc_info=error)

    def to_json(self) -> dict[str, dict[str, int | None]]:
        """Counts per policy; ``parsed`` is None for a plug-in."""
        return {
            name: {
                "offered": c.offered,
                "unchanged": c.unchanged,
                "changed": c.changed,
                "failed": c.failed,
                "parsed": c.parsed if name in BUILTIN else None,
            }
            for name, c in zip(self.names, self.counters, strict=True)
        }


class StreamPolicies:
    """One stream's callable of every policy; `apply` gives events to the active one.

    A relay that gives the active one, ``callables[arms.active]``, an event by itself counts what became of it.
    """

    __slots__ = ("arms", "callables", "done")

    def __init__(self, arms: Arms, callables: Sequence[Policy]) -> None:
        self.arms = arms
        self.callables = tuple(callables)
        self.done = False
        """Has the stream's end marker been seen?"""

    def apply(self, events: list[bytes]) -> bytes:
        """The bytes to send for ``events`` (one read's), in one piece.  PolicyFailedError."""
        arms = self.arms
        index = arms.active
        policy, counters = self.callables[index], arms.counters[index]
        counters.cut += len(events)
        sent: list[bytes] = []
        try:
            for event in events:
                out = policy(event)
                # Nearly always the same object comes back; only another one is looked at.
                if out is not event:
                    counters.changed += differs(out, event)
                sent.append(out)
                if len(event) <= _LONGEST_USUAL_DONE and is_done(event):
                    self.done = True
        except (Exception, SystemExit) as error:  # a user's code may raise anything
            raise self.failure(error, len(events) - len(sent), sent) from error
        return b"".join(sent)

    def failure(self, error: BaseException, unsent: int, sent: Sequence[bytes] = ()) -> PolicyFailedError:
        """Count ``unsent`` events as failed by the active policy, log why, and say it."""
        arms = self.arms
        name = arms.names[arms.active]
        arms.complain(name, error)
        arms.counters[arms.active].failed += unsent
        problem = str(error) if isinstance(error, _NotBytesError) else f"raised {type(error).__name__}"
        return PolicyFailedError(name, problem, sent)


class _NotBytesError(TypeError):
    def __init__(self, type_name: str) -> None:
        super().__init__(f"returned a {type_name}, not bytes")


def differs(out: object, event: bytes) -> bool:
    """Whether a policy changed ``event``; raises when what it returned is not bytes."""
    if type(out) is not bytes:
        raise _NotBytesError(type(out).__name__)
    return out != event


def build_arms(names: Iterable[str], active: str, *, usage_by_gen: bool) -> Arms:
    """Load the policies ``names`` (aliases and plug-ins too); ``active`` is added when it is not among them.

    Raises UnknownPolicyError (with the names allowed) or NeedsGenError for ``active``.
    """
    factories = []
    for name in dict.fromkeys(canonical(name) for name in (*names, active)):
        if ":" in name:
            try:
                factories.append((name, load_plugin(name)))
            except PluginError as error:
                raise UnknownPolicyError(f"{error}; built-in policies: {', '.join(BUILTIN)}") from error
        elif name in BUILTIN:
            factories.append((name, BUILTIN[name]))
        else:
            known = ", ".join((*BUILTIN, *ALIASES))
            raise UnknownPolicyError(f"unknown policy {name!r}; built-in: {known}, or package.module:callable")
    return Arms(factories, active, usage_by_gen=usage_by_gen)
