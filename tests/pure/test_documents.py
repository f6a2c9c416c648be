"""README and docs against the code: files they name exist, commands they show are accepted, tables are complete."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from loadtest.experiment.options import parser
from loadtest.scenario import scenario_names
from sim.orchestrator.policies import ALIASES, BUILTIN

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])


def fenced_commands(text: str) -> list[str]:
    lines = [line for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]
    return [line[2:].split("  #")[0].strip() for line in lines if line.startswith("$ ")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_a_page_names_exists(page: Path) -> None:
    text = page.read_text()
    named = re.findall(r"`((?:[\w-]+/)+[\w.-]*\.(?:py|toml|md))`", text)
    linked = [link for link in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in link]
    missing = [name for name in named if not (ROOT / name).exists()]
    missing += [link for link in linked if not (page.parent / link).exists()]

    assert missing == []


def test_every_command_in_the_readme_is_accepted() -> None:
    commands = fenced_commands((ROOT / "README.md").read_text())
    ours = [shlex.split(command)[1:] for command in commands if command.startswith("disagg-sim ")]

    assert len(ours) >= 5
    for arguments in ours:
        assert parser().parse_args(arguments).verb == arguments[0]


def test_the_readme_lists_every_policy_and_alias() -> None:
    table = (ROOT / "README.md").read_text().split("| policy | alias | does |")[1].split("\n\n")[0]
    first_two = [row.split("|")[1:3] for row in table.splitlines() if row.startswith("| `")]
    names = {name for cell, _ in first_two for name in re.findall(r"`([^`]+)`", cell)}
    aliases = {alias for _, cell in first_two for alias in re.findall(r"`([^`]+)`", cell)}

    assert names == set(BUILTIN)
    assert aliases == set(ALIASES)


def test_the_changelog_lists_every_scenario() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()

    assert [name for name in scenario_names() if f"`{name}`" not in text] == []
