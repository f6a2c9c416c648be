"""Messages between the master and its workers, by the names under which Locust's runners carry them.

A worker's user asks for a copy (ASK).  Before the first copy of a test the master has every worker make itself ready
(PREPARE, answered by PREPARED or REFUSED).  Then it numbers the copy and has each worker send its share (COPY); a
worker says when its share is over (OVER), and when all are, the user that asked may leave (RELEASE).  A user that
Locust stops withdraws its copy (WITHDRAW), and the master has every share stopped (STOP).  At a test's end all shares
are closed and settled (END), and the worker reports at once.  Reports travel in Locust's own, under REPORT.
"""

from __future__ import annotations

__all__ = ["ASK", "COPY", "END", "OVER", "PREPARE", "PREPARED", "REFUSED", "RELEASE", "REPORT", "STOP", "WITHDRAW"]

ASK = "disagg_ask"
"""Worker to master: ``user``."""
WITHDRAW = "disagg_withdraw"
"""Worker to master: ``user``, ``forced`` (live streams may not finish)."""
PREPARE = "disagg_prepare"
"""Master to worker: ``test``, ``plan``, ``users`` and ``workers`` (how many there are)."""
PREPARED = "disagg_prepared"
"""Worker to master: ``test``."""
REFUSED = "disagg_refused"
"""Worker to master: ``test``, ``message`` (why it cannot send this load)."""
COPY = "disagg_copy"
"""Master to worker: ``test``, ``number``, ``start_ns`` on ``clock``, ``index`` of the share, ``of``."""
STOP = "disagg_stop"
"""Master to worker: ``test``, ``number``, ``forced``."""
OVER = "disagg_over"
"""Worker to master: ``test``, ``number``."""
RELEASE = "disagg_release"
"""Master to worker: ``user``."""
END = "disagg_end"
"""Master to worker: ``test``, ``within_s`` (what live streams get to finish)."""
REPORT = "disagg"
"""Key of a worker's report in what Locust's workers send every 3 s."""
