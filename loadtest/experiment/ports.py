"""Free loopback ports for the servers of a run.

Below the kernel's ephemeral range, since thousands of client connections run beside the servers and would
sooner or later be given the very port that a server is about to bind.
"""

from __future__ import annotations

import random
import socket

__all__ = ["free_ports"]

LOWEST_PORT = 20_000
HIGHEST_PORT = 32_000  # Linux hands out 32768 and up by default


def free_ports(count: int) -> list[int]:
    """``count`` distinct ports that could be bound a moment ago.  OSError when the range is exhausted."""
    found: list[int] = []
    held: list[socket.socket] = []
    try:
        for port in random.sample(range(LOWEST_PORT, HIGHEST_PORT), HIGHEST_PORT - LOWEST_PORT):
            if len(found) == count:
                return found
            probe = socket.socket()
            held.append(probe)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            found.append(port)
        raise OSError(f"no {count} free ports from {LOWEST_PORT} to {HIGHEST_PORT}")
    finally:
        for probe in held:
            probe.close()
