"""Will that many streams fit?  Each needs a file descriptor and, to one server address, a local port."""

from __future__ import annotations

import resource
from pathlib import Path

__all__ = ["local_ports", "raise_descriptor_limit", "shortfall"]

SPARE_DESCRIPTORS = 100
"""For everything in the process that is not a stream: modules, logs, the web UI, the event loop."""
_PORT_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def raise_descriptor_limit() -> int:
    """Raise the soft limit of open files to the hard one; the limit now in force."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
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
