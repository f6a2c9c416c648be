"""A record of ``probes.jsonl``: from the workers' ledgers, and what gen and loads counted before and after.  Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from loadtest.experiment.blocks import Block
from sim.core.histogram import LogHistogram

__all__ = ["Reading", "probe_figures"]


@dataclass(frozen=True, slots=True)
class Reading:
    """What gen and the two loads have counted; gen was read at ``gen_t_s``, the CPU in s by process at ``t_s``."""

    t_s: float
    gen_t_s: float
    gen: Mapping[str, Any]
    standing: Mapping[str, Any]
    standing_lag: LogHistogram
    short: Mapping[str, Any]
    cpu_s: Mapping[str, float]

    @property
    def live_streams(self) -> int:
        """Standing streams in progress."""
        live: int = self.standing["streams"]["live"]
        return live


def probe_figures(
    rate_tok_s: float,
    streams: int,
    blocks: Mapping[str, Block],
    before: Reading,
    after: Reading,
    *,
    tokens_per_chunk: int,
    lockstep: bool,
    workers_share_cpu: bool,
) -> dict[str, Any]:
    """The figures of a probe; ``blocks`` are the workers' own.  Lag is the worst worker's, counts are summed."""
    wall_s, gen_wall_s = after.t_s - before.t_s, after.gen_t_s - before.gen_t_s
    own_s = sum(block.wall_ns for block in blocks.values()) / len(blocks) / 1e9
    chunks, events, reads = (sum(getattr(b, key) for b in blocks.values()) for key in ("chunks", "events", "reads"))
    shares = [block.cpu_ns / block.wall_ns for block in blocks.values()]
    lags = [block.lag.quantile_s(0.99) or 0.0 for block in blocks.values()]
    worst = list(blocks.values())[lags.index(max(lags))]
    due, written = (_grown(before.gen, after.gen, *path) for path in (("pacing", "tokens_due"), ("tokens",)))
    gen_late = _since(before.gen["pacing"]["lateness"], after.gen["pacing"]["lateness"])
    itl = _since(before.standing["itl"], after.standing["itl"])
    ttft = _since(before.short["ttft"], after.short["ttft"])
    cpu = {name: (after.cpu_s[name] - before.cpu_s[name]) / wall_s for name in after.cpu_s}
    return {
        "rate_tok_s": rate_tok_s,
        "step_s": streams / rate_tok_s,
        "uneven_share": streams / rate_tok_s / wall_s if lockstep else 0.0,
        "chunks_per_s": chunks / own_s,
        "relayed_share": chunks / own_s * tokens_per_chunk / max(1.0, due / gen_wall_s),
        "cpu_us_per_chunk": sum(block.cpu_ns for block in blocks.values()) / 1e3 / chunks,
        "cpu_share": sum(shares),
        "busiest_core_share": sum(shares) if workers_share_cpu else max(shares),
        "workers_share_cpu": workers_share_cpu,
        "lag_p50_s": worst.lag.quantile_s(0.5),
        "lag_p99_s": max(lags),
        "lag_kernel_share": worst.lag_kernel.sum_ns / max(1, worst.lag.sum_ns),
        "events_per_read": events / reads,
        "run_queue_wait_share": max(block.run_queue_wait_ns / block.wall_ns for block in blocks.values()),
        "steal_share": max(block.steal_share for block in blocks.values()),
        "requests": sum(block.requests for block in blocks.values()),
        "streams_by_worker": {name: block.live_streams for name, block in blocks.items()},
        "itl_p99_s": itl.quantile_s(0.99),
        "ttft_p95_s": ttft.quantile_s(0.95),
        "ttft_n": ttft.count,
        "failed_streams": _failed(after) - _failed(before),
        "due_tokens": due,
        "gen_due_share": due / gen_wall_s / rate_tok_s,
        "gen_written_share": written / gen_wall_s / rate_tok_s,
        "gen_late_p99_s": gen_late.quantile_s(0.99) or 0.0,
        "gen_cpu_share": cpu["gen0"],
        "load_cpu_share": cpu["load"],
        "load_lag_p99_s": after.standing_lag.since(before.standing_lag).quantile_s(0.99) or 0.0,
    }


def _grown(before: Mapping[str, Any], after: Mapping[str, Any], *path: str) -> int:
    ends: list[Any] = [before, after]
    for key in path:
        ends = [end[key] for end in ends]
    return int(ends[1] - ends[0])


def _since(before: Mapping[str, Any], after: Mapping[str, Any]) -> LogHistogram:
    return LogHistogram.from_json(after).since(LogHistogram.from_json(before))


def _failed(reading: Reading) -> int:
    return sum(sum(load["streams"]["failed"].values()) for load in (reading.standing, reading.short))
