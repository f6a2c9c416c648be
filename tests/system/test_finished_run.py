"""Checks a compare that was run before: the one that CI makes on its own machine, whatever its verdict."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.system.result_shape import assert_compare_shape


@pytest.mark.skipif(
    "DISAGG_SIM_RUN_DIR" not in os.environ,
    reason="no finished run to check; name one with DISAGG_SIM_RUN_DIR=runs/compare-...",
)
def test_the_run_is_of_the_contract_s_shape_and_passed_the_equality_gate() -> None:
    run_dir = Path(os.environ["DISAGG_SIM_RUN_DIR"])
    result = json.loads((run_dir / "result.json").read_text())

    assert_compare_shape(result)
    assert result["equality"]["state"] == "equal"
    assert result["reconciliation"]["state"] == "equal", result["reconciliation"]["rows"]
    assert result["client"]["streams"]["failed"] == {}
    assert (run_dir / "report.html").read_text().count("</html>") == 1
