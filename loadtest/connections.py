"""Connections of the load: plain non-blocking sockets to one address, kept for a few seconds between requests.

A connection whose reply ended cleanly carries the next request, the last used first, as the pools of real clients do;
a new one per request would also run out of local ports.  One that the server has closed meanwhile is never used.
"""

from __future__ import annotations

import errno
import os
import socket
import time
from typing import Any

from gevent import monkey

__all__ = ["Connections", "PlainSocket"]

KEEP_IDLE_NS = 3_000_000_000
"""Servers close idle connections after 5 s and more; a request sent on one just closed would be lost."""
_IN_PROGRESS = (errno.EINPROGRESS, errno.EAGAIN)

# Locust has gevent replace the socket class; a hub callback needs the one that does not wait.
PlainSocket: type[socket.socket] = monkey.get_original("socket", "socket")


class Connections:
    """Connections to one address of one family."""

    def __init__(self, family: int, address: Any) -> None:
        self._family = family
        self._address = address
        self._kept: list[tuple[socket.socket, int]] = []

    def take(self) -> tuple[socket.socket, bool]:
        """A socket, and whether it is still connecting.  OSError if there is none to be had."""
        kept = self._take_kept()
        if kept is not None:
            return kept, False
        sock = PlainSocket(self._family, socket.SOCK_STREAM)
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        number = sock.connect_ex(self._address)
        if number and number not in _IN_PROGRESS:
            sock.close()
            raise OSError(number, os.strerror(number))
        return sock, number != 0

    def release(self, sock: socket.socket, *, keep: bool) -> None:
        """Take a socket back: to be kept for the next, or closed."""
        if not keep:
            sock.close()
            return
        now_ns = time.monotonic_ns()
        while self._kept and now_ns - self._kept[0][1] > KEEP_IDLE_NS:
            self._kept.pop(0)[0].close()
        self._kept.append((sock, now_ns))

    def close(self) -> None:
        """Close what is kept."""
        for sock, _ in self._kept:
            sock.close()
        self._kept.clear()

    def _take_kept(self) -> socket.socket | None:
        """A kept connection that the server has not closed, the last used first."""
        oldest_ns = time.monotonic_ns() - KEEP_IDLE_NS
        while self._kept:
            sock, since_ns = self._kept.pop()
            if since_ns >= oldest_ns and _is_quiet(sock):
                return sock
            sock.close()
        return None


def _is_quiet(sock: socket.socket) -> bool:
    """Whether the connection is open and has nothing unread, as an idle one must."""
    try:
        sock.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
