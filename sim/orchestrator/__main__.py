"""``python -m sim.orchestrator --ctx URL --gen URL``: run one orchestrator until told to stop."""

from __future__ import annotations

import sys

from sim.orchestrator.app import build_orchestrator
from sim.orchestrator.config import parse_arguments
from sim.service.server import run

__all__ = ["main"]


def main() -> int:
    """Read the command line and serve; the exit status."""
    options = parse_arguments()
    return run("orchestrator", options.process, lambda runtime: build_orchestrator(options, runtime))


if __name__ == "__main__":
    sys.exit(main())
