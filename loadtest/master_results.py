"""The results of a distributed load: workers' reports taken in, lost streams counted, files as one process writes them.

streams.jsonl grows as reports come, client.json is written at the end.  When a test begins and ends is `master_load`'s
business, adding up is `worker_reports`'.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from loadtest.goodput import GoodputLimits
from loadtest.lengths import OfRows
from loadtest.load_files import lengths_of, trace_of
from loadtest.lost_streams import GivenCopy, streams_due
from loadtest.plan import LoadPlan
from loadtest.recorder import Recorder, write_json
from loadtest.worker_reports import WorkerReports
from sim.core.settings import SettingError
from sim.service.health import LoopHealth

__all__ = ["MasterResults"]


class MasterResults:
    """Results of ``plan``; SettingError if a file of it cannot be read or its directory cannot be written."""

    def __init__(self, plan: LoadPlan, health: LoopHealth) -> None:
        self.reports = WorkerReports(lambda: Recorder(limits=GoodputLimits.of(plan.settings)))
        self._settings = plan.settings
        self._health = health
        self._started_cpu_ns = time.process_time_ns()
        self._trace = trace_of(plan.settings).rows
        self._lengths = OfRows(self._trace) if self._trace else lengths_of(plan.settings)
        self._out = None if plan.out is None else Path(plan.out)
        self._lines = None
        if self._out is not None:
            try:
                self._lines = (self._out / "streams.jsonl").open("w")
            except OSError as error:
                raise SettingError(f"out: cannot write to {self._out}: {error.strerror}") from None

    def take(self, worker: str, report: Mapping[str, Any]) -> None:
        """Take one report."""
        lines = self.reports.take(worker, report)
        if self._lines is not None and not self._lines.closed:
            self._lines.write(lines)
            self._lines.flush()

    def lose(self, workers: Iterable[str], copies: Sequence[GivenCopy]) -> None:
        """Count what ``workers``, who are gone, should have reported of their shares of ``copies``."""
        for worker in workers:
            record = self.reports.workers[worker]
            due = streams_due(self._settings, self._trace, copies, worker, self._lengths)
            record.lose(record.counted.get("planned", 0) if due is None else due)

    def close(self) -> None:
        """Write client.json.  OSError if that cannot be."""
        if self._out is not None and self._lines is not None:
            self._lines.close()
            write_json(self._out / "client.json", self._to_json())

    def _to_json(self) -> dict[str, Any]:
        now_ns = time.monotonic_ns()
        starts = [record.newest["start_ns"] for record in self.reports.workers.values()]
        start_ns = min(filter(None, starts), default=now_ns)
        own = self._health.to_json()
        own["health"] = own.pop("samples")
        cpu_s = (time.process_time_ns() - self._started_cpu_ns) / 1e9
        return {
            **self.reports.to_json(),
            "health": [],
            "wall_s": (now_ns - start_ns) / 1e9,
            "start_ns": start_ns,
            "end_ns": now_ns,
            "master": {"host": socket.gethostname(), "cpu_s": cpu_s, **own},
        }
