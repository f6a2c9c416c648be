"""Command lines of the servers, made from their settings: one flag per field, checked before anything starts.

A bad flag ends the process with status 2 and says which flag, its value and what is allowed.  Which settings
there are is `sim.core.settings`' business.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any, TypeVar

from sim.core.settings import SettingError, describe, from_mapping
from sim.service.health import TICK_NS

__all__ = ["Address", "ProcessOptions", "options_of", "server_parser"]

LONGEST_TICK_MS = 60_000
LOG_LEVELS = ("debug", "info", "warning", "error")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen: a TCP host and port (0: any free one), or a Unix socket's path."""

    host: str = "127.0.0.1"
    port: int = 0
    path: str | None = None

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read "HOST:PORT", "[IPV6]:PORT" or "unix:PATH"; ValueError says what is wrong."""
        if text.startswith("unix:"):
            if not (path := text[5:]):
                raise ValueError(f"{text!r} has no path; give unix:PATH")
            return cls(path=path)
        host, colon, port = text.rpartition(":")
        if not (colon and host and port.isascii() and port.isdigit() and int(port) < 1 << 16):
            raise ValueError(f"{text!r} is not HOST:PORT (port 0 to 65535) or unix:PATH")
        return cls(host.removeprefix("[").removesuffix("]"), int(port))

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"unix:{self.path}" if self.path is not None else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """How a client names it: "http://HOST:PORT" or "unix:PATH"."""
        return str(self) if self.path is not None else f"http://{self}"


@dataclass(frozen=True, slots=True)
class ProcessOptions:
    """What a server process is told besides its settings."""

    listen: Address = Address()
    ops: Address = Address()
    log_level: str = "info"
    tick_ns: int = TICK_NS
    reuse_port: bool = False
    """Share the data port with other processes that do (SO_REUSEPORT): the kernel deals connections out by hash."""


def server_parser(server: str, settings: type, description: str) -> argparse.ArgumentParser:
    """A parser with the process flags and one flag per field of ``settings``; a server may add its own."""
    parser = argparse.ArgumentParser(
        prog=f"python -m sim.{server}",
        usage="%(prog)s [options]  (--help lists them)",
        description=description,
        allow_abbrev=False,
        formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=34, width=120),
    )
    process = parser.add_argument_group("process")
    process.add_argument(
        "--listen",
        metavar="ADDR",
        default="127.0.0.1:0",
        help="data port: HOST:PORT or unix:PATH (port 0: any free one; for thousands of connections choose one "
        "below 32768, where outgoing connections take none)",
    )
    process.add_argument("--ops", metavar="ADDR", default="127.0.0.1:0", help="operations port: HOST:PORT (as above)")
    process.add_argument(
        "--reuse-port",
        action="store_true",
        help="share the data port with other processes that do (SO_REUSEPORT); each has its own operations port",
    )
    process.add_argument("--log-level", metavar="LEVEL", default="info", help=", ".join(LOG_LEVELS))
    process.add_argument(
        "--tick-ms",
        metavar="MS",
        default=str(TICK_NS // 1_000_000),
        help=f"interval of the canary that measures the loop's lag, ms [1 to {LONGEST_TICK_MS}; default %(default)s]",
    )
    group = parser.add_argument_group("settings")
    for row in describe(settings):
        group.add_argument(
            _flag(row.name),
            metavar=row.type_name.upper(),
            help=f"{row.description} [{row.allowed}; default {row.default}]".replace("%", "%%"),
        )
    return parser


def options_of(
    parser: argparse.ArgumentParser, arguments: argparse.Namespace, settings: type[T]
) -> tuple[ProcessOptions, T]:
    """The checked options; what cannot be used ends the process through ``parser.error`` (status 2)."""
    given: dict[str, Any] = vars(arguments)
    try:
        chosen = from_mapping(
            settings, {row.name: given[row.name] for row in describe(settings) if given[row.name] is not None}, "-"
        )
    except SettingError as error:
        name, _, reason = str(error).removeprefix("-.").partition(": ")
        parser.error(f"{_flag(name)}: {reason}")
    addresses = {}
    for name in ("listen", "ops"):
        try:
            addresses[name] = Address.parse(given[name])
        except ValueError as error:
            parser.error(f"{_flag(name)}: {error}")
    if arguments.log_level not in LOG_LEVELS:
        parser.error(f"--log-level: {arguments.log_level!r} is not one of {', '.join(LOG_LEVELS)}")
    tick_ms = arguments.tick_ms
    if not (tick_ms.isdecimal() and 1 <= int(tick_ms) <= LONGEST_TICK_MS):
        parser.error(f"--tick-ms: {tick_ms!r} is not a whole number from 1 to {LONGEST_TICK_MS}")
    if arguments.reuse_port and addresses["listen"].path is not None:
        parser.error("--reuse-port: a Unix socket has one listener; give --listen HOST:PORT")
    process = ProcessOptions(
        listen=addresses["listen"],
        ops=addresses["ops"],
        log_level=arguments.log_level,
        tick_ns=int(tick_ms) * 1_000_000,
        reuse_port=arguments.reuse_port,
    )
    return process, chosen


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
