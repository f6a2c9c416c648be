"""Folded stacks, and the table of a profile: each class's share of the samples and of a chunk's CPU time.

A folded stack is a line ``frame;frame;frame COUNT``, root first.  Everything here is pure.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from loadtest.experiment.profile_classes import CLASSES, classify

__all__ = ["FoldedError", "Stack", "awake", "class_rows", "parse_folded"]

_NORMAL_95 = 1.96
_FRAMES_KEPT = 8


class FoldedError(ValueError):
    """A line that is no folded stack."""


@dataclass(frozen=True, slots=True)
class Stack:
    """One stack as often as it was sampled, root first."""

    frames: tuple[str, ...]
    count: int


def parse_folded(text: str) -> list[Stack]:
    """Read folded stacks.  FoldedError says which line is none."""
    stacks = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        frames, _, count = line.rpartition(" ")
        if not frames or not count.isdecimal():
            raise FoldedError(f"line {number}: {line[:60]!r} is not of the form frame;frame COUNT")
        stacks.append(Stack(tuple(frames.split(";")), int(count)))
    return stacks


def awake(stacks: Iterable[Stack]) -> list[Stack]:
    """The stacks without those that wait in epoll.

    A thread there that is ready to run has mostly just been woken and waits for the CPU that the sampler has: such
    samples were 3 to 19 % of all, where in-kernel sampling (``perf``) puts 2 to 3 % of the CPU time.
    """
    return [stack for stack in stacks if not stack.frames[-1].startswith(_WAITS)]


_WAITS = ("epoll_wait", "epoll_pwait")


def class_rows(stacks: Iterable[Stack], cpu_us_per_chunk: float | None) -> list[dict[str, Any]]:
    """One row per class, in the table's order: samples, share with its 95 % half-width, us per chunk, its frames.

    The half-width is the sampling error of a share, as of independent samples; None where there are none.
    """
    samples: Counter[str] = Counter()
    deciding: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for stack in stacks:
        kind, frame = classify(stack.frames)
        samples[kind] += stack.count
        deciding[kind][frame] += stack.count
    total = samples.total()
    rows = []
    for kind in CLASSES:
        share = samples[kind] / total if total else None
        rows.append(
            {
                "class": kind,
                "samples": samples[kind],
                "share": share,
                "share_half_width_95": None if share is None else _NORMAL_95 * math.sqrt(share * (1 - share) / total),
                "cpu_us_per_chunk": None if share is None or cpu_us_per_chunk is None else share * cpu_us_per_chunk,
                "frames": [
                    {"frame": frame, "share": count / total}
                    for frame, count in deciding[kind].most_common(_FRAMES_KEPT)
                ],
            }
        )
    return rows
