"""docs/load.md against the code: its tables list every kind of arrivals, lengths and format, and every option."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from loadtest.experiment.asked import asked_words
from loadtest.experiment.load_options import LOAD_OPTIONS
from loadtest.experiment.options import parser
from loadtest.load_settings import LoadSettings
from loadtest.scenario import load_scenario
from sim.core.settings import describe

PAGE = (Path(__file__).parents[2] / "docs" / "load.md").read_text()
ROWS = {row.name: row for row in describe(LoadSettings)}


def first_cells(header: str) -> set[str]:
    """Names in the first column of the table whose header begins with ``header``."""
    table = PAGE.split(f"| {header} |")[1].split("\n\n")[0]
    rows = [row.split("|")[1] for row in table.splitlines() if row.startswith("| `")]
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


@pytest.mark.parametrize("key", ["arrivals", "lengths", "trace_format"])
def test_a_table_lists_what_a_key_may_be(key: str) -> None:
    assert first_cells(f"`{key}`") == set(ROWS[key].allowed.split(", "))


def test_the_keys_of_a_replay_are_keys_of_the_load_with_their_defaults() -> None:
    table = PAGE.split("| key | default | meaning |")[1].split("\n\n")[0]
    for row in [line.split("|") for line in table.splitlines() if line.startswith("| `")]:
        defaults = [str(ROWS[name].default) for name in re.findall(r"`([^`]+)`", row[1])]
        shown = [word.strip() for word in row[2].split(",")]
        assert [float(word) if word[:1].isdigit() else word.lower() for word in shown] == [
            float(word) if word[:1].isdigit() else word.lower() for word in defaults
        ]


def test_every_load_option_is_listed_and_nothing_else() -> None:
    options = {name.split()[0] for name in first_cells("option")}
    known = {f"--{name.replace('_', '-')}" for name in (*LOAD_OPTIONS, "rate", "streams", "duration")}

    assert {name for name in options if name.startswith("--")} == known
    assert {name.replace("-", "_")[2:] for name in known} <= vars(parser().parse_args(["run", "smoke"])).keys()


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["arrivals=staggered"], ["20 streams"]),
        ([], ["20 requests/s, poisson"]),
        (["arrivals=gamma", "burstiness=0.5", "max_concurrency=1500"],
         ["20 requests/s, gamma of burstiness 0.5", "1,500 at a time"]),
        (["arrivals=ramp", "end_request_rate=50"], ["20 to 50 requests/s over 30 s"]),
        (["arrivals=steps", "step_rates=1,2", "step_s=5"], ["1,2 requests/s, 5 s each"]),
        (["arrivals=bursts"], ["1,000 requests at once"]),
        (["arrivals=bursts", "burst_every_s=2.5"], ["1,000 requests at once, again each 2.5 s"]),
        (["arrivals=closed", "max_concurrency=7"], ["7 at a time, closed loop"]),
    ],
)  # fmt: skip
def test_a_report_says_what_was_asked(overrides: list[str], words: list[str]) -> None:
    load = load_scenario("steady", overrides).load

    assert asked_words({row: getattr(load, row) for row in ROWS}) == words


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"request_rate": 5.0, "speed": 1.0}, "replay of t.csv"),
        ({"speed": 2.0, "window_from_s": 60.0, "window_s": 0.0}, "replay of t.csv from 60 s on at speed 2"),
        ({"speed": 1.0, "window_from_s": 0.0, "window_s": 30.0}, "replay of t.csv from 0 s on for 30 s"),
    ],
)
def test_a_report_says_what_was_replayed(keys: dict[str, float], words: str) -> None:
    assert asked_words({"arrivals": "trace", "trace": "t.csv", **keys}) == [words]
