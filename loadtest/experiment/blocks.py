"""One block as the orchestrator's ledger closed it, and the figures that follow from it alone.

Times in ns, as recorded; derived figures carry their unit.  Which blocks count is `rounds`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sim.core.histogram import LogHistogram

__all__ = ["Block", "IncompleteBlockError"]


class IncompleteBlockError(ValueError):
    """A record that lacks a figure, or whose figures can't be: says which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One arm's turn in one round, from the end of the settling to the next switch."""

    round: int
    slot: int
    arm: str
    policy: str
    start_ns: int
    end_ns: int
    wall_ns: int
    cpu_ns: int
    loop_cpu_ns: int
    cpu_user_s: float
    cpu_sys_s: float
    run_queue_wait_ns: int
    steal_share: float
    throttled_us: int
    chunks: int
    events: int
    reads: int
    requests: int
    bytes_in: int
    bytes_out: int
    unchanged: int
    changed: int
    parsed: int | None
    lag: LogHistogram
    lag_kernel: LogHistogram
    late_ticks: int
    late_ticks_kernel: int
    gc_pause_ns: int
    spin_ns: int
    live_streams: int

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Block:
        """Read one line of ``blocks.jsonl``; keys it does not know are left alone."""
        values: dict[str, Any] = {}
        for field in dataclasses.fields(cls):
            if field.name not in record:
                raise IncompleteBlockError(f"block record without {field.name}")
            value = record[field.name]
            values[field.name] = LogHistogram.from_json(value) if field.name in _HISTOGRAMS else value
        if values["wall_ns"] <= 0 or values["chunks"] <= 0 or values["reads"] <= 0:
            raise IncompleteBlockError("block record without time, chunks or reads")
        return cls(**values)

    @property
    def cpu_us_per_chunk(self) -> float:
        """CPU of the whole process per relayed chunk."""
        return self.cpu_ns / 1e3 / self.chunks

    @property
    def chunks_per_s(self) -> float:
        """The rate that was really relayed."""
        return self.chunks * 1e9 / self.wall_ns

    @property
    def events_per_read(self) -> float:
        """How many events one read of the upstream socket brought: above what gen writes, reads pile up."""
        return self.events / self.reads


_HISTOGRAMS = ("lag", "lag_kernel")
