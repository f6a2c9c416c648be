"""One machine's CLOCK_MONOTONIC against another's, by way of the wall clock.

Every time of the load is CLOCK_MONOTONIC, which all processes of a machine share and no two machines do.  Between
machines times are as right as their wall clocks agree: keep them synchronised (chrony, NTP).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["MachineClock"]

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class MachineClock:
    """``boot_id`` tells one boot of one machine; ``epoch_ns`` is the wall clock's time at which its clock was 0."""

    boot_id: str
    epoch_ns: int

    @classmethod
    def here(cls) -> MachineClock:
        """This machine's.  OSError where the kernel does not say."""
        return cls(_BOOT_ID.read_text().strip(), time.time_ns() - time.monotonic_ns())

    def to(self, other: MachineClock) -> int:
        """What to add to a time of this clock to have ``other``'s, ns; exactly 0 on one machine."""
        return 0 if self.boot_id == other.boot_id else self.epoch_ns - other.epoch_ns

    def to_json(self) -> dict[str, Any]:
        """For a message."""
        return {"boot_id": self.boot_id, "epoch_ns": self.epoch_ns}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> MachineClock:
        """Read what `to_json` gave."""
        return cls(str(value["boot_id"]), int(value["epoch_ns"]))
