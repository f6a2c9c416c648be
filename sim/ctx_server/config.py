"""Command line of the context server."""

from __future__ import annotations

from collections.abc import Sequence

from sim.core.settings import CtxSettings
from sim.service.config import ProcessOptions, options_of, server_parser

__all__ = ["read_command_line"]


def read_command_line(arguments: Sequence[str]) -> tuple[ProcessOptions, CtxSettings]:
    """The checked options; a bad one ends the process with status 2."""
    parser = server_parser(
        "ctx_server", CtxSettings, "A fake context server: prefill with a queue, a prefix cache and true usage."
    )
    return options_of(parser, parser.parse_args(arguments), CtxSettings)
