"""Azure's LLM inference traces: ``TIMESTAMP,ContextTokens,GeneratedTokens`` (UTC, 100 ns digits)."""

from __future__ import annotations

from datetime import UTC, datetime

from loadtest.traces.csv_format import CsvFormat
from loadtest.traces.rows import TraceError, stamp_in_range

__all__ = ["AZURE"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _stamp_ns(text: str) -> int:
    """Time since the Unix epoch, ns; `datetime` keeps only 6 of the file's 7 decimals: the fraction is read apart."""
    whole, dot, rest = text.partition(".")
    digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
    try:
        moment = datetime.fromisoformat(whole + rest[len(digits) :])
    except ValueError:
        moment = None
    if moment is None or (dot and not 1 <= len(digits) <= 9):
        raise TraceError(f"TIMESTAMP {text!r} is not of the form 2023-11-16 18:15:46.6805900")
    since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH
    whole_ns = (since.days * 86_400 + since.seconds) * 1_000_000_000
    return stamp_in_range(whole_ns + int(digits.ljust(9, "0") if digits else 0), "TIMESTAMP", text)


AZURE = CsvFormat(("TIMESTAMP", "ContextTokens", "GeneratedTokens"), _stamp_ns)
