"""Goodput: which streams were within the service-level objective, and what the others missed.

A stream is within it when it passed every check and kept every limit that is set.  Limits count as users feel them:
time to first token and duration from the *planned* send, and the mean inter-token latency from the first token to
the last (the TPOT of vLLM's benchmark, AIPerf's inter token latency), which a reply of one token has not and keeps.

Streams that the load itself closed have no say: whether they would have kept the limits is not known.
Requests that came due and never were sent, as the cap on concurrency gave them no slot, have missed it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from loadtest.load_settings import LoadSettings
from loadtest.outcomes import ABORTED, CANCELLED

__all__ = ["LEFT_OUT", "MISSES", "GoodputLimits"]

LEFT_OUT = (ABORTED, CANCELLED)
"""Outcomes of streams that goodput leaves out: the load itself closed them."""

MISSES = ("ttft", "itl", "e2e", "failed", "unsent")
"""What a stream can have missed: a limit (several at once), its checks, or being sent at all."""


@dataclass(frozen=True, slots=True)
class GoodputLimits:
    """The limits, ms; 0 stands for none."""

    ttft_ms: float = 0.0
    itl_ms: float = 0.0
    e2e_ms: float = 0.0

    @classmethod
    def of(cls, settings: LoadSettings) -> GoodputLimits:
        """Those of a load."""
        return cls(settings.goodput_ttft_ms, settings.goodput_itl_ms, settings.goodput_e2e_ms)

    def __bool__(self) -> bool:
        return bool(self.ttft_ms or self.itl_ms or self.e2e_ms)

    def missed(self, ttft_ns: int | None, itl_ns: float | None, e2e_ns: int) -> Iterator[str]:
        """The limits that a stream which passed its checks did not keep.

        ``ttft_ns`` and ``e2e_ns`` count from its planned send; None: it had no such time.
        """
        for name, limit_ms, took_ns in (
            ("ttft", self.ttft_ms, ttft_ns),
            ("itl", self.itl_ms, itl_ns),
            ("e2e", self.e2e_ms, e2e_ns),
        ):
            if limit_ms and took_ns is not None and took_ns > limit_ms * 1e6:
                yield name
