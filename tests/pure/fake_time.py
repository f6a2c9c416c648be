"""A clock that a test moves, and a loop whose one timer fires when the clock gets there."""

from __future__ import annotations

MS = 1_000_000


class FakeHandle:
    def __init__(self, at_ns, callback):
        self.at_ns = at_ns
        self.callback = callback
        self.cancelled = False

    def cancel(self):
        self.cancelled = True


class FakeLoop:
    """`call_later` and `call_soon` of a loop; its clock reads CLOCK_MONOTONIC ns."""

    def __init__(self, now_ns=0):
        self.now_ns = now_ns
        self.handles = []
        self.fired = 0

    def clock(self):
        return self.now_ns

    def call_later(self, delay, callback):
        handle = FakeHandle(self.now_ns + round(delay * 1e9), callback)
        self.handles.append(handle)
        return handle

    def call_soon(self, callback):
        return self.call_later(0, callback)

    @property
    def armed(self):
        return sorted(handle.at_ns for handle in self.handles if not handle.cancelled)

    def run_until(self, end_ns):
        """Let every timer fire at its time, and stop the clock at ``end_ns``."""
        while True:
            due = [handle for handle in self.handles if not handle.cancelled and handle.at_ns <= end_ns]
            if not due:
                break
            handle = min(due, key=lambda one: one.at_ns)
            self.handles.remove(handle)
            self.now_ns = max(self.now_ns, handle.at_ns)
            self.fired += 1
            handle.callback()
        self.now_ns = max(self.now_ns, end_ns)
