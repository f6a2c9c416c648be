"""One stream's line of streams.jsonl: its times, what it held, how it ended."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass

__all__ = ["StreamRecord"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRecord:
    """One line of streams.jsonl.  Times are CLOCK_MONOTONIC ns, None for what did not happen.

    ``ready_ns`` is when a cap on concurrency let the request go, which is ``planned_ns`` without one; ``sent_ns`` when
    the load set out to send (connecting included), ``checked`` how closely the reply was looked at: "bytes" or
    "counted".
    """

    seq: int
    planned_ns: int
    ready_ns: int
    sent_ns: int
    first_byte_ns: int | None
    first_token_ns: int | None
    last_token_ns: int | None
    end_ns: int
    prompt_tokens: int
    asked_tokens: int
    tokens: int
    chunks: int
    events: int
    outcome: str
    checked: str
    detail: str = ""

    @property
    def tpot_ns(self) -> float | None:
        """Time per output token, the mean of the stream's inter-token latencies; None with one token or none."""
        if self.tokens < 2 or self.first_token_ns is None or self.last_token_ns is None:
            return None
        return (self.last_token_ns - self.first_token_ns) / (self.tokens - 1)

    def line(self) -> str:
        """The JSON line, ``detail`` only where there is one."""
        fields = dataclasses.asdict(self)
        if not self.detail:
            del fields["detail"]
        return json.dumps(fields, separators=(",", ":")) + "\n"
