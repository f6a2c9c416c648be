"""Numbers as the report prints them; None is a dash everywhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

__all__ = ["FILTERS", "duration"]

DASH = "-"


def _num(value: float | None, digits: int = 2) -> str:
    return DASH if value is None else f"{value:,.{digits}f}"


def _signed(value: float | None, digits: int = 2) -> str:
    return DASH if value is None else f"{value:+,.{digits}f}"


def _pct(share: float | None, digits: int = 1) -> str:
    return DASH if share is None else f"{share * 100:.{digits}f} %"


def _signed_pct(share: float | None, digits: int = 1) -> str:
    return DASH if share is None else f"{share * 100:+.{digits}f} %"


def _interval(bounds: Sequence[float] | None, digits: int = 2) -> str:
    return DASH if bounds is None else f"[{bounds[0]:,.{digits}f}, {bounds[1]:,.{digits}f}]"


def _count(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else DASH


def _ms(seconds: float | None, digits: int = 2) -> str:
    return DASH if seconds is None else f"{seconds * 1e3:,.{digits}f}"


def duration(seconds: float | None) -> str:
    """With the unit that suits it: 1.24 ms, 28.3 ms, 12.4 s."""
    if seconds is None:
        return DASH
    if seconds >= 1.0:
        return f"{seconds:,.2f} s"
    return f"{seconds * 1e3:,.{1 if seconds >= 0.01 else 2}f} ms"


def _held(text: str) -> str:
    """A sentence with its numbers held to their units, micro spelled as it is read."""
    return (
        text.replace(" us ", "\u00a0µs ")
        .replace(" us;", "\u00a0µs;")
        .replace(" %", "\u00a0%")
        .replace(" ms", "\u00a0ms")
    )


FILTERS: Mapping[str, Callable[..., str]] = {
    "num": _num,
    "signed": _signed,
    "pct": _pct,
    "signed_pct": _signed_pct,
    "interval": _interval,
    "count": _count,
    "ms": _ms,
    "duration": duration,
    "held": _held,
}
