"""BurstGPT: ``Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type``.

Stamps are seconds from the first day's midnight.  Later releases have ``Session ID`` and ``Elapsed time`` too.
A request that failed has 0 response tokens and asks for 1; the files ``BurstGPT_without_fails`` have none of these.
"""

from __future__ import annotations

import re

from loadtest.traces.csv_format import CsvFormat
from loadtest.traces.rows import TraceError, stamp_in_range

__all__ = ["BURSTGPT"]

_SECONDS = re.compile(r"([+-]?)([0-9]{1,12})(?:\.([0-9]*))?")


def _stamp_ns(text: str) -> int:
    """Seconds, whole or not, as ns; what is beyond 9 decimals is cut off."""
    found = _SECONDS.fullmatch(text)
    if found is None:
        raise TraceError(f"Timestamp {text!r} is not a number of seconds")
    sign, whole, fraction = found.groups()
    stamp_ns = int(whole) * 1_000_000_000 + int((fraction or "0")[:9].ljust(9, "0"))
    return stamp_in_range(-stamp_ns if sign == "-" else stamp_ns, "Timestamp", text)


BURSTGPT = CsvFormat(("Timestamp", "Request tokens", "Response tokens"), _stamp_ns)
