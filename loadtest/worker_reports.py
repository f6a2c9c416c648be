"""What the workers of a distributed load report, kept and added up by the master.

A report holds what a worker has counted since it began, so that the newest says all, and the lines and samples that
no report before it held.  A stream is counted in the report that brings its line: of a worker that dies without a
last report, exactly the streams without a line are lost.

Pure.  Who sends reports is `worker_load`, who waits for them `master_load`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from loadtest.recorder import Recorder, Totals
from loadtest.recorder_state import add_state, add_totals
from sim.core.histogram import LogHistogram
from sim.service.health import KEPT_SAMPLES

__all__ = ["WorkerRecord", "WorkerReports"]

_LAGS = ("lag", "lag_loop", "lag_kernel")
_TICKS = ("late_ticks", "late_ticks_kernel")


@dataclass(slots=True)
class WorkerRecord:
    """One worker: its newest report, and what all of them brought.

    ``index`` is its place among the workers (-1: none yet), ``planned`` the requests of its shares as the master knows
    them, and ``lost`` those of them that have no outcome because it is ``gone``.
    """

    newest: Mapping[str, Any]
    index: int = -1
    lines: int = 0
    samples: deque[Mapping[str, Any]] = field(default_factory=lambda: deque(maxlen=KEPT_SAMPLES))
    planned: int = 0
    lost: int = 0
    gone: bool = False

    @property
    def name(self) -> str:
        """As the processes of a run are named."""
        return f"load{self.index}"

    @property
    def counted(self) -> Mapping[str, Any]:
        """State of its recorder; empty before its first test."""
        return self.newest["counted"] or {}

    def lose(self, due: int) -> None:
        """It is gone; ``due`` requests of its shares should have an outcome, or be counted as unsent."""
        self.gone = True
        self.planned = max(due, self.counted.get("planned", 0))
        self.lost = max(0, due - self.lines - self.counted.get("unsent", 0))

    def to_json(self, worker_id: str) -> dict[str, Any]:
        """Its entry in client.json."""
        known = {key: self.newest[key] for key in ("pid", "host", "ops", "start_ns", "cpu_s")}
        return {
            "id": worker_id,
            "index": self.index,
            **known,
            "planned": max(self.planned, self.counted.get("planned", 0)),
            "started": self.counted.get("started", 0),
            "ended": self.lines,
            "lost": self.lost,
            "gone": self.gone,
            **{key: self.newest["health"][key] for key in (*_LAGS, *_TICKS)},
            "health": list(self.samples),
        }


class WorkerReports:
    """Reports of all workers, and the load as a whole: a `LoadView`.  ``blank`` makes what counts are added up in."""

    def __init__(self, blank: Callable[[], Recorder]) -> None:
        self.workers: dict[str, WorkerRecord] = {}
        self._blank = blank
        self._merged = blank()
        self._fresh = True

    def take(self, worker_id: str, report: Mapping[str, Any]) -> str:
        """Take a report; its lines of streams.jsonl, each with the worker's index."""
        record = self.workers.setdefault(worker_id, WorkerRecord(report))
        record.newest = report
        record.samples.extend(report["health"]["samples"])
        lines = [f'{line[:-1]},"worker":{record.index}}}\n' for line in report["lines"].splitlines()]
        record.lines += len(lines)
        self._fresh = False
        return "".join(lines)

    @property
    def recorder(self) -> Recorder:
        """Everything counted by all workers, as of their newest reports."""
        if not self._fresh:
            self._merged = self._blank()
            for record in self.workers.values():
                if record.counted:
                    add_state(self._merged, record.counted)
            self._fresh = True
        return self._merged

    def live(self) -> int:
        """Streams without an outcome, as of the newest reports."""
        return sum(record.newest["live"] for record in self.workers.values() if not record.gone)

    def totals(self) -> Totals:
        """Tokens and events, of live streams too."""
        totals = Totals()
        for record in self.workers.values():
            add_totals(totals, record.newest["totals"])
        return totals

    def to_json(self) -> dict[str, Any]:
        """The load's part of client.json, and one entry per worker, in the order of their indices."""
        counted = self.recorder.to_json()
        ordered = sorted(self.workers.items(), key=lambda item: item[1].index)
        beyond = sum(max(0, record.planned - record.counted.get("planned", 0)) for record in self.workers.values())
        counted["streams"]["planned"] += beyond
        counted["streams"]["lost"] = sum(record.lost for record in self.workers.values())
        return {
            **counted,
            **self._lag_json(),
            "cpu_s": sum(record.newest["cpu_s"] for record in self.workers.values()),
            "workers": [record.to_json(worker_id) for worker_id, record in ordered],
        }

    def _lag_json(self) -> dict[str, Any]:
        """Loop lag of all workers together: every canary of each."""
        found: dict[str, Any] = {}
        for key in _LAGS:
            sum_of_all = LogHistogram()
            for record in self.workers.values():
                sum_of_all.merge(LogHistogram.from_json(record.newest["health"][key]))
            found[key] = sum_of_all.to_json()
        return found | {key: sum(r.newest["health"][key] for r in self.workers.values()) for key in _TICKS}
