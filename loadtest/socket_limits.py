"""Will that many streams fit?  Each needs a file descriptor and, to one server address, a local port."""

from __future__ import annotations

import contextlib
import resource
from pathlib import Path

__all__ = ["descriptors_of_a_relay", "local_ports", "raise_descriptor_limit", "relay_shortfall", "shortfall"]

SPARE_DESCRIPTORS = 100
"""For everything in the process that is not a stream: modules, logs, the web UI, the event loop."""
_PORT_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def raise_descriptor_limit(wanted: int = 0) -> int:
    """Raise the soft limit of open files to the hard one, and that to ``wanted`` if the system lets us.

    The limit now in force; processes started from here on have it too.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if wanted > hard:
        with contextlib.suppress(OSError, ValueError):  # only the privileged may, and not past fs.nr_open
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, wanted))
            return wanted
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def local_ports(path: Path = _PORT_RANGE) -> int | None:
    """How many local ports outgoing connections to one address can have; None where the system does not say."""
    try:
        low, high = map(int, path.read_text().split())
    except (OSError, ValueError):
        return None
    return high - low + 1


def shortfall(streams: int, descriptors: int, ports: int | None) -> str | None:
    """Why ``streams`` at the same time cannot be had, or None if they can."""
    if streams + SPARE_DESCRIPTORS > descriptors:
        return (
            f"{streams} streams need {streams + SPARE_DESCRIPTORS} file descriptors, the hard limit is {descriptors}: "
            f"raise it (ulimit -Hn) or ask for at most {max(0, descriptors - SPARE_DESCRIPTORS)}"
        )
    if ports is not None and streams > ports:
        return (
            f"{streams} streams to one address need as many local ports, there are {ports}: widen "
            f"net.ipv4.ip_local_port_range or ask for fewer"
        )
    return None


def relay_shortfall(streams: int, orchestrators: int, descriptors: int) -> str | None:
    """Why ``orchestrators`` processes cannot relay ``streams`` at the same time, or None if they can.

    A relay holds two descriptors a stream, the client's connection and gen's.
    """
    needed = descriptors_of_a_relay(streams, orchestrators)
    if needed <= descriptors:
        return None
    return (
        f"{streams} streams need {needed} file descriptors in each orchestrator (two a stream), the hard limit is "
        f"{descriptors}: raise it (ulimit -Hn), take more orchestrators (--orchestrator-workers) or ask for at most "
        f"{max(0, descriptors - SPARE_DESCRIPTORS) // 2 * orchestrators * 100 // _percent(orchestrators)}"
    )


def descriptors_of_a_relay(streams: int, orchestrators: int) -> int:
    """File descriptors that each of ``orchestrators`` processes needs for its part of ``streams``."""
    return 2 * -(-streams * _percent(orchestrators) // (100 * orchestrators)) + SPARE_DESCRIPTORS


def _percent(orchestrators: int) -> int:
    """The kernel deals connections out by a hash, so one of several gets more than its part: by 10 % at most."""
    return 100 if orchestrators == 1 else 110
