"""The figure that a machine's mood cannot move: user instructions per chunk and per request, against their limits."""

from __future__ import annotations

import json
import os
import shutil
import tomllib
from pathlib import Path

import pytest

from loadtest.experiment.cachegrind import HOW_TO_GET
from tests.system.conftest import run_command

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]

LIMITS = tomllib.loads((Path(__file__).parents[2] / "docs" / "instruction-limits.toml").read_text())


@pytest.mark.parametrize("engine", LIMITS)
def test_a_chunk_and_a_request_cost_no_more_instructions_than_their_limit(engine: str, tmp_path: Path) -> None:
    if shutil.which("valgrind") is None:
        if os.environ.get("CI"):
            pytest.fail(HOW_TO_GET)
        pytest.skip(HOW_TO_GET)
    limits = LIMITS[engine]
    arguments = ("--counter", "instructions", "--engine", engine, "--json", "--out", str(tmp_path / "run"))
    code, out, err = run_command("compare", *limits, *arguments, timeout_s=850)

    assert code == 0, f"{err}\n{out}"
    result = json.loads(out)
    assert result["verdict"]["state"] == "valid", result["verdict"]["reasons"]
    assert {name: arm["engine"] for name, arm in result["arms"].items()} == dict.fromkeys(limits, engine)
    over = [
        f"engine {engine}, policy {policy}: {result['arms'][policy][figure]:,.0f} {figure}, limit {limit:,}"
        for policy, allowed in limits.items()
        for figure, limit in allowed.items()
        if result["arms"][policy][figure] > limit
    ]
    assert over == []
    # The count sees what it is for: a parse of every chunk.
    assert (
        result["arms"]["parse"]["user_instructions_per_chunk"]
        > result["arms"]["prefilter"]["user_instructions_per_chunk"] + 5_000
    )
