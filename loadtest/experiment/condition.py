"""A condition of ``--fail-if`` as a tree: comparisons of arithmetic over figures of a run, and what a term comes to.

Pure.  Reading one from a text is `condition_parser`; which figures and arms there are is `named_figures`; when a
condition holds beyond the noise is `fail_if`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

__all__ = [
    "Arithmetic",
    "Comparison",
    "Condition",
    "Figure",
    "Joined",
    "Term",
    "comparisons_of",
    "figures_of",
    "value_of",
]


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure by name, of an arm where it has one; ``column`` is where it stands and does not tell two apart."""

    name: str
    arm: str | None
    column: int = 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Figure) and (self.name, self.arm) == (other.name, other.arm)

    def __hash__(self) -> int:
        return hash((self.name, self.arm))

    def __str__(self) -> str:
        return self.name if self.arm is None else f"{self.name}({self.arm})"


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Two terms and one of + - * /."""

    sign: str
    left: Term
    right: Term


Term = float | Figure | Arithmetic


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two terms and how they are compared; ``text`` as it was written, ``column`` where its sign stands."""

    sign: str
    left: Term
    right: Term
    text: str
    column: int


@dataclass(frozen=True, slots=True)
class Joined:
    """Conditions of which all (``and``) or any (``or``) must hold."""

    word: str
    parts: tuple[Condition, ...]


Condition = Comparison | Joined

_ARITHMETIC: Mapping[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}


def comparisons_of(condition: Condition) -> Iterator[Comparison]:
    """Every comparison, from left to right."""
    if isinstance(condition, Comparison):
        yield condition
    else:
        for part in condition.parts:
            yield from comparisons_of(part)


def figures_of(term: Term) -> Iterator[Figure]:
    """Every figure that a term names, from left to right; one named twice comes twice."""
    if isinstance(term, Figure):
        yield term
    elif isinstance(term, Arithmetic):
        yield from figures_of(term.left)
        yield from figures_of(term.right)


def value_of(term: Term, figures: Mapping[Figure, float]) -> float:
    """The term with ``figures`` put in.  ZeroDivisionError where it divides by zero."""
    if isinstance(term, Arithmetic):
        return _ARITHMETIC[term.sign](value_of(term.left, figures), value_of(term.right, figures))
    return figures[term] if isinstance(term, Figure) else term
