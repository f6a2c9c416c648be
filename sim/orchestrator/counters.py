"""Exact counts of what the orchestrator did: plain integers, bumped on the loop's thread.

The relay's hot path adds to attributes and to nothing else; metrics and the admin pages read them when asked.
Two ways lead through the relay, and each has its own: what was *cut* is reads that were cut into events, what
*passed* is reads of one event each that went on as they came.  What is asked for is their sum.
Chunks are not counted but follow from the events: what a stream opens and closes with is classified once, at
its ends (`tally`).  A comment or an unknown event in mid-stream therefore counts as a chunk.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["FAILURES", "STREAM_ENDS", "Counters", "PolicyCounters"]

STREAM_ENDS = (
    "complete",
    "finished_at_ctx",
    "client_gone",
    "stopped",
    "upstream_cut",
    "no_done",
    "stall_timeout",
    "client_stalled",
    "event_too_long",
    "policy_error",
)
"""How a stream that was opened to the client can end; only the first two are ends that the client wanted."""

FAILURES = (
    "bad_request",
    "no_upstream",
    "ctx_unreachable",
    "ctx_timeout",
    "ctx_status",
    "ctx_refused",
    "gen_unreachable",
    "gen_timeout",
    "gen_status",
    "gen_refused",
    "bad_answer",
    "bad_shape",
    "no_choices",
    "no_handoff",
    "no_ctx_request_id",
    "no_disagg_request_id",
    "wrong_disagg_request_id",
    "no_usage",
    "policy_error",
    "client_gone",
    "stopped",
    "internal",
)
"""Why a request got no answer of gen's or ctx's; *_status is a 5xx of theirs, *_refused a 4xx."""


class PolicyCounters:
    """What one policy was given and did, over all streams; a failed event is neither changed nor unchanged."""

    __slots__ = ("changed", "cut", "failed", "parsed", "passed", "passed_bytes")

    def __init__(self) -> None:
        self.cut = 0
        self.passed = 0
        self.passed_bytes = 0
        self.changed = 0
        self.failed = 0
        self.parsed = 0

    @property
    def offered(self) -> int:
        """Events that the policy was given."""
        return self.cut + self.passed

    @property
    def unchanged(self) -> int:
        """Events that came out with the bytes they went in with."""
        return self.offered - self.changed - self.failed


class Counters:
    """Totals since the process began.  What passed is counted with the ``policies``, the active one alone."""

    __slots__ = (
        "answers",
        "cut_bytes_in",
        "cut_bytes_out",
        "cut_events",
        "cut_reads",
        "done_events",
        "ended",
        "failures",
        "finish_events",
        "held_events",
        "live",
        "policies",
        "requests",
        "retries",
        "role_events",
        "started",
        "stopping",
        "usage_events",
    )

    def __init__(self, policies: Sequence[PolicyCounters] = ()) -> None:
        self.policies = policies
        self.stopping = False
        self.requests = 0
        self.answers = 0
        # All keys from the start, so that a series exists before its first event.
        self.failures = dict.fromkeys(FAILURES, 0)
        self.retries = dict.fromkeys(("ctx", "gen"), 0)
        self.started = 0
        self.live = 0
        self.ended = dict.fromkeys(STREAM_ENDS, 0)
        self.cut_reads = 0
        self.cut_events = 0
        self.cut_bytes_in = 0
        self.cut_bytes_out = 0
        self.held_events = 0
        self.role_events = 0
        self.finish_events = 0
        self.usage_events = 0
        self.done_events = 0

    @property
    def passed(self) -> int:
        """Reads, of one event each, that went on as they came."""
        return sum(policy.passed for policy in self.policies)

    @property
    def passed_bytes(self) -> int:
        """Bytes of those events."""
        return sum(policy.passed_bytes for policy in self.policies)

    @property
    def reads(self) -> int:
        """Reads of gen's streams that gave bytes of events."""
        return self.cut_reads + self.passed

    @property
    def events(self) -> int:
        """Events relayed."""
        return self.cut_events + self.passed

    @property
    def bytes_in(self) -> int:
        """Bytes of events from gen, HTTP framing not included."""
        return self.cut_bytes_in + self.passed_bytes

    @property
    def bytes_out(self) -> int:
        """Bytes of events to the clients, HTTP framing not included."""
        return self.cut_bytes_out + self.passed_bytes

    @property
    def cancelled(self) -> str:
        """Why a request's handler is cancelled: its client hung up, or the process is being stopped."""
        return "stopped" if self.stopping else "client_gone"

    @property
    def chunks(self) -> int:
        """Relayed events that carry a token; it never goes down.

        The latest few events of each live stream are held: what they are shows at its end.  So this lags behind
        ``events`` by a constant number per stream, which no difference over a block sees, and is exact once
        the streams have ended.
        """
        ends = self.role_events + self.finish_events + self.usage_events + self.done_events
        return self.events - self.held_events - ends

    def to_json(self) -> dict[str, Any]:
        """The orchestrator's own counts; the admin page adds upstreams and policies."""
        return {
            "requests": self.requests,
            "answers": self.answers,
            "failures": dict(self.failures),
            "retries": dict(self.retries),
            "streams": {"started": self.started, "live": self.live, "ended": dict(self.ended)},
            "reads": self.reads,
            "events": self.events,
            "chunks": self.chunks,
            "role_events": self.role_events,
            "finish_events": self.finish_events,
            "usage_events": self.usage_events,
            "done_events": self.done_events,
            "bytes_in": self.bytes_in,
            "bytes_out": self.bytes_out,
        }
