"""Exact counts of what the orchestrator did: plain integers, bumped on the loop's thread.

The relay's hot path adds to attributes and to nothing else; metrics and the admin pages read them when asked.
Chunks are not counted but follow from the events: what a stream opens and closes with is classified once, at
its ends (`tally`).  A comment or an unknown event in mid-stream therefore counts as a chunk.
"""

from __future__ import annotations

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

    __slots__ = ("changed", "failed", "offered", "parsed")

    def __init__(self) -> None:
        self.offered = 0
        self.changed = 0
        self.failed = 0
        self.parsed = 0

    @property
    def unchanged(self) -> int:
        """Events that came out with the bytes they went in with."""
        return self.offered - self.changed - self.failed


class Counters:
    """Totals since the process began."""

    __slots__ = (
        "answers",
        "bytes_in",
        "bytes_out",
        "done_events",
        "ended",
        "events",
        "failures",
        "finish_events",
        "held_events",
        "live",
        "reads",
        "requests",
        "retries",
        "role_events",
        "started",
        "stopping",
        "usage_events",
    )

    def __init__(self) -> None:
        self.stopping = False
        self.requests = 0
        self.answers = 0
        # All keys from the start, so that a series exists before its first event.
        self.failures = dict.fromkeys(FAILURES, 0)
        self.retries = dict.fromkeys(("ctx", "gen"), 0)
        self.started = 0
        self.live = 0
        self.ended = dict.fromkeys(STREAM_ENDS, 0)
        self.reads = 0
        self.events = 0
        self.held_events = 0
        self.role_events = 0
        self.finish_events = 0
        self.usage_events = 0
        self.done_events = 0
        self.bytes_in = 0
        self.bytes_out = 0

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
