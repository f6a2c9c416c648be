"""README and docs against the code: files they name exist, commands they show are accepted, tables are complete."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from loadtest.experiment.fail_if import check_gates
from loadtest.experiment.history import ATTRIBUTES, history_row
from loadtest.experiment.named_figures import DISTRIBUTIONS, catalogue_of, span_of
from loadtest.experiment.options import parser
from loadtest.experiment.result import analyze
from loadtest.scenario import scenario_names
from sim.orchestrator.policies import ALIASES, BUILTIN
from tests.synthetic_run import compare_run, write

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


def test_gates_md_has_every_figure_and_only_commands_and_conditions_that_are_accepted() -> None:
    text = (ROOT / "docs" / "gates.md").read_text()
    commands = [shlex.split(c)[1:] for c in fenced_commands(text) if c.startswith("disagg-sim ")]
    names = [name for kind in ("compare", "run", "instructions") for name in catalogue_of(kind).of_an_arm]
    names += [name for kind in ("compare", "run") for name in catalogue_of(kind).of_the_run if span_of(name) is None]

    assert [name for name in names if f"`{name}`" not in text and f"`{name}(ARM)`" not in text] == []
    assert [name for name in DISTRIBUTIONS if f"`{name}`" not in text] == []
    assert len(commands) >= 5
    for arguments in commands:
        options = parser().parse_args(arguments)
        for expression in getattr(options, "fail_if", []):
            kind = "instructions" if getattr(options, "counter", None) == "instructions" else options.verb
            policies = getattr(options, "policies", [])
            arms = [*policies, *(f"{policy}:again" for policy in policies[:1])]
            check_gates([expression], kind, arms, ["filter-on"])


def test_the_columns_in_the_otava_example_are_those_of_a_history(tmp_path: Path) -> None:
    example = (ROOT / "docs" / "gates.md").read_text().split("# otava.yaml")[1].split("```")[0]
    columns = [*re.findall(r"column: (.+)", example), *re.findall(r"^ +(\w+): \{", example, re.MULTILINE), "time"]
    row = history_row(analyze(write(compare_run(), tmp_path / "run")), "run", "1")

    assert len(columns) == 6
    assert [column for column in columns if column not in row] == []
    attributes = re.search(r"attributes: \[(.+)\]", example)
    assert attributes is not None
    assert set(attributes[1].split(", ")) <= set(ATTRIBUTES)


def test_the_changelog_lists_every_scenario() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()

    assert [name for name in scenario_names() if f"`{name}`" not in text] == []
