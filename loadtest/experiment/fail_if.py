"""``--fail-if``: which conditions a result meets beyond the noise.

A comparison of figures measured round by round holds when the 95 % interval of its left side minus its right lies
wholly on that side: so of equal arms one in forty trips a plain ``>``, and hardly any a ``> 1.05 *``.  Where no
figure has rounds the values are compared as they stand.  A condition whose figure the run did not leave is not
judged, and never taken for one that holds or does not.

Pure.  The grammar is `condition_parser`, the figures are in `named_figures`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from loadtest.experiment.condition import (
    Comparison,
    Condition,
    Figure,
    comparisons_of,
    figures_of,
    value_of,
)
from loadtest.experiment.condition_parser import ConditionError, parse_condition
from loadtest.experiment.jackknife import reckoned
from loadtest.experiment.named_figures import by_round, check_figures, of_baseline, point
from loadtest.experiment.stats import FloatArray
from sim.core.settings import SettingError

__all__ = ["check_gates", "judge_gates"]

_POINTS: Mapping[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
}


def check_gates(
    expressions: Sequence[str], kind: str, arms: Sequence[str], baseline_arms: Sequence[str] | None
) -> None:
    """SettingError for an expression that is no condition, or names what a run of this kind will not have."""
    for expression in expressions:
        try:
            condition = parse_condition(expression)
        except ConditionError as error:
            raise SettingError(f"--fail-if: {expression!r}: {error}") from None
        check_figures(condition, kind, arms, baseline_arms)


def judge_gates(
    expressions: Sequence[str],
    result: Mapping[str, Any],
    earlier: Mapping[str, Any] | None,
    not_comparable: str | None,
    seed: int,
) -> list[dict[str, Any]]:
    """The ``gates`` of a result, one for each expression, in their order.

    ``earlier`` is the result that ``baseline.`` figures come from, and ``not_comparable`` why they can't be used.
    """
    judged = []
    for expression in expressions:
        condition = parse_condition(expression)
        found = {
            comparison: _comparison_json(comparison, result, earlier, not_comparable, seed)
            for comparison in comparisons_of(condition)
        }
        judged.append(
            {
                "expression": expression,
                "tripped": _holds(condition, {comparison: entry["holds"] for comparison, entry in found.items()}),
                "comparisons": list(found.values()),
            }
        )
    return judged


def _holds(condition: Condition, comparisons: Mapping[Comparison, bool | None]) -> bool | None:
    """Whether it does; None where what is not known could turn it either way."""
    if isinstance(condition, Comparison):
        return comparisons[condition]
    parts = [_holds(part, comparisons) for part in condition.parts]
    decisive = condition.word == "or"
    if decisive in parts:
        return decisive
    return None if None in parts else not decisive


def _comparison_json(
    comparison: Comparison,
    result: Mapping[str, Any],
    earlier: Mapping[str, Any] | None,
    not_comparable: str | None,
    seed: int,
) -> dict[str, Any]:
    entry: dict[str, Any] = {"text": comparison.text, "left": None, "right": None, "difference": None, "holds": None}
    figures = dict.fromkeys([*figures_of(comparison.left), *figures_of(comparison.right)])
    runs = {figure: result if of_baseline(figure) is None else earlier for figure in figures}
    if not_comparable is not None and any(of_baseline(figure) for figure in figures):
        return {**entry, "why": not_comparable}
    values: dict[Figure, float] = {}
    rounds: dict[Figure, Sequence[float]] = {}
    for figure in figures:
        run, named = runs[figure], of_baseline(figure) or figure
        value = None if run is None else point(run, named)
        if run is None or value is None:
            return {**entry, "why": f"{figure} was not measured"}
        values[figure] = value
        series = by_round(run, named)
        if series is not None:
            rounds[figure] = series
    try:
        left, right = value_of(comparison.left, values), value_of(comparison.right, values)
        if not math.isfinite(left - right):
            return {**entry, "why": "it comes to no finite number"}
        entry |= {"left": left, "right": right, "why": None}
        if not rounds:
            return {**entry, "holds": _POINTS[comparison.sign](left, right)}
        difference, ci95 = _difference(comparison, values, rounds, seed)
    except ZeroDivisionError:
        return {**entry, "why": "it divides by zero"}
    if ci95 is None:
        return {**entry, "why": "too few rounds for an interval"}
    holds = _beyond_noise(comparison.sign, *ci95)
    return {**entry, "difference": {"estimate": difference, "ci95": list(ci95)}, "holds": holds}


def _beyond_noise(sign: str, low: float, high: float) -> bool:
    """Whether the whole interval of left minus right lies where the sign wants it."""
    if sign == "!=":
        return not low <= 0 <= high
    return _POINTS[sign](low, 0.0) and _POINTS[sign](high, 0.0)


def _difference(
    comparison: Comparison, values: Mapping[Figure, float], rounds: Mapping[Figure, Sequence[float]], seed: int
) -> tuple[float, tuple[float, float] | None]:
    """Left minus right and its interval: this run's rounds by themselves, the earlier run's by themselves."""
    groups = [
        [figure for figure in rounds if (of_baseline(figure) is None) is of_this_run] for of_this_run in (True, False)
    ]
    groups = [group for group in groups if group]

    def left_minus_right(means: Sequence[FloatArray]) -> float:
        drawn = {
            figure: float(mean)
            for group, row in zip(groups, means, strict=True)
            for figure, mean in zip(group, row, strict=True)
        }
        known = {**values, **drawn}
        return value_of(comparison.left, known) - value_of(comparison.right, known)

    tables = [np.array([rounds[figure] for figure in group], np.float64).T for group in groups]
    found = reckoned(left_minus_right, tables, np.random.default_rng(seed))
    return found.value, found.ci95
