"""The language of ``--fail-if``, read into a `condition`.

    condition  = both { "or" both }
    both       = single { "and" single }
    single     = sum compare sum | "(" condition ")"
    compare    = ">" | ">=" | "<" | "<=" | "==" | "!="
    sum        = product { ("+" | "-") product }
    product    = factor { ("*" | "/") factor }
    factor     = NUMBER | FIGURE | "-" factor | "(" sum ")"
    FIGURE     = NAME [ "(" ARM ")" ]     NAME: letters, digits, _ and .; ARM: those, - and :

Recursive descent, pure; nothing is ever handed to Python's own ``eval``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable

from loadtest.experiment.condition import Arithmetic, Comparison, Condition, Figure, Joined, Term

__all__ = ["ConditionError", "parse_condition"]

_COMPARE = (">=", "<=", "==", "!=", ">", "<")
_NUMBER = re.compile(r"(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?![\w.])", re.ASCII)
_NAME = re.compile(r"[^\W\d][\w.]*", re.ASCII)
_ARM = re.compile(r"\(\s*([\w.:-]+)\s*\)")
_SPACE = re.compile(r"\s*")
_LONGEST, _DEEPEST = 1_000, 50
"""Characters of a condition, and brackets and minus signs inside one another: far fewer than Python's stack holds."""


class ConditionError(ValueError):
    """A text that is no condition: what is wrong, at which column (from 1), and what is allowed there."""


def parse_condition(text: str) -> Condition:
    """Read a condition.  ConditionError says what is wrong and where."""
    return _Parser(text).whole()


class _Parser:
    """Recursive descent over the text; ``at`` is the first character that is not read yet."""

    def __init__(self, text: str) -> None:
        self.text, self.at, self.depth = text, 0, 0

    def whole(self) -> Condition:
        if len(self.text) > _LONGEST:
            raise ConditionError(f"{len(self.text):,} characters; allowed: at most {_LONGEST:,}")
        found = self.joined("or")
        if self.rest():
            raise self.error(f"this can't follow here; allowed: {' '.join(_COMPARE)} + - * / and or, or the end")
        if not isinstance(found, Comparison | Joined):
            raise self.error(f"a comparison is missing; allowed: {' '.join(_COMPARE)} and a term, or + - * /")
        return found

    def joined(self, word: str) -> Condition | Term:
        """Parts with ``word`` between them; a term where only one was found."""
        parts = [self.part(word)]
        while self.took_word(word):
            parts.append(self.part(word))
        if len(parts) == 1:
            return parts[0]
        conditions = [part for part in parts if isinstance(part, Comparison | Joined)]
        if len(conditions) < len(parts):
            raise self.error(f"{word} joins comparisons, and one side of it is none; allowed: TERM > TERM and the like")
        return Joined(word, tuple(conditions))

    def part(self, word: str) -> Condition | Term:
        return self.joined("and") if word == "or" else self.compared()

    def compared(self) -> Condition | Term:
        self.skip_space()
        start = self.at
        left = self.summed()
        column = self.column()
        sign = self.took(*_COMPARE)
        if sign is None:
            return left
        right = self.term(self.summed(), column)
        end = self.at
        if self.rest().startswith(_COMPARE):
            raise self.error("one comparison follows another; allowed: join them by and, or")
        return Comparison(sign, self.term(left, column), right, self.text[start:end].strip(), column)

    def summed(self) -> Condition | Term:
        return self.chained("+-", lambda: self.chained("*/", self.factor))

    def chained(self, signs: str, inner: Callable[[], Condition | Term]) -> Condition | Term:
        left = inner()
        column = self.column()
        while (sign := self.took(*signs)) is not None:
            left = Arithmetic(sign, self.term(left, column), self.term(inner(), column))
            column = self.column()
        return left

    def factor(self) -> Condition | Term:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise self.error(f"more than {_DEEPEST} brackets and signs inside one another")
        found = self.unnested()
        self.depth -= 1
        return found

    def unnested(self) -> Condition | Term:
        self.skip_space()
        column = self.column()
        if self.took("-"):
            return Arithmetic("-", 0.0, self.term(self.factor(), column))
        if self.took("("):
            inside = self.joined("or")
            if not self.took(")"):
                raise self.error("a bracket is not closed; allowed: ) or more of what is inside it")
            return inside
        if number := _NUMBER.match(self.text, self.at):
            if math.isinf(float(number[0])):
                raise self.error("the number is too large")
            self.at = number.end()
            return float(number[0])
        name = _NAME.match(self.text, self.at)
        if name is None or name[0] in ("and", "or"):
            raise self.error("a number, a figure, - or ( is expected")
        self.at = name.end()
        return Figure(name[0], self.arm(), column)

    def arm(self) -> str | None:
        if not self.rest().startswith("("):
            return None
        arm = _ARM.match(self.text, self.at)
        if arm is None:
            raise self.error("the name of one arm is expected in these brackets (letters, digits, _ . : and -)")
        self.at = arm.end()
        return arm[1]

    def term(self, found: Condition | Term, column: int) -> Term:
        if isinstance(found, Comparison | Joined):
            raise self.error("a comparison can't be reckoned with or compared; allowed: and, or between them", column)
        return found

    def took(self, *signs: str) -> str | None:
        """The first of the signs that comes next, read; None if none does."""
        rest = self.rest()
        sign = next((sign for sign in signs if rest.startswith(sign)), None)
        self.at += len(sign or "")
        return sign

    def took_word(self, word: str) -> bool:
        self.skip_space()
        name = _NAME.match(self.text, self.at)
        if name is None or name[0] != word:
            return False
        self.at = name.end()
        return True

    def rest(self) -> str:
        self.skip_space()
        return self.text[self.at :]

    def skip_space(self) -> None:
        space = _SPACE.match(self.text, self.at)
        self.at = space.end() if space else self.at

    def column(self) -> int:
        self.skip_space()
        return self.at + 1

    def error(self, what: str, column: int | None = None) -> ConditionError:
        column = self.column() if column is None else column
        here = repr(self.text[column - 1 : column + 19]) if column <= len(self.text) else "the end"
        return ConditionError(f"column {column}, at {here}: {what}")
