"""Latency models: how long a prefill, a KV transfer and a decode step take.  Equations: docs/latency-model.md.

Pure in settings, tokens and load; the random generator of the jitter is seeded by its owner.  Waiting for a
slot is not here: it follows from the servers' own queues.
"""

from __future__ import annotations

import math
import random

from sim.core.settings import CtxSettings, GenSettings

__all__ = ["Jitter", "prefill_s", "step_s", "transfer_s"]


class Jitter:
    """Factors of a lognormal distribution with mean 1 and coefficient of variation ``cv`` (0: exactly 1)."""

    __slots__ = ("_mu", "_random", "_sigma")

    def __init__(self, cv: float, seed: int) -> None:
        variance = math.log1p(cv * cv)
        self._sigma = math.sqrt(variance)
        self._mu = -variance / 2
        self._random = random.Random(seed)

    def draw(self) -> float:
        """The next factor, > 0."""
        return self._random.lognormvariate(self._mu, self._sigma) if self._sigma else 1.0


def prefill_s(settings: CtxSettings, uncached_tokens: int, busy_share: float) -> float:
    """Seconds that a prefill of ``uncached_tokens`` takes with ``busy_share`` (0..1) of the slots in use."""
    alone_s = settings.overhead_ms / 1e3 + settings.prefill_us_per_token / 1e6 * uncached_tokens
    return alone_s * (1.0 + settings.load_slope * busy_share)


def transfer_s(settings: GenSettings, prompt_tokens: int) -> float:
    """Seconds until the KV of ``prompt_tokens`` has come over; load does not move it."""
    size_bytes = settings.kv_kb_per_token * 1e3 * prompt_tokens
    return settings.transfer_base_ms / 1e3 + size_bytes / (settings.transfer_gb_per_s * 1e9)


def step_s(settings: GenSettings, busy_share: float) -> float:
    """Seconds between two tokens of a stream with ``busy_share`` (0..1) of the slots in use."""
    return settings.itl_s * (1.0 + settings.load_slope * busy_share)
