"""docs/scenarios against the scenarios: a page each, its figures are the file's, its commands are accepted."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import pytest

import loadtest
from loadtest.experiment.options import parser
from loadtest.scenario import TABLES, load_scenario, scenario_names

PAGES = Path(__file__).parents[2] / "docs" / "scenarios"
FILES = Path(loadtest.__path__[0]) / "scenarios"
PARTS = ["What it asks, and of whom", "Run it", "Read its result", "Bad signs"]


def page(name: str) -> str:
    return (PAGES / f"{name}.md").read_text()


def test_every_scenario_has_its_page_and_the_index_has_its_description() -> None:
    index = (PAGES / "README.md").read_text()
    listed = dict(re.findall(r"^\| \[[\w-]+\]\(([\w-]+)\.md\) \| (.+) \|$", index, re.MULTILINE))

    assert sorted(path.stem for path in PAGES.glob("*.md")) == sorted(["README", *scenario_names()])
    assert listed == {name: load_scenario(name).description for name in scenario_names()}


@pytest.mark.parametrize("name", scenario_names())
def test_a_page_has_every_part_and_something_in_each(name: str) -> None:
    parts = re.split(r"^## (.+)$", page(name), flags=re.MULTILINE)

    assert parts[0].startswith(f"# {name}\n\n")
    assert parts[1::2] == PARTS
    assert min(len(part.split()) for part in [*parts[0:1], *parts[2::2]]) >= 4


@pytest.mark.parametrize("name", scenario_names())
def test_the_figures_of_a_page_are_all_that_its_file_sets(name: str) -> None:
    rows = re.findall(r"^\| `(\w+)\.(\w+)` \| (\S+) \| .+ \|$", page(name), re.MULTILINE)
    content = tomllib.loads((FILES / f"{name}.toml").read_text())
    set_there = {(table, key): value for table in TABLES for key, value in content.get(table, {}).items()}

    told = {(table, key): value for table, key, value in rows}
    assert len(told) == len(rows)
    assert told.keys() == set_there.keys()
    for place, value in set_there.items():
        assert type(value)(told[place]) == value, place


@pytest.mark.parametrize("name", scenario_names())
def test_the_commands_of_a_page_are_accepted_and_are_about_its_scenario(name: str) -> None:
    commands = re.findall(r"^\$ disagg-sim (.+)$", page(name), re.MULTILINE)

    assert commands
    for command in commands:
        options = parser().parse_args(shlex.split(command))
        assert options.scenario == name
