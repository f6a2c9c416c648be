"""Mooncake's traces: JSON lines with ``timestamp`` (ms), ``input_length``, ``output_length``, ``hash_ids``.

One id stands for each block of `BLOCK_TOKENS` of the prompt, the last block perhaps not full.  ``hash_ids`` may be
missing, or cover the beginning of the prompt only.
"""

from __future__ import annotations

import json
import math
from typing import Any

from loadtest.traces.rows import TraceError, TraceRow, stamp_in_range, tokens_in_range

__all__ = ["BLOCK_TOKENS", "parse_line"]

BLOCK_TOKENS = 512
_NS_PER_MS = 1_000_000


def parse_line(line: str) -> TraceRow:
    """The row of one line.  TraceError says what is wrong with it."""
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise TraceError(f"not JSON: {error.msg} at column {error.colno}") from None
    except (ValueError, RecursionError) as error:
        raise TraceError(f"not JSON: {error}") from None
    if not isinstance(record, dict):
        raise TraceError(f"{type(record).__name__} is not an object with timestamp, input_length...")
    missing = [key for key in ("timestamp", "input_length", "output_length") if key not in record]
    if missing:
        raise TraceError(f"no {', '.join(missing)}")
    prompt_tokens, output_tokens = (_tokens(record, key) for key in ("input_length", "output_length"))
    return TraceRow(_stamp_ns(record["timestamp"]), prompt_tokens, output_tokens, _hash_ids(record, prompt_tokens))


def _stamp_ns(stamp: Any) -> int:
    if isinstance(stamp, bool) or not isinstance(stamp, (int, float)) or not math.isfinite(stamp):
        raise TraceError(f"timestamp {stamp!r} is not a number of milliseconds")
    return stamp_in_range(round(stamp * _NS_PER_MS), "timestamp", stamp)


def _tokens(record: dict[str, Any], key: str) -> int:
    value = record[key]
    if isinstance(value, bool) or not isinstance(value, int):
        raise TraceError(f"{key} {value!r} is not a whole number")
    return tokens_in_range(value, key)


def _hash_ids(record: dict[str, Any], prompt_tokens: int) -> tuple[int, ...]:
    ids = record.get("hash_ids", [])
    if not isinstance(ids, list) or not all(type(one) is int and one >= 0 for one in ids):
        raise TraceError("hash_ids is not a list of whole numbers from 0 on")
    blocks = -(-prompt_tokens // BLOCK_TOKENS)
    if len(ids) > blocks:
        raise TraceError(f"{len(ids)} hash_ids, but the prompt has {blocks} blocks of {BLOCK_TOKENS} tokens")
    return tuple(ids)
