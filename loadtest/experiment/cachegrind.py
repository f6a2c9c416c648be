"""Valgrind's cachegrind around the orchestrator: the command in front of it, and the count it leaves at its end.

``--cache-sim=no``: instructions alone are counted, no caches are simulated, which is faster.  The total is that
of user space: what the kernel does for the process is not in it.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from loadtest.experiment.topology import Wrapper
from sim.core.settings import SettingError

__all__ = ["HOW_TO_GET", "cachegrind_wrapper", "check_valgrind", "read_instructions"]

HOW_TO_GET = (
    "valgrind is not installed; get it with `apt-get install valgrind` (Debian, Ubuntu) or your system's own way"
)
READY_TIMEOUT_S = 240.0
"""Start-up alone takes 15 s on a quiet core: nearly all of it valgrind's translation of code that runs once."""
STOP_TIMEOUT_S = 60.0
FIRST_LOOK_S = 1.5
"""Readiness is polled once a second until the load begins: midway between two polls, their number is the same."""
_SUMMARY = re.compile(r"^summary: (\d+)$", re.MULTILINE)


def check_valgrind() -> None:
    """SettingError that says how to get valgrind, if it is not there."""
    if shutil.which("valgrind") is None:
        raise SettingError(f"--counter instructions: {HOW_TO_GET}")


def cachegrind_wrapper(out: Path) -> Wrapper:
    """Counts the orchestrator's user instructions into ``out``, which is written when it ends.

    A fixed hash seed makes start-ups equal; no trusted certificates are read, since nothing here speaks TLS; the
    canary of the loop's lag, which goes by the clock, ticks once a minute.
    """
    settings = ("PYTHONHASHSEED=0", "SSL_CERT_FILE=/dev/null", "SSL_CERT_DIR=/dev/null")
    argv = ("env", *settings, "valgrind", "--tool=cachegrind", "--cache-sim=no", f"--cachegrind-out-file={out}")
    return Wrapper(argv, ("--tick-ms", "60000"), READY_TIMEOUT_S, STOP_TIMEOUT_S, FIRST_LOOK_S)


def read_instructions(out: Path) -> int:
    """The total of a cachegrind file.  ValueError if there is none in it, or no file: the process was killed."""
    try:
        found = _SUMMARY.search(out.read_text(errors="replace"))
    except FileNotFoundError:
        found = None
    if found is None:
        raise ValueError(f"{out} holds no count: the orchestrator did not end in order")
    return int(found[1])
