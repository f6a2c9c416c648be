"""Command line of the generation server."""

from __future__ import annotations

from collections.abc import Sequence

from sim.core.settings import GenSettings
from sim.service.config import ProcessOptions, options_of, server_parser

__all__ = ["read_command_line"]


def read_command_line(arguments: Sequence[str]) -> tuple[ProcessOptions, GenSettings]:
    """The checked options; a bad one ends the process with status 2."""
    parser = server_parser(
        "gen_server", GenSettings, "A fake generation server: KV transfer, then a token stream at a set rate."
    )
    return options_of(parser, parser.parse_args(arguments), GenSettings)
