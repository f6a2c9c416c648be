"""``python -m sim.gen_server``: run one generation server."""

import sys

from sim.gen_server.app import build
from sim.gen_server.config import read_command_line
from sim.service.server import run


def main(arguments: list[str]) -> int:
    """Run until told to stop; the exit status."""
    process, settings = read_command_line(arguments)
    return run("gen_server", process, lambda runtime: build(runtime, settings))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
