"""What the two locustfiles share: the ``--directory`` option, the progress file, the line at the end."""

from __future__ import annotations

from typing import Any

import gevent
from locust import events

from bench.candidates.programs.tally import PROGRESS_EVERY_S, Tally

__all__ = ["tally"]

RETRY_S = 1.0
_tallies: list[Tally] = []


def tally() -> Tally:
    """The counts of this process."""
    return _tallies[0]


def _add_arguments(parser: Any) -> None:
    parser.add_argument("--directory", required=True, help="where progress.json goes")


def _start(environment: Any, **_: Any) -> None:
    _tallies.append(Tally(environment.parsed_options.directory))
    gevent.spawn(_write_for_ever)


def _write_for_ever() -> None:
    while True:
        tally().write()
        gevent.sleep(PROGRESS_EVERY_S)


def _end(**_: Any) -> None:
    tally().write()
    print(tally().to_json(), flush=True)


events.init_command_line_parser.add_listener(_add_arguments)
events.init.add_listener(_start)
events.quit.add_listener(_end)
