"""The figures that a condition of ``--fail-if`` may name, and where a result holds each.

The names are those of `history`'s columns too.  Figures measured round by round come with their rounds; all others
are one value of the whole run.  Pure; the grammar is `condition_parser`, what trips is `fail_if`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loadtest.experiment.condition import Condition, Figure, comparisons_of, figures_of
from loadtest.experiment.instruction_figures import PER_CHUNK, PER_REQUEST
from sim.core.settings import SettingError

__all__ = [
    "BASELINE",
    "DISTRIBUTIONS",
    "PERCENTILES",
    "Catalogue",
    "by_round",
    "catalogue_of",
    "check_figures",
    "of_baseline",
    "point",
    "span_of",
]

BASELINE = "baseline."
"""Stands before a figure of the earlier run that ``--baseline`` names."""
DISTRIBUTIONS = (
    *("ttft", "ttft_from_sent", "itl", "inter_chunk", "transit", "tpot"),
    *("e2e", "e2e_from_sent", "lateness", "held"),
)
"""Spans of time that ``client`` in a result holds the percentiles of, less their ``_s``."""
PERCENTILES = ("p50", "p90", "p95", "p99", "max", "mean")

Read = Callable[[Mapping[str, Any]], Any]


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Figures of a kind of run by name: of one arm (read from its entry in ``arms``), and of the run."""

    of_an_arm: Mapping[str, Read]
    of_the_run: Mapping[str, Read]

    def words(self, arms: Sequence[str]) -> str:
        """What can be named, with the arms there are."""
        parts = [f"{', '.join(self.of_an_arm)}, each (ARM), ARM one of {', '.join(arms)}"] if self.of_an_arm else []
        short = [name for name in self.of_the_run if span_of(name) is None]
        spans = [name for name in DISTRIBUTIONS if f"{name}_p50_s" in self.of_the_run]
        short += [f"SPAN_{'|'.join(PERCENTILES)}_s, SPAN one of {', '.join(spans)}"] if spans else []
        return "; ".join([*parts, ", ".join(short)] if short else parts)


def _at(*keys: str) -> Read:
    """What stands below the keys; None as soon as one of them holds none."""

    def read(record: Mapping[str, Any]) -> Any:
        found: Any = record
        for key in keys:
            found = None if found is None else found.get(key)
        return found

    return read


def _failed_streams(result: Mapping[str, Any]) -> int:
    return sum(result["client"]["streams"]["failed"].values())


def _failed_share(result: Mapping[str, Any]) -> float | None:
    started: int = result["client"]["streams"]["started"]
    return _failed_streams(result) / started if started else None


def _tok_s(result: Mapping[str, Any]) -> float | None:
    tokens, seconds = result["client"]["tokens"], result["measured_s"]
    return tokens / seconds if tokens is not None and seconds else None


def _spin_us(result: Mapping[str, Any]) -> float | None:
    spins = [arm["spin_us"] for arm in result["arms"].values() if arm["spin_us"] is not None]
    return sum(spins) / len(spins) if spins else None


_CLIENT: Mapping[str, Read] = {
    **{f"{span}_{q}_s": _at("client", f"{span}_s", q) for span in DISTRIBUTIONS for q in PERCENTILES},
    "failed_streams": _failed_streams,
    "failed_share": _failed_share,
    "goodput": _at("client", "goodput", "share"),
    "goodput_requests_per_s": _at("client", "goodput", "requests_per_s"),
}
_LAG: Mapping[str, Read] = {f"loop_lag_{q}_s": _at("loop_lag_s", q) for q in ("p50", "p99", "max")}
_CATALOGUES: Mapping[str, Catalogue] = {
    "compare": Catalogue(
        {
            "cpu_us_per_chunk": _at("cpu_us_per_chunk", "mean"),
            "core_share": _at("core_share_at_rate"),
            "cpu_us_per_request": _at("cpu_us_per_request", "estimate"),
            "chunks_per_s": _at("chunks_per_s"),
            "events_per_read": _at("events_per_read"),
            "run_queue_wait_share": _at("run_queue_wait_share"),
            **_LAG,
        },
        {**_CLIENT, "spin_us": _spin_us},
    ),
    "run": Catalogue(
        {},
        {
            **{name: _at("orchestrator", name) for name in ("cpu_us_per_chunk", "chunks_per_s", "events_per_read")},
            **{name: _at("processes", "orchestrator", "loop_lag_s", name.split("_")[2]) for name in _LAG},
            "tok_s": _tok_s,
            **_CLIENT,
        },
    ),
    "instructions": Catalogue({name: _at(name) for name in (PER_CHUNK, PER_REQUEST)}, {}),
}


