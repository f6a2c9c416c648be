"""What a verdict is reached from: numbers drawn from a run, none of them judged yet.

None means that the run does not say (a file is missing, a kernel has no such counter); a rule then keeps
silent.  Shares are of wall time unless the name says otherwise.  Where the numbers come from is `evidence`, what
they mean is `verdict`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from loadtest.experiment.stats import Estimate

__all__ = ["EqualityFacts", "EvidenceFacts", "Facts", "Mismatch", "ProcessFacts", "RoundFacts", "StreamFacts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessFacts:
    """One process during the measured time; ``role`` is orchestrator, gen, ctx or load."""

    name: str
    role: str
    cpu_share: float | None = None
    loop_cpu_share: float | None = None
    run_queue_wait_share: float | None = None
    shares_cpu: bool = False
    """Whether it is a worker of the orchestrator that has to share a CPU with another one."""
    throttled_share: float | None = None
    late_second_share: float | None = None
    """Share of seconds in which its own loop was ever later than `verdict.LATE_SECOND_S`."""
    lateness_p99_s: float | None = None
    """How late it did what it had planned: sends (load), tokens (gen), prefill answers (ctx)."""
    delivered_share: float | None = None
    """Delivered over asked token rate (gen)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundFacts:
    """The experiment's rounds, arms and yardsticks; kind compare only."""

    planned: int
    used: int
    void: Mapping[str, int]
    void_by_arm: Mapping[str, int]
    control: Estimate | None
    control_mean_us: float | None
    events_per_read: Mapping[str, float]
    events_per_write: int
    spin_drift: float | None
    """Slowest over fastest quarter of the run by the fixed spin, less 1."""
    spin_by_arm: Mapping[str, float]
    """Median spin of each arm over that of all, less 1."""
    spin_error: float
    """Standard error of an entry of ``spin_by_arm``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EqualityFacts:
    """The equality gate; ``state`` is equal, differs or not_run."""

    state: str
    differing: Mapping[str, str] = field(default_factory=dict)
    """Policy -> what differed first."""
    withheld: int = 0
    """Differences withheld because of it, out of ``differences``."""
    differences: int = 0
    streams: int = 0
    dead_path: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamFacts:
    """What became of the client's streams."""

    started: int
    failed: Mapping[str, int]
    aborted: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceFacts:
    """What a run should have left and did not; as it stands by default, nothing is missing."""

    client: bool = True
    """Whether the load wrote what it had counted."""
    unsampled: tuple[str, ...] = ()
    """Servers without per-second samples."""
    uncounted: tuple[str, ...] = ()
    """Servers without counters."""
    unreconciled: str | None = None
    """Why the parties' counters could not be held against one another."""
    ended: int = 0
    """Streams that came to an end at the client, however they ended."""
    servers_started: int | None = None
    """Replies that the servers began since the load began."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A figure that several parties count and should count alike: party -> its count, as the data flow."""

    what: str
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Everything a verdict looks at."""

    interrupted: bool = False
    failure: str | None = None
    """What ended the run before its time, such as a process that died."""
    evidence: EvidenceFacts = field(default_factory=EvidenceFacts)
    processes: tuple[ProcessFacts, ...] = ()
    steal_share: float | None = None
    kernel_lag_share: float | None = None
    """Of the orchestrator's summed loop lag, the part that was the kernel's."""
    streams: StreamFacts | None = None
    mismatches: tuple[Mismatch, ...] = ()
    rounds: RoundFacts | None = None
    equality: EqualityFacts | None = None
    other_starts: Mapping[str, str] = field(default_factory=dict)
    """State of the verdict of each further process start."""
    lost_workers: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Worker of the load that is gone -> streams without an outcome, and streams of its share."""
    notes: tuple[str, ...] = ()
    """Sentences the run itself wanted said, such as a rate stepped down."""
