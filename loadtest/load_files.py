"""The files that a load's settings name, read and checked: the recording to replay, the lengths to draw from.

A table of lengths is a JSON object of three lists of one size: ``percentile``, ascending from 0 to 100, and the
lengths at each, never falling, of prompts and of replies.  These are ``prompt_tokens`` and ``output_tokens``, or
``prompt_chars`` and ``output_chars`` at four characters a token (ShareGPT's quantiles: ``first_human_chars`` and
``first_reply_chars``).  Further keys are left alone.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from loadtest import replay
from loadtest.lengths import DrawnApart, Lengths, OfRows, Quantiles, plain_lengths
from loadtest.load_settings import LoadSettings
from loadtest.traces.reader import Recording, read_trace
from sim.core.settings import SettingError
from sim.core.tokens import BYTES_PER_TOKEN

__all__ = ["lengths_of", "mean_output_tokens", "notes_of", "notes_of_recording", "table_of", "trace_of"]

_MAX_TOKENS = 10_000_000
_PROMPT_KEYS = {"prompt_tokens": 1, "prompt_chars": BYTES_PER_TOKEN, "first_human_chars": BYTES_PER_TOKEN}
_OUTPUT_KEYS = {"output_tokens": 1, "output_chars": BYTES_PER_TOKEN, "first_reply_chars": BYTES_PER_TOKEN}
"""Names of a table's lengths, and how many of its units are a token."""


def trace_of(settings: LoadSettings) -> Recording:
    """The recording to replay; none without ``trace``.  SettingError says what is wrong with it, or the window."""
    if settings.arrivals != "trace":
        return Recording(())
    recording = read_trace(Path(settings.trace), settings.trace_format, skip_bad=settings.skip_bad_rows)
    stamps_ns = [row.stamp_ns for row in recording.rows]
    if not replay.window(stamps_ns, settings.window_from_s, settings.window_s):
        lasts_s = (stamps_ns[-1] - stamps_ns[0]) / 1e9
        raise SettingError(
            f"{settings.trace}: no request in the window (window_from_s {settings.window_from_s:g}, window_s "
            f"{settings.window_s:g}); the recording lasts {lasts_s:.0f} s"
        )
    return recording


def lengths_of(settings: LoadSettings) -> Lengths:
    """The lengths of a load that replays nothing; read from ``lengths_file`` where the settings say so.

    SettingError names file and fault.
    """
    if settings.lengths != "file":
        return plain_lengths(settings)
    path = Path(settings.lengths_file)
    if _is_table(settings):
        return _read_table(path)
    return OfRows(read_trace(path, skip_bad=settings.skip_bad_rows).rows)


def mean_output_tokens(settings: LoadSettings) -> float:
    """Mean length of a reply.  SettingError as for what it is read from."""
    lengths = OfRows(trace_of(settings).rows) if settings.arrivals == "trace" else lengths_of(settings)
    return lengths.mean_output_tokens


def notes_of(settings: LoadSettings) -> list[str]:
    """What a reader of the results has to know of the files: skipped rows, a coarse clock."""
    if settings.arrivals == "trace":
        return notes_of_recording(settings, trace_of(settings))
    if settings.lengths == "file" and not _is_table(settings):
        return _skipped(settings.lengths_file, read_trace(Path(settings.lengths_file), skip_bad=settings.skip_bad_rows))
    return []


def notes_of_recording(settings: LoadSettings, recording: Recording) -> list[str]:
    """The same for a recording that is replayed."""
    notes = _skipped(settings.trace, recording)
    stamps_ns = [row.stamp_ns for row in recording.rows]
    instants = len(set(stamps_ns))
    if instants < len(stamps_ns):
        what = f"{settings.trace}: {len(stamps_ns):,} requests are recorded at {instants:,} instants"
        step_s = replay.clock_step_ns(stamps_ns) / 1e9
        if settings.spread and step_s:
            notes.append(f"{what}; those of one instant are spread over the clock's step, {step_s:.3g} s")
        else:
            notes.append(f"{what} and replayed so: bursts that the recording's clock may have made")
    return notes


def _skipped(name: str, recording: Recording) -> list[str]:
    if not recording.skipped:
        return []
    return [f"{name}: broken rows left out: {recording.skipped:,}; the first: {'; '.join(recording.faults)}"]


def _is_table(settings: LoadSettings) -> bool:
    return settings.lengths_file.endswith(".json")


def _read_table(path: Path) -> Lengths:
    try:
        return table_of(json.loads(path.read_bytes()), str(path))
    except OSError as error:
        raise SettingError(f"{path}: cannot read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        if isinstance(error, SettingError):
            raise
        raise SettingError(f"{path}: not JSON: {error}") from None


def table_of(table: object, name: str) -> Lengths:
    """The lengths in a table's JSON object; ``name`` stands for the file in errors.  SettingError says the fault."""
    if not isinstance(table, dict):
        raise SettingError(f"{name}: {type(table).__name__} is not an object with percentile, prompt_tokens...")
    percentiles = _numbers(table, "percentile", name)
    if len(percentiles) < 2 or percentiles[0] != 0 or percentiles[-1] != 100 or not _rises(percentiles):
        raise SettingError(f"{name}: percentile does not rise from 0 to 100")
    prompt, output = (_quantiles(table, keys, percentiles, name) for keys in (_PROMPT_KEYS, _OUTPUT_KEYS))
    return DrawnApart(prompt, output)


def _rises(values: list[float]) -> bool:
    return all(before < after for before, after in pairwise(values))


def _quantiles(table: Mapping[str, Any], keys: Mapping[str, int], percentiles: list[float], name: str) -> Quantiles:
    given = [key for key in keys if key in table]
    if len(given) != 1:
        what = f"{' and '.join(given)} are both there" if given else "no lengths"
        raise SettingError(f"{name}: {what}; expected one of {', '.join(keys)}")
    key = given[0]
    values = _numbers(table, key, name)
    if len(values) != len(percentiles):
        raise SettingError(f"{name}: {key} has {len(values)} numbers, percentile {len(percentiles)}")
    tokens = [value / keys[key] for value in values]
    if any(after < before for before, after in pairwise(tokens)) or tokens[0] < 0 or tokens[-1] > _MAX_TOKENS:
        raise SettingError(f"{name}: {key} falls, or leaves the range from 0 to {_MAX_TOKENS} tokens")
    return Quantiles(tuple(percentiles), tuple(tokens))


def _numbers(table: Mapping[str, Any], key: str, name: str) -> list[float]:
    values = table.get(key)
    if not isinstance(values, list):
        raise SettingError(f"{name}: {key} is not a list of numbers")
    for place, value in enumerate(values):
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise SettingError(f"{name}: {key}[{place}] {value!r} is not a number")
    return values
