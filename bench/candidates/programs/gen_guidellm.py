"""Starts guidellm's mock server, in an environment that has guidellm, without its command line.

The command imports all of guidellm, PyTorch with it (5 GB); the server alone needs neither.  Access log off.
"""

from __future__ import annotations

import argparse

from guidellm.mock_server import MockServer
from guidellm.schemas.mock_server import MockServerConfig


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--itl-ms", type=float, required=True)
    parser.add_argument("--output-tokens", type=int, required=True)
    options = parser.parse_args()
    config = MockServerConfig(
        host="127.0.0.1",
        port=options.port,
        model="sim",
        ttft_ms=1.0,
        itl_ms=options.itl_ms,
        output_tokens=options.output_tokens,
    )
    MockServer(config).run(access_log=False)


if __name__ == "__main__":
    main()
