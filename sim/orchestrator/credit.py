"""CPU and lag by policy, credited when a ledger closes: what /metrics shows of the policies.

Credited at the close, a scrape cannot fall into the middle of a block and give one policy's cost to another.
While a block schedule runs, each finished block is a ledger (the settling belongs to nobody).  Otherwise there
is one open ledger for the active policy, closed by a switch or a scrape.  A live stream's last three chunks are
credited once newer events, or its end, tell that they are chunks (`Counters.chunks`).
"""

from __future__ import annotations

from collections.abc import Callable

from sim.core.histogram import LogHistogram
from sim.orchestrator.arms import Arms
from sim.orchestrator.blocks import Reading
from sim.service.health import LagWindow, LoopHealth

__all__ = ["PolicyCredit", "PolicyTotals"]


class PolicyTotals:
    """What was credited to one policy."""

    __slots__ = ("blocks", "chunks", "cpu_ns", "lag", "wall_ns")

    def __init__(self) -> None:
        self.blocks = 0
        self.chunks = 0
        self.cpu_ns = 0
        self.wall_ns = 0
        self.lag = LogHistogram()


class PolicyCredit:
    """Totals per policy, and the open ledger of the time outside block schedules."""

    def __init__(self, arms: Arms, health: LoopHealth, read: Callable[[], Reading]) -> None:
        self.totals = tuple(PolicyTotals() for _ in arms.names)
        self._arms = arms
        self._health = health
        self._read = read
        self._open: tuple[Reading, LagWindow] | None = None
        self.resume()

    def switch(self, index: int) -> None:
        """Make policy ``index`` the active one, each side's time credited to its own."""
        self.pause()
        self._arms.active = index
        self.resume()

    def bring_up_to_date(self) -> None:
        """Credit the active policy with the time until now; inside a block schedule nothing is due."""
        if self._open is not None:
            self.pause()
            self.resume()

    def pause(self) -> None:
        """Close the open ledger and open none: a block schedule begins."""
        if self._open is None:
            return
        before, window = self._open
        self._open = None
        self._health.close_window(window)
        self._credit(self._arms.active, before, self._read(), window)

    def resume(self) -> None:
        """Open a ledger for the active policy, if none is open."""
        if self._open is None:
            self._open = self._read(), self._health.open_window()

    def add(self, index: int, before: Reading, after: Reading, window: LagWindow) -> None:
        """Credit a finished block to policy ``index``."""
        self.totals[index].blocks += 1
        self._credit(index, before, after, window)

    def _credit(self, index: int, before: Reading, after: Reading, window: LagWindow) -> None:
        totals = self.totals[index]
        totals.chunks += after.chunks - before.chunks
        totals.cpu_ns += after.cpu_ns - before.cpu_ns
        totals.wall_ns += after.t_ns - before.t_ns
        totals.lag.merge(window.lag)
