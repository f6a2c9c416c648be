"""The body of ``POST /admin/rate``: another pace for the streams that run, and for those to come.  Pure.

Who then moves the due times is `pacer`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from sim.core.settings import GenSettings, SettingError, from_mapping

__all__ = ["pace_json", "read_pace"]

_KEYS = ("tok_s", "itl_ms")
SHORTEST_S, LONGEST_S = 1e-6, 600.0
"""Gaps between two tokens: below, a stream is over in one instant; above, its next token's time is no number of ns."""


def read_pace(body: object, settings: GenSettings) -> GenSettings:
    """``settings`` at the pace that ``body`` asks for: ``{"tok_s": X}`` or ``{"itl_ms": X}``, of one stream.

    SettingError for anything else; it says what is allowed.
    """
    if not isinstance(body, Mapping) or len(body) != 1 or not set(body) <= set(_KEYS):
        raise SettingError('the body must be {"tok_s": X} or {"itl_ms": X}, the pace of one stream')
    ((name, value),) = body.items()
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value == 0:
        raise SettingError(f"{name}: {value!r} is not a number above 0")
    try:
        pace = from_mapping(GenSettings, body, "-")
    except SettingError as error:
        raise SettingError(str(error).removeprefix("-.")) from None
    if not SHORTEST_S <= pace.itl_s <= LONGEST_S:
        allowed = f"{SHORTEST_S * 1e3:g} to {LONGEST_S * 1e3:.0f} ms from token to token"
        raise SettingError(f"{name}: {value!r} is no pace that can be kept; allowed: {allowed}")
    return dataclasses.replace(settings, tok_s=pace.tok_s, itl_ms=pace.itl_ms)


def pace_json(settings: GenSettings) -> dict[str, Any]:
    """What GET /admin/rate answers: the pace in force, both ways."""
    return {"tok_s": 1.0 / settings.itl_s, "itl_ms": settings.itl_s * 1e3}
