"""Rounds: in which order the arms take their turns, and which rounds count afterwards.

A round gives every arm one block.  Over a cycle of as many rounds as there are arms, each arm stands in every
place once, in an order drawn at random, so neither a drift inside a round nor a periodic neighbour favours one.
A round counts as a whole or not at all: a difference taken over what is left of it would compare two moments.

Pure.  The figures of the rounds that count are `arms`; what voids mean for the run is `verdict`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from loadtest.experiment.blocks import Block, IncompleteBlockError

__all__ = [
    "CONTROL_SUFFIX",
    "LEAST_BLOCK_SHARE",
    "RATE_TOLERANCE",
    "Arm",
    "JudgedRounds",
    "PlannedBlock",
    "RoundRules",
    "arms_with_control",
    "block_schedule",
    "judge_rounds",
]

CONTROL_SUFFIX = ":again"
"""The A/A arm is the first policy once more, under this name."""
RATE_TOLERANCE = 0.03
"""A block whose chunk rate is further than this from the asked one is void, and its round with it.  Set before
any run: a limit chosen after seeing the data moved an A/A interval across zero in a pilot."""
LEAST_BLOCK_SHARE = 0.9
"""A block shorter than this share of its planned time is incomplete (an abort, a stopped process)."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One thing to be compared: a policy under a name of its own."""

    name: str
    policy: str


def arms_with_control(policies: Sequence[str]) -> list[Arm]:
    """An arm per policy in the given order, and the first once more as A/A control."""
    if not policies:
        raise ValueError("no policy to compare")
    if len(set(policies)) != len(policies):
        raise ValueError(f"a policy is named twice: {', '.join(policies)} (the A/A arm comes by itself)")
    return [*(Arm(name, name) for name in policies), Arm(policies[0] + CONTROL_SUFFIX, policies[0])]


@dataclass(frozen=True, slots=True)
class PlannedBlock:
    """One block to be run; ``length_ns`` is from switch to switch, settling included."""

    round: int
    slot: int
    arm: str
    policy: str
    length_ns: int

    def to_json(self) -> dict[str, Any]:
        """As ``POST /admin/blocks`` takes it."""
        return {
            "round": self.round,
            "slot": self.slot,
            "arm": self.arm,
            "policy": self.policy,
            "length_ns": self.length_ns,
        }


def block_schedule(arms: Sequence[Arm], rounds: int, length_ns: int, rng: np.random.Generator) -> list[PlannedBlock]:
    """Every block of the run, back to back, in balanced random order."""
    return [
        PlannedBlock(number, slot, arms[index].name, arms[index].policy, length_ns)
        for number, order in enumerate(_balanced_orders(len(arms), rounds, rng))
        for slot, index in enumerate(order)
    ]


def _balanced_orders(arms: int, rounds: int, rng: np.random.Generator) -> list[list[int]]:
    """[round][slot] -> arm; every ``arms`` rounds form a Latin square shuffled in rows, columns and symbols."""
    orders: list[list[int]] = []
    square = (np.arange(arms)[:, None] + np.arange(arms)) % arms
    while len(orders) < rounds:
        shuffled = rng.permutation(arms)[square[rng.permutation(arms)][:, rng.permutation(arms)]]
        orders.extend(shuffled.tolist())
    return orders[:rounds]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRules:
    """What a block must have kept to; ``asked_chunks_per_s`` is None where no fixed rate was asked.

    ``step_s`` is the engine's step where all streams emit in lockstep, else 0: a block then holds one step
    more or fewer than its length says, which is no missed rate.
    """

    measured_s: float
    asked_chunks_per_s: float | None
    step_s: float = 0.0

    def missed_rate(self, block: Block) -> bool:
        """Whether the block's rate is too far from the asked one, above or below."""
        if self.asked_chunks_per_s is None:
            return False
        tolerance = RATE_TOLERANCE + self.step_s / (block.wall_ns / 1e9)
        return abs(block.chunks_per_s / self.asked_chunks_per_s - 1.0) > tolerance

    def cut_short(self, block: Block) -> bool:
        """Whether the block ended well before its time."""
        return block.wall_ns < LEAST_BLOCK_SHARE * self.measured_s * 1e9


@dataclass(frozen=True, slots=True)
class JudgedRounds:
    """``used`` are the rounds that count (arm -> its block), ``blocks`` every readable one, both in time order.

    ``void`` counts rounds by reason, each under its weightiest: ``not_run`` (no block at all), ``missing``,
    ``incomplete``, ``missed_rate``.  ``void_by_arm`` counts the blocks to blame; ``void_rounds`` maps a
    round that was begun and does not count to its reason.
    """

    planned: int
    used: list[Mapping[str, Block]]
    blocks: list[Block]
    void: Mapping[str, int]
    void_by_arm: Mapping[str, Mapping[str, int]]
    void_rounds: Mapping[int, str]


def judge_rounds(
    records: Iterable[Mapping[str, Any]], arms: Sequence[str], planned: int, rules: RoundRules
) -> JudgedRounds:
    """Sort the block records into rounds and say which count, and for each other one why not."""
    blocks, broken = _read_blocks(records)
    by_round: dict[int, dict[str, Block]] = {}
    for block in blocks:
        by_round.setdefault(block.round, {})[block.arm] = block
    begun = set(by_round) | {number for number, _ in broken}
    used: list[Mapping[str, Block]] = []
    by_arm: dict[str, Counter[str]] = {arm: Counter() for arm in arms}
    void_rounds: dict[int, str] = {}
    for number in sorted(begun):
        of_round = by_round.get(number, {})
        faults = {arm: _fault(of_round.get(arm), (number, arm) in broken, rules) for arm in arms}
        for arm, fault in faults.items():
            if fault is not None:
                by_arm[arm][fault] += 1
        worst = next((fault for fault in _FAULTS if fault in faults.values()), None)
        if worst is None:
            used.append(of_round)
        else:
            void_rounds[number] = worst
    void = Counter(void_rounds.values())
    if planned > len(begun):
        void["not_run"] = planned - len(begun)
    return JudgedRounds(
        planned=planned,
        used=used,
        blocks=blocks,
        void=dict(void),
        void_by_arm={arm: dict(counts) for arm, counts in by_arm.items()},
        void_rounds=void_rounds,
    )


_FAULTS = ("missing", "incomplete", "missed_rate")


def _fault(block: Block | None, broken: bool, rules: RoundRules) -> str | None:
    if broken:
        return "incomplete"
    if block is None:
        return "missing"
    if rules.cut_short(block):
        return "incomplete"
    return "missed_rate" if rules.missed_rate(block) else None


def _read_blocks(records: Iterable[Mapping[str, Any]]) -> tuple[list[Block], set[tuple[int, str]]]:
    """The readable blocks by start time, and (round, arm) of those that are not."""
    blocks: list[Block] = []
    broken: set[tuple[int, str]] = set()
    for record in records:
        try:
            blocks.append(Block.from_record(record))
        except IncompleteBlockError:
            broken.add((int(record["round"]), str(record["arm"])))
    return sorted(blocks, key=lambda block: block.start_ns), broken
