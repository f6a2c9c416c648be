"""Medians, spreads and ratios of a bench run: within a pass first, over passes after."""

from __future__ import annotations

import pytest

from bench.figures import Cells, Spread, figure_at, spread_of
from bench.wording import rate_text, short_problem, spread_text

COST = figure_at("cost")


def rows(name, *costs):
    return [
        {"table": "relay", "load": "dense", "name": name, "pass": number, "cost": cost}
        for number, cost in enumerate(costs)
    ]


def test_a_spread_is_of_what_there_is():
    assert spread_of([3.0, None, 1.0, 8.0]) == Spread(3.0, 1.0, 8.0, 3)
    assert spread_of([None]) is None


def test_a_ratio_is_the_median_of_the_passes_own_and_not_the_ratio_of_medians():
    # The box was twice as slow in pass 2 and 3 times in pass 3; a's third pass is missing, and so is b's first.
    cells = Cells([*rows("a", 1.0, 20.0, None, 6.0), *rows("b", None, 10.0, 30.0, 4.0)])

    ratio = cells.ratio(("relay", "dense", "a"), ("relay", "dense", "b"), COST)

    assert ratio == Spread(1.75, 1.5, 2.0, 2)
    assert cells.difference(("relay", "dense", "a"), ("relay", "dense", "b"), COST) == Spread(6.0, 2.0, 10.0, 2)


def test_a_ratio_to_another_figure_of_the_same_cell():
    cells = Cells([{"table": "relay", "load": "dense", "name": "a", "pass": 0, "cost": 4.0, "gen": 3.0}])
    key = ("relay", "dense", "a")

    assert cells.ratio(key, key, figure_at("gen"), COST) == Spread(0.75, 0.75, 0.75, 1)


def test_a_cell_with_a_problem_has_no_figure():
    broken = {"table": "relay", "load": "dense", "name": "a", "pass": 2, "problem": "nginx died", "cost": 1.0}
    cells = Cells([*rows("a", 3.0, 5.0), broken])

    assert cells.spread("relay", "dense", "a", COST) == Spread(4.0, 3.0, 5.0, 2)
    assert len(cells.of("relay", "dense", "a")) == 3
    assert cells.names("relay") == ["a"]
    assert cells.names("relay", "wide") == []


def test_nothing_is_divided_by_nothing():
    cells = Cells([*rows("a", 1.0), *rows("b", 0.0)])

    assert cells.ratio(("relay", "dense", "a"), ("relay", "dense", "b"), COST) is None
    assert cells.ratio(("relay", "dense", "a"), ("relay", "dense", "c"), COST) is None


@pytest.mark.parametrize(
    ("spread", "text"),
    [
        (Spread(20.61, 19.84, 21.3, 3), "20.6 (19.8-21.3)"),
        (Spread(1234.5, 1234.5, 1234.5, 1), "1,234.5"),
        (None, "-"),
    ],
)
def test_a_spread_is_written_with_its_bounds_where_there_are_several(spread, text):
    assert spread_text(spread) == text


def test_rates_and_problems_are_short():
    assert [rate_text(rate) for rate in (12_500, 30_000, 800)] == ["12.5k", "30k", "0.8k"]
    assert short_problem("nginx ended with code 1; its last words (/x/log.txt):\n  bad") == "nginx ended with code 1"
    assert len(short_problem("x" * 500)) == 160