def catalogue_of(kind: str) -> Catalogue:
    """Figures of a run of this kind: compare, run or instructions."""
    return _CATALOGUES[kind]


def of_baseline(figure: Figure) -> Figure | None:
    """The figure that ``baseline.FIGURE`` names in the earlier run; None for one of this run."""
    if not figure.name.startswith(BASELINE):
        return None
    return Figure(figure.name.removeprefix(BASELINE), figure.arm, figure.column)


def check_figures(condition: Condition, kind: str, arms: Sequence[str], baseline_arms: Sequence[str] | None) -> None:
    """SettingError for a figure or an arm that there is not, with what there is.

    ``baseline_arms`` are those of the earlier run, None without one.
    """
    for comparison in comparisons_of(condition):
        figures = [*figures_of(comparison.left), *figures_of(comparison.right)]
        for figure in figures:
            earlier = of_baseline(figure)
            if earlier is None:
                _check(figure, figure, kind, arms)
            elif baseline_arms is None:
                raise _error(figure, "there is no earlier run to take it from; give --baseline")
            else:
                _check(figure, earlier, kind, baseline_arms)
        if comparison.sign == "==" and any(_has_rounds(figure, kind) for figure in figures):
            text = "nothing measured round by round is ever equal beyond the noise; allowed: > >= < <= !="
            raise SettingError(f"--fail-if: column {comparison.column}, {comparison.text}: {text}")


def _check(written: Figure, figure: Figure, kind: str, arms: Sequence[str]) -> None:
    catalogue = catalogue_of(kind)
    if figure.name in catalogue.of_an_arm:
        if figure.arm is None:
            raise _error(written, f"it is a figure of one arm; allowed: {written.name}(ARM), ARM one of {_list(arms)}")
        if figure.arm not in arms:
            raise _error(written, f"there is no arm {figure.arm}; there are {_list(arms)}")
    elif figure.name not in catalogue.of_the_run:
        raise _error(written, f"there is no such figure of a {_KINDS[kind]}; there are {catalogue.words(arms)}")
    elif figure.arm is not None:
        raise _error(written, f"it is a figure of the whole run; allowed: {written.name} without brackets")


_KINDS = {"compare": "compare", "run": "run", "instructions": "count of instructions"}


def _error(figure: Figure, what: str) -> SettingError:
    return SettingError(f"--fail-if: column {figure.column}, {figure}: {what}")


def _list(names: Sequence[str]) -> str:
    return ", ".join(names)


def span_of(name: str) -> str | None:
    """The span of time whose percentile a figure of this name is, None for any other figure."""
    spans = [span for span in DISTRIBUTIONS for q in PERCENTILES if name == f"{span}_{q}_s"]
    return spans[0] if spans else None


def point(result: Mapping[str, Any], figure: Figure) -> float | None:
    """The figure's one value in a result; None where the run did not leave it."""
    catalogue = catalogue_of(_kind(result))
    if figure.arm is None:
        found = catalogue.of_the_run[figure.name](result)
    else:
        found = catalogue.of_an_arm[figure.name](result["arms"][figure.arm])
    return None if found is None else float(found)


def by_round(result: Mapping[str, Any], figure: Figure) -> Sequence[float] | None:
    """The figure's value in each round that counts, in the same order for every arm; None for any other figure."""
    if figure.arm is None or not _has_rounds(figure, _kind(result)):
        return None
    cost = result["arms"][figure.arm]["cpu_us_per_chunk"]
    if cost is None:
        return None
    share = point(result, figure)
    scale = 1.0 if figure.name == "cpu_us_per_chunk" or share is None else share / cost["mean"]
    return [value * scale for value in cost["by_round"]]


def _has_rounds(figure: Figure, kind: str) -> bool:
    return kind == "compare" and figure.name.removeprefix(BASELINE) in ("cpu_us_per_chunk", "core_share")


def _kind(result: Mapping[str, Any]) -> str:
    """``disagg-sim/compare/1`` is of kind compare."""
    return str(result["schema"]).split("/")[1]
