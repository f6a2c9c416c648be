"""What the two locustfiles share: their options, the progress file, the load's end and the line then."""

from __future__ import annotations

from functools import partial
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
    parser.add_argument("--duration-s", type=float, required=True, help="the load's end, counted from the last user on")


def _start(environment: Any, **_: Any) -> None:
    _tallies.append(Tally(environment.parsed_options.directory))
    gevent.spawn(_write_for_ever)
    # Not Locust's run time: that counts while the users are still being made, which takes long on a busy machine.
    events.spawning_complete.add_listener(partial(_end_after, environment))


def _end_after(environment: Any, **_: Any) -> None:
    gevent.spawn_later(environment.parsed_options.duration_s, environment.runner.quit)


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
