"""Becomes another command, on given CPUs and ahead of what runs there: ``-m ... CPU,CPU COMMAND ARGUMENT...``.

Run as a program of its own, because both must hold before that command starts its first thread.

Why a sampler needs them: one on another CPU stops its target by an interrupt between processors, which on a
virtual machine takes 10 us and more, and so stops it at its next return from a system call instead of where it
was.  On a test loop of 13 us with one system call of 0.1 us, 76 % of the samples lay in that call; with the sampler on
the target's own CPU, which then stands still where it was preempted, 1.3 %.  And it must preempt at once: at 20 % CPU
of engine splice, 700 samples should find the target at work 143 times; SCHED_FIFO found it 143 times, a short slice
(EEVDF, Linux 6.12 on, no rights needed) 116 times, neither of them 51 times, since bursts were over before its turn.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import struct
import sys
from collections.abc import Sequence

__all__ = ["prefixed"]

_SLICE_NS = 100_000
_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}
# struct sched_attr of <linux/sched/types.h>: size, policy, flags, nice, priority, runtime, deadline, period.
_SCHED_ATTR = struct.Struct("IIQiIQQQ")


def prefixed(argv: Sequence[str], cpus: frozenset[int]) -> list[str]:
    """The command line that runs ``argv`` so; no ``cpus`` leaves it on any."""
    return [sys.executable, "-m", __spec__.name, ",".join(map(str, sorted(cpus))), *argv]


def _main(arguments: Sequence[str]) -> None:
    cpus, *argv = arguments
    if cpus:
        os.sched_setaffinity(0, {int(cpu) for cpu in cpus.split(",")})
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except OSError:
        _shorten_slice()
    os.execv(argv[0], argv)  # noqa: S606 (the command line is the experiment's own)


def _shorten_slice() -> None:
    number = _SCHED_SETATTR.get(platform.machine())
    if number is not None:
        attributes = _SCHED_ATTR.pack(_SCHED_ATTR.size, 0, 0, 0, 0, _SLICE_NS, 0, 0)
        with contextlib.suppress(OSError):
            ctypes.CDLL(None).syscall(number, 0, attributes, 0)


if __name__ == "__main__":
    _main(sys.argv[1:])
