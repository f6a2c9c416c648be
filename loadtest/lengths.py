"""How long prompts and replies are: fixed, even within a range, lognormal, from quantiles, from a recording's rows.

Length presets.  Each is lognormal, fixed by two figures of Azure's 2023 LLM inference traces: the median p50 and
the mean.  With ``mu = ln(p50)`` the mean is ``exp(mu + sigma**2 / 2)``, hence ``sigma = sqrt(2 ln(mean / p50))``.
Prompt and reply are drawn independently, which the recordings are not; a replay keeps what they have in common.

    azure-conv  prompt mean 1,155, p50 1,020; reply mean 211, p50 129
    azure-code  prompt mean 2,048, p50 1,469; reply mean 28, p50 13

Attribution: figures of the Azure LLM inference trace 2023, Microsoft, CC-BY-4.0
(https://creativecommons.org/licenses/by/4.0/), described in Patel, Choukse, Zhang, Shah, Goiri, Maleki, Bianchini,
*Splitwise: Efficient generative LLM inference using phase splitting*, ISCA 2024.  No row of it is copied here.

Pure; reading a file of lengths is in `load_files`.
"""

from __future__ import annotations

import bisect
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import Protocol

from loadtest.load_settings import LoadSettings
from loadtest.traces.rows import TraceRow

__all__ = ["PRESETS", "DrawnApart", "Lengths", "LogNormal", "OfRows", "Quantiles", "Uniform", "plain_lengths"]


class Length(Protocol):
    """One length, in tokens: of prompts or of replies."""

    @property
    def mean_tokens(self) -> float:
        """Its mean."""

    def draw(self, rng: Random) -> int:
        """One, at least 1."""


class Lengths(Protocol):
    """The lengths of requests."""

    @property
    def mean_output_tokens(self) -> float:
        """Mean length of a reply."""

    def draw(self, rng: Random) -> tuple[int, int]:
        """Prompt and reply of the next request, tokens, each at least 1."""


@dataclass(frozen=True, slots=True)
class LogNormal:
    """A length distribution given by median and mean, both in tokens."""

    p50_tokens: float
    mean_tokens: float

    @property
    def sigma(self) -> float:
        """Standard deviation of the logarithm."""
        return math.sqrt(2 * math.log(self.mean_tokens / self.p50_tokens))

    def draw(self, rng: Random) -> int:
        """One length, at least 1 token."""
        return max(1, round(rng.lognormvariate(math.log(self.p50_tokens), self.sigma)))


@dataclass(frozen=True, slots=True)
class Uniform:
    """Each whole number from ``least`` to ``most`` equally often."""

    least: int
    most: int

    @property
    def mean_tokens(self) -> float:
        """The middle."""
        return (self.least + self.most) / 2

    def draw(self, rng: Random) -> int:
        """One length."""
        return self.least if self.least == self.most else rng.randint(self.least, self.most)


@dataclass(frozen=True, slots=True)
class Quantiles:
    """A distribution given by its percentiles, ascending from 0 to 100, and the length at each; linear between them."""

    percentiles: Sequence[float]
    tokens: Sequence[float]

    @property
    def mean_tokens(self) -> float:
        """The mean of what is between the percentiles; lengths below 1, which are drawn as 1, count as they are."""
        knots = pairwise(zip(self.percentiles, self.tokens, strict=True))
        return sum((p2 - p1) / 100 * (t1 + t2) / 2 for (p1, t1), (p2, t2) in knots)

    def draw(self, rng: Random) -> int:
        """One length, at least 1 token."""
        return max(1, round(self.at(rng.random() * 100)))

    def at(self, percentile: float) -> float:
        """The length at a percentile from 0 to 100, tokens."""
        place = min(max(1, bisect.bisect_right(self.percentiles, percentile)), len(self.percentiles) - 1)
        p1, p2 = self.percentiles[place - 1 : place + 1]
        t1, t2 = self.tokens[place - 1 : place + 1]
        return t1 + (t2 - t1) * (percentile - p1) / (p2 - p1)


@dataclass(frozen=True, slots=True)
class DrawnApart:
    """Prompt and reply drawn independently of each other."""

    prompt: Length
    output: Length

    @property
    def mean_output_tokens(self) -> float:
        """Mean length of a reply."""
        return self.output.mean_tokens

    def draw(self, rng: Random) -> tuple[int, int]:
        """Prompt and reply of the next request, tokens."""
        return self.prompt.draw(rng), self.output.draw(rng)


@dataclass(frozen=True, slots=True)
class OfRows:
    """Prompt and reply of a recording's rows, drawn with replacement: what they have in common is kept."""

    rows: Sequence[TraceRow]

    @property
    def mean_output_tokens(self) -> float:
        """Mean length of a reply."""
        return statistics.fmean(row.output_tokens for row in self.rows)

    def draw(self, rng: Random) -> tuple[int, int]:
        """Prompt and reply of the next request, tokens."""
        row = rng.choice(self.rows)
        return row.prompt_tokens, row.output_tokens


PRESETS = {
    "azure-conv": DrawnApart(LogNormal(1020, 1155), LogNormal(129, 211)),
    "azure-code": DrawnApart(LogNormal(1469, 2048), LogNormal(13, 28)),
}


def plain_lengths(settings: LoadSettings) -> Lengths:
    """The lengths of settings that need no file.  ValueError for those that do."""
    if settings.lengths == "fixed":
        return DrawnApart(
            Uniform(settings.prompt_tokens, settings.prompt_tokens),
            Uniform(settings.output_tokens, settings.output_tokens),
        )
    if settings.lengths == "range":
        return DrawnApart(
            Uniform(settings.prompt_tokens, settings.prompt_tokens_max),
            Uniform(settings.output_tokens, settings.output_tokens_max),
        )
    if settings.lengths in PRESETS:
        return PRESETS[settings.lengths]
    raise ValueError("these lengths are in a file, which was not read")
