"""What a recording's row holds, and how its fields are checked, whatever the format.

A line's parser knows the line alone: where it stands is added to its errors by `reader`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from sim.core.settings import SettingError

__all__ = ["TraceError", "TraceRow", "stamp_in_range", "tokens_in_range", "tokens_of"]

MAX_TOKENS = 10_000_000
MAX_STAMP_NS = 1 << 62
_WHOLE = re.compile(r"[+-]?[0-9]+")


class TraceError(SettingError):
    """A trace that cannot be replayed.  It says file, line and reason; from a line's parser, the reason alone."""


class TraceRow(NamedTuple):
    """One recorded request; where ``stamp_ns`` counts from is the format's.

    ``hash_ids`` name the blocks of the prompt from its beginning: equal ids are equal text.
    """

    stamp_ns: int
    prompt_tokens: int
    output_tokens: int
    hash_ids: tuple[int, ...] = ()


def tokens_of(text: str, column: str) -> int:
    """A token count that is written out, as `tokens_in_range`."""
    if not _WHOLE.fullmatch(text):
        raise TraceError(f"{column} {text!r} is not a whole number")
    return tokens_in_range(int(text[:20]), column)


def tokens_in_range(value: int, column: str) -> int:
    """``value``; a recorded 0 (a refused or failed request) becomes 1, the least that can be asked for.

    TraceError for what is below 0 or beyond any model's context.
    """
    if value < 0:
        raise TraceError(f"{column} {value} is negative")
    if value > MAX_TOKENS:
        raise TraceError(f"{column} {value} is out of range; allowed: 0 to {MAX_TOKENS}")
    return value or 1


def stamp_in_range(stamp_ns: int, column: str, stamp: object) -> int:
    """``stamp_ns``, which is written as ``stamp``.  TraceError if it is negative or centuries away."""
    if stamp_ns < 0:
        raise TraceError(f"{column} {stamp} is negative")
    if stamp_ns > MAX_STAMP_NS:
        raise TraceError(f"{column} {stamp} is out of range")
    return stamp_ns
