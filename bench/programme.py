"""What a bench run measures, and in which order: the loads, the subjects, the jobs of every pass.

Passes are interleaved, A B C ... A B C ..., so that whatever drifts meets every subject alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench import candidates, ours
from bench.candidate import Candidate
from bench.capacity import LADDER_TOK_S
from bench.cell import Timing
from bench.churn import Churn
from sim.core.settings import SettingError

__all__ = ["DIRECT", "Job", "Plan", "Shape", "Subjects", "jobs_of", "subjects_of"]

DIRECT = "direct"
OUR_POLICIES = ("parse", "prefilter", "prefilter-find", "prefilter-tail", "verbatim")
FILTERS = ("prefilter-find", "prefilter-tail")  # the leanest on small chunks first
LEAD_ENGINES = ("splice", "stream")  # the leanest first
_STEP_S = 3.0  # of starting and ending the processes of a cell, about
_CLIMB_STEPS = 3.5  # of one climb, about


@dataclass(frozen=True, slots=True)
class Shape:
    """Standing streams: how many, tokens per second of each, and the time over which they start."""

    streams: int
    tok_s: float
    ramp_s: float

    @property
    def text(self) -> str:
        """As in "1,000 x 15"."""
        return f"{self.streams:,} x {self.tok_s:g}"


@dataclass(frozen=True, slots=True)
class Plan:
    """How long and how often.

    ``dense`` is the targets' load, ``wide`` that of many streams, ``fast`` twice the rate of both.
    """

    passes: int
    window_s: float
    settle_s: float
    syscalls_s: float
    dense: Shape
    wide: Shape
    fast: Shape
    climb_window_s: float
    climb_streams: int
    ladder: tuple[int, ...]
    small_request: Churn
    large_request: Churn

    @classmethod
    def full(cls, passes: int, window_s: float) -> Plan:
        """The plan of ``make bench``."""
        return cls(
            passes=passes,
            window_s=window_s,
            settle_s=0.7,
            syscalls_s=1.0,
            dense=Shape(1000, 15.0, 2.5),
            wide=Shape(3000, 5.0, 4.0),
            fast=Shape(3000, 10.0, 4.0),
            climb_window_s=min(3.0, window_s),
            climb_streams=1000,
            ladder=LADDER_TOK_S,
            small_request=Churn(64, 250.0, 1.0, window_s),
            large_request=Churn(40_000, 20.0, 1.5, window_s),
        )

    @classmethod
    def quick(cls, passes: int, window_s: float) -> Plan:
        """A smoke run: everything once, at loads that show nothing of a speed."""
        return cls(
            passes=passes,
            window_s=window_s,
            settle_s=0.2,
            syscalls_s=0.3,
            dense=Shape(40, 15.0, 0.3),
            wide=Shape(80, 5.0, 0.3),
            fast=Shape(80, 10.0, 0.3),
            climb_window_s=window_s,
            climb_streams=20,
            ladder=(800,),
            small_request=Churn(64, 40.0, 0.3, window_s),
            large_request=Churn(40_000, 5.0, 0.8, window_s),
        )

    def shape(self, load: str) -> Shape:
        """The streams of a load; ``plain`` is dense without the stamps that latency is read from."""
        return {"dense": self.dense, "plain": self.dense, "wide": self.wide, "fast": self.fast}[load]

    def timing(self, shape: Shape, *, window_s: float | None = None, syscalls: bool = False) -> Timing:
        """The seconds of one cell."""
        return Timing(shape.ramp_s, self.settle_s, window_s or self.window_s, self.syscalls_s if syscalls else 0.0)


@dataclass(frozen=True, slots=True)
class Subjects:
    """Everything that can be measured here; ``missing`` says of the rest why not and how to get it."""

    relays: tuple[Candidate, ...]
    gens: tuple[Candidate, ...]
    clients: tuple[Candidate, ...]
    missing: dict[str, str]
    lead: str
    direct: bool
    our_gen: bool
    our_client: bool
    ours: frozenset[str]

    def relay(self, name: str) -> Candidate:
        """The relay of that name."""
        return next(candidate for candidate in self.relays if candidate.name == name)


@dataclass(frozen=True, slots=True)
class Job:
    """One cell: ``load`` is dense, plain, wide or fast; small or large; or climb.  ``about_s``: how long it takes."""

    table: str
    load: str
    name: str
    number: int  # of its pass, from 0
    about_s: float


def subjects_of(only: Sequence[str]) -> Subjects:
    """All subjects, or the named ones.  SettingError for a name that is not known."""
    engines, policies = ours.engines(), ours.policies()
    engine = next(engine for engine in LEAD_ENGINES if engine in engines)
    lead = f"{engine}+{next(policy for policy in FILTERS if policy in policies)}"
    own = [ours.orchestrator(one, policy) for one in engines for policy in OUR_POLICIES if policy in policies]
    others = _others()
    gen, client = ours.GEN_NAME, ours.CLIENT_NAME
    known = [DIRECT, *(candidate.name for candidate in (*own, *others)), gen, client]
    unknown = [name for name in only if name not in known]
    if unknown:
        raise SettingError(f"--only: unknown name {unknown[0]!r}; known: {', '.join(known)}")
    wanted = set(only or known)
    missing: dict[str, str] = {}
    there = []
    for candidate in others:
        if candidate.name in wanted:
            reason = candidate.missing()
            if reason is None:
                there.append(candidate)
            else:
                missing[candidate.name] = reason

    def of(kind: str) -> tuple[Candidate, ...]:
        return tuple(candidate for candidate in there if candidate.kind == kind)

    return Subjects(
        relays=(*(candidate for candidate in own if candidate.name in wanted), *of("relay")),
        gens=of("gen"),
        clients=of("client"),
        missing=missing,
        lead=lead,
        direct=DIRECT in wanted,
        our_gen=gen in wanted,
        our_client=client in wanted,
        ours=frozenset(candidate.name for candidate in own),
    )


def jobs_of(plan: Plan, subjects: Subjects) -> Iterator[Job]:
    """Every cell of the run, pass by pass; the climbs come last, once, when each relay's cost is known."""
    names = [*([DIRECT] if subjects.direct else []), *(candidate.name for candidate in subjects.relays)]
    main = [name for name in names if name in (DIRECT, subjects.lead)]
    for number in range(plan.passes):
        for name in names:
            yield _standing(plan, "relay", "dense", name, number)
        # Every other pass: 3,000 streams take twice as long to open.
        for name in names if number % 2 == 0 else main:
            yield _standing(plan, "relay", "wide", name, number)
        for name in main:
            yield _standing(plan, "relay", "fast", name, number)
        if subjects.lead in names and ours.can_stamp():
            yield _standing(plan, "relay", "plain", subjects.lead, number)
        for table, ours_wanted, own, others in (
            ("gen", subjects.our_gen, ours.GEN_NAME, subjects.gens),
            ("client", subjects.our_client, ours.CLIENT_NAME, subjects.clients),
        ):
            for name in [*([own] if ours_wanted else []), *(candidate.name for candidate in others)]:
                yield _standing(plan, table, "plain", name, number)
        if subjects.lead in names:
            for load, churn in (("small", plan.small_request), ("large", plan.large_request)):
                yield Job("request", load, subjects.lead, number, _STEP_S + churn.duration_s)
    for name in _climbers(subjects):
        about_s = _CLIMB_STEPS * (_STEP_S + plan.dense.ramp_s + plan.settle_s + plan.climb_window_s)
        yield Job("capacity", "climb", name, 0, about_s)


def _climbers(subjects: Subjects) -> list[str]:
    """Relays whose limit is looked for: of ours the leanest filter, and the ordinary engine with and without it."""
    policy = subjects.lead.partition("+")[2]
    own = (subjects.lead, f"stream+{policy}", "stream+parse")
    return [c.name for c in subjects.relays if c.name in own or c.name not in subjects.ours]


def _standing(plan: Plan, table: str, load: str, name: str, number: int) -> Job:
    shape = plan.shape(load)
    about_s = _STEP_S + shape.ramp_s + plan.settle_s + plan.window_s
    return Job(table, load, name, number, about_s + (plan.syscalls_s if number == 0 else 0.0))


def _others() -> tuple[Candidate, ...]:
    """The programs of others."""
    return (*candidates.relays(), *candidates.gens(), *candidates.clients())
