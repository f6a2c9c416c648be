"""What ``disagg-sim`` tells a script by its exit code."""

from __future__ import annotations

__all__ = ["EXIT_DONE", "EXIT_ERROR", "EXIT_TRIPPED", "EXIT_USAGE", "EXIT_VOID"]

EXIT_DONE, EXIT_ERROR, EXIT_USAGE, EXIT_VOID, EXIT_TRIPPED = 0, 1, 2, 3, 4
