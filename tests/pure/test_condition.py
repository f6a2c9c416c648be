"""The language of --fail-if: what is read, what it comes to, and how every wrong text is refused."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.experiment.condition import (
    Comparison,
    Figure,
    Joined,
    comparisons_of,
    figures_of,
    value_of,
)
from loadtest.experiment.condition_parser import ConditionError, parse_condition

A, B, C = Figure("a", None), Figure("b", "x"), Figure("c", "my_pkg.mine:policy")
VALUES = {A: 2.0, B: 3.0, C: 5.0}
LONG = (
    "cpu_us_per_chunk(my_pkg.mine:policy) > 1.05 * cpu_us_per_chunk(filter-on:again) and (a/2 - .5e1 <= 3 or b != -1)"
)


def left(text: str) -> float:
    condition = parse_condition(f"{text} > 0")
    assert isinstance(condition, Comparison)
    return value_of(condition.left, VALUES)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("8 - 3 - 2", 3),
        ("16 / 4 / 2", 2),
        ("-2 * -3", 6),
        ("- - 2", 2),
        ("2 - -2", 4),
        ("-(1 + 2)", -3),
        ("((((7))))", 7),
        ("1.5e2 + .5 + 2.", 152.5),
        ("a * b(x) + c(my_pkg.mine:policy)", 11),
        ("a*b( x )-c(my_pkg.mine:policy)", 1),
        ("c (my_pkg.mine:policy) / a", 2.5),
    ],
)
def test_arithmetic(text: str, value: float) -> None:
    assert left(text) == pytest.approx(value)


@given(
    st.recursive(
        st.integers(1, 99).map(str), lambda inner: st.tuples(inner, st.sampled_from("+-*/"), inner), max_leaves=20
    )
)
def test_any_arithmetic_comes_to_what_it_comes_to(tree: str | tuple) -> None:
    def text(node: str | tuple) -> str:
        return node if isinstance(node, str) else f"({text(node[0])} {node[1]} {text(node[2])})"

    def value(node: str | tuple) -> float:
        if isinstance(node, str):
            return float(node)
        a, b = value(node[0]), value(node[2])
        return {"+": a + b, "-": a - b, "*": a * b, "/": a / b if b else math.nan}[node[1]]

    wanted = value(tree)
    if math.isfinite(wanted):
        assert left(text(tree)) == pytest.approx(wanted)


def test_and_binds_tighter_than_or_and_brackets_tighter_than_both() -> None:
    one, two, three = (f"a > {n}" for n in (1, 2, 3))
    loose, tight = parse_condition(f"{one} or {two} and {three}"), parse_condition(f"({one} or {two}) and {three}")

    assert isinstance(loose, Joined)
    assert loose.word == "or"
    assert [type(part) for part in loose.parts] == [Comparison, Joined]
    assert isinstance(tight, Joined)
    assert tight.word == "and"
    assert [type(part) for part in tight.parts] == [Joined, Comparison]
    assert [c.text for c in comparisons_of(tight)] == [one, two, three]


@pytest.mark.parametrize("sign", [">", ">=", "<", "<=", "==", "!="])
@pytest.mark.parametrize("space", ["", " ", "  "])
def test_every_comparison_with_any_space(sign: str, space: str) -> None:
    condition = parse_condition(f"{space}a{space}{sign}{space}1{space}")

    assert isinstance(condition, Comparison)
    assert (condition.sign, condition.left, condition.right) == (sign, A, 1.0)
    assert condition.text == f"a{space}{sign}{space}1"


def test_figures_know_their_name_arm_and_place() -> None:
    condition = parse_condition("2 * cpu(filter-on:again) > baseline.cpu(my_pkg.mine:policy) + ttft_p95_s")
    assert isinstance(condition, Comparison)
    found = [*figures_of(condition.left), *figures_of(condition.right)]

    assert [(f.name, f.arm, f.column) for f in found] == [
        ("cpu", "filter-on:again", 5),
        ("baseline.cpu", "my_pkg.mine:policy", 28),
        ("ttft_p95_s", None, 63),
    ]
    assert [str(f) for f in found] == ["cpu(filter-on:again)", "baseline.cpu(my_pkg.mine:policy)", "ttft_p95_s"]


@pytest.mark.parametrize(
    ("text", "column", "words"),
    [
        ("", 1, "a number, a figure, - or ( is expected"),
        ("   ", 4, "a number, a figure"),
        ("a", 2, "a comparison is missing; allowed: >= <= == != > <"),
        ("a + 1", 6, "a comparison is missing"),
        ("a >", 4, "a number, a figure"),
        ("a > $", 5, "a number, a figure"),
        ("a = 1", 3, "this can't follow here; allowed: >= <= == != > < + - * / and or, or the end"),
        ("a > 1 b", 7, "this can't follow here"),
        ("a > 1)", 6, "this can't follow here"),
        ("not a > 1", 5, "this can't follow here"),
        ("a ** 2 > 1", 4, "a number, a figure"),
        ("a > b > c", 7, "one comparison follows another; allowed: join them by and, or"),
        ("a > 1 and 3", 12, "and joins comparisons, and one side of it is none"),
        ("a or b > 1", 11, "or joins comparisons"),
        ("a > 1 and", 10, "a number, a figure"),
        ("and > 1", 1, "a number, a figure"),
        ("((a) > 1", 9, "a bracket is not closed"),
        ("(a > 1) + 2 > 3", 9, "a comparison can't be reckoned with"),
        ("(a > 1) > 2", 9, "a comparison can't be reckoned with"),
        ("-(a > 1) > 2", 1, "a comparison can't be reckoned with"),
        ("a(b c) > 1", 2, "the name of one arm is expected"),
        ("a() > 1", 2, "the name of one arm is expected"),
        ("a(b", 2, "the name of one arm is expected"),
        ("a(b)(c) > 1", 5, "this can't follow here"),
        ("1.5x > 2", 1, "a number, a figure"),
        ("1..2 > 1", 1, "a number, a figure"),
        ("a > 1e999", 5, "the number is too large"),
        ("a > \u0663", 5, "a number, a figure"),
        ("__import__('os') > 1", 11, "the name of one arm is expected"),
        ("(" * 60, 51, "more than 50 brackets"),
        ("-" * 60 + "1 > 0", 51, "more than 50 brackets"),
    ],
)
def test_a_wrong_text_is_refused_with_its_column(text: str, column: int, words: str) -> None:
    with pytest.raises(ConditionError) as refused:
        parse_condition(text)

    assert str(refused.value).startswith(f"column {column}, at ")
    assert words in str(refused.value)


def test_a_text_that_is_too_long_is_refused_and_the_longest_can_be_worked_out() -> None:
    longest = parse_condition("1+" * 498 + "1>0")
    assert isinstance(longest, Comparison)
    assert value_of(longest.left, {}) == 499

    with pytest.raises(ConditionError, match="1,001 characters; allowed: at most 1,000"):
        parse_condition("1+" * 499 + "1>0")


def test_every_beginning_and_every_end_of_a_text_is_read_or_refused() -> None:
    parse_condition(LONG)
    read = 0
    for cut in range(len(LONG)):
        for part in (LONG[:cut], LONG[cut:], LONG[:cut] + LONG[cut + 1 :], f"{LONG[:cut]}){LONG[cut:]}"):
            try:
                parse_condition(part)
                read += 1
            except ConditionError as error:
                assert str(error).startswith("column ")  # noqa: PT017
    assert read > 20


@given(st.text(st.sampled_from("ab(). 1e<>=!&|+-*/:'\"\\\n\t\0é"), max_size=40))
def test_no_text_brings_anything_but_a_condition_or_its_error(text: str) -> None:
    try:
        assert isinstance(parse_condition(text), Comparison | Joined)
    except ConditionError as error:
        assert "column" in str(error)  # noqa: PT017


def test_dividing_by_zero_is_the_callers_to_know() -> None:
    with pytest.raises(ZeroDivisionError):
        left("1 / (a - 2)")
