"""The arithmetic of block schedules: which policy is active when, and what a block's two readings make.

An experiment gives the orchestrator all of its blocks beforehand, so that nothing but the relay runs inside
one.  Block i begins with a switch at ``start_ns`` plus the lengths before it; it is measured from that switch
plus ``settle_ns`` to the next switch.  A length is from switch to switch, so it includes the settling.

Pure: times and readings are arguments.  Who reads and who switches is `ledger`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from sim.service.health import LagWindow
from sim.service.proc import steal_share

__all__ = ["Block", "BlockSchedule", "Reading", "ScheduleError", "block_record", "read_schedule"]

MAX_BLOCKS = 100_000
_BLOCK_KEYS = ("round", "slot", "arm", "policy", "length_ns")


class ScheduleError(ValueError):
    """A schedule that cannot be run; says where and what is allowed."""


@dataclass(frozen=True, slots=True)
class Block:
    """One stretch of time under one policy; ``index`` is the policy's place among those loaded."""

    round: int
    slot: int
    arm: str
    policy: str
    index: int
    length_ns: int


@dataclass(frozen=True, slots=True)
class BlockSchedule:
    """Blocks back to back; ``switches_ns`` has one time more than there are blocks, the last one's end."""

    settle_ns: int
    blocks: tuple[Block, ...]
    switches_ns: tuple[int, ...]


def read_schedule(body: object, index_of: Callable[[str], int], names: tuple[str, ...], now_ns: int) -> BlockSchedule:
    """The schedule that ``POST /admin/blocks`` brings.

    ``index_of`` gives a policy's place among ``names`` or raises.  Raises ScheduleError for what is not a
    schedule, or one that begins in the past.
    """
    if not isinstance(body, Mapping):
        raise ScheduleError("the schedule must be a JSON object with start_ns, settle_ns and blocks")
    start_ns = _whole(body, "start_ns", "", minimum=0)
    settle_ns = _whole(body, "settle_ns", "", minimum=0)
    rows = body.get("blocks")
    if not isinstance(rows, list) or not 1 <= len(rows) <= MAX_BLOCKS:
        raise ScheduleError(f"blocks must be an array of 1 to {MAX_BLOCKS} blocks")
    if start_ns < now_ns:
        raise ScheduleError(
            f"start_ns {start_ns} lies {(now_ns - start_ns) / 1e9:.3f} s in the past of CLOCK_MONOTONIC"
        )
    blocks = tuple(_read_block(row, f"blocks[{i}]", index_of, names, settle_ns) for i, row in enumerate(rows))
    lengths_ns = (block.length_ns for block in blocks)
    return BlockSchedule(settle_ns, blocks, tuple(accumulate(lengths_ns, initial=start_ns)))


def _read_block(
    row: object, where: str, index_of: Callable[[str], int], names: tuple[str, ...], settle_ns: int
) -> Block:
    if not isinstance(row, Mapping):
        raise ScheduleError(f"{where} must be an object with {', '.join(_BLOCK_KEYS)}")
    for key in ("arm", "policy"):
        if not isinstance(row.get(key), str):
            raise ScheduleError(f"{where}.{key} must be a string")
    index = index_of(row["policy"])
    return Block(
        round=_whole(row, "round", where, minimum=0),
        slot=_whole(row, "slot", where, minimum=0),
        arm=row["arm"],
        policy=names[index],
        index=index,
        length_ns=_whole(row, "length_ns", where, minimum=settle_ns + 1),
    )


def _whole(holder: Mapping[str, Any], key: str, where: str, minimum: int) -> int:
    value = holder.get(key)
    if type(value) is not int or value < minimum:
        name = f"{where}.{key}" if where else key
        raise ScheduleError(f"{name}: {value!r} is not a whole number of at least {minimum}")
    return value


@dataclass(frozen=True, slots=True)
class Reading:
    """Everything a ledger adds up, at one moment; ``unchanged``, ``changed``, ``parsed`` are the active policy's."""

    t_ns: int
    cpu_ns: int
    loop_cpu_ns: int
    run_queue_wait_ns: int
    user_s: float
    sys_s: float
    machine_ticks: tuple[int, int]
    throttled_us: int
    gc_pause_ns: int
    chunks: int
    events: int
    reads: int
    requests: int
    bytes_in: int
    bytes_out: int
    unchanged: int
    changed: int
    parsed: int | None


_SUMS = (
    "cpu_ns", "loop_cpu_ns", "run_queue_wait_ns", "throttled_us", "gc_pause_ns", "chunks", "events", "reads",
    "requests", "bytes_in", "bytes_out", "unchanged", "changed",
)  # fmt: skip


def block_record(
    block: Block, before: Reading, after: Reading, window: LagWindow, *, spin_ns: int, live_streams: int
) -> dict[str, Any]:
    """The record of a finished block: what passed between its two readings, and the lag in between.

    ``parsed`` is None for a plug-in.  The user/system split is sampled by the kernel's tick: pool it over a
    run; ``cpu_ns`` is exact.
    """
    parsed = None if before.parsed is None or after.parsed is None else after.parsed - before.parsed
    return {
        "round": block.round,
        "slot": block.slot,
        "arm": block.arm,
        "policy": block.policy,
        "start_ns": before.t_ns,
        "end_ns": after.t_ns,
        "wall_ns": after.t_ns - before.t_ns,
        **{name: getattr(after, name) - getattr(before, name) for name in _SUMS},
        "parsed": parsed,
        "cpu_user_s": after.user_s - before.user_s,
        "cpu_sys_s": after.sys_s - before.sys_s,
        "steal_share": steal_share(before.machine_ticks, after.machine_ticks),
        "lag": window.lag.to_json(),
        "lag_kernel": window.lag_kernel.to_json(),
        "late_ticks": window.late_ticks,
        "late_ticks_kernel": window.late_ticks_kernel,
        "spin_ns": spin_ns,
        "live_streams": live_streams,
    }
