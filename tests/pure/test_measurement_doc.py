"""docs/measurement.md tells every limit that the code has, with its value, and none that it has not."""

from __future__ import annotations

import re
from pathlib import Path

from loadtest.experiment import rounds, stats, thresholds

PAGE = Path(__file__).parents[2] / "docs" / "measurement.md"
STATISTICS = (
    "LEVEL",
    "CONTROL_LEVEL",
    "MDE_FACTOR",
    "RESAMPLES",
    "LEAST_ROUNDS",
    "CONTROL_LEAST_ROUNDS",
    "LEAST_EIGENVALUE",
)
ROUNDS = ("RATE_TOLERANCE", "LEAST_BLOCK_SHARE")


def test_the_page_lists_every_constant_with_its_value() -> None:
    in_code = {name: value for name, value in vars(thresholds).items() if name.isupper()}
    in_code |= {name: getattr(stats, name) for name in STATISTICS}
    in_code |= {name: getattr(rounds, name) for name in ROUNDS}
    on_page = {
        name: float(value)
        for name, value in re.findall(r"^\| `([A-Z_]+)` \| ([^ ]+) \|", PAGE.read_text(), re.MULTILINE)
    }

    assert on_page == in_code


def test_a_limit_that_voids_lies_beyond_the_one_that_makes_suspect() -> None:
    values = vars(thresholds)
    pairs = [(name, name.replace("_SUSPECT", "_VOID")) for name in values if "_SUSPECT" in name]

    for suspect, void in pairs:
        if void in values and suspect != "ROUNDS_SUSPECT":
            assert values[suspect] < values[void], suspect
    assert thresholds.ROUNDS_SUSPECT > thresholds.ROUNDS_VOID
