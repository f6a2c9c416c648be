"""Figures draw what was measured, and an arm looks the same in all of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from loadtest.experiment import compare_charts, load_charts
from loadtest.experiment.figures import Figure, ecdf, label, looks_of, span, tail_of
from loadtest.experiment.result import analyze, judged_rounds
from loadtest.experiment.run_files import RunFiles
from sim.core.histogram import LogHistogram
from tests.synthetic_run import compare_run, histogram, load_run, write


def trace(figure: Figure, name: str) -> dict[str, list[float]]:
    found = next(t for t in figure["data"] if t["name"] == name)
    return {"x": found["x"], "y": found["y"]}


def test_an_arm_has_one_colour_and_its_twin_the_same_one_lighter_and_open() -> None:
    looks = looks_of(["off", "on", "off:again"])

    assert [look.colour for look in looks.values()] == ["--arm-0", "--arm-1", "--arm-0-again"]
    assert [look.symbol for look in looks.values()] == ["circle", "circle", "circle-open"]
    assert looks["off:again"].dash == "dash"


def test_more_arms_than_colours_begin_again() -> None:
    assert looks_of([f"arm{i}" for i in range(7)])["arm6"].colour == "--arm-0"


def test_a_tail_tells_how_rare_at_least_that_late_is() -> None:
    lag = LogHistogram.from_json(histogram([1_000_000] * 90 + [10_000_000] * 10))

    shares, values_ms = tail_of(lag)

    assert shares == [1.0, 0.1, 0.01]
    assert values_ms == pytest.approx([1.0, 10.0, 10.0], rel=0.016)


def test_an_ecdf_ends_at_the_greatest_value() -> None:
    x, y = ecdf(np.array([3.0, 1.0, 2.0]))

    assert (x[0], y[0]) == (1.0, 0.0)
    assert (x[-1], y[-1]) == (3.0, 1.0)


def test_a_span_holds_its_values_with_a_margin() -> None:
    assert span([0.0, 10.0], pad=0.1) == [-1.0, 11.0]
    assert span([5.0], at_least=(0.0, 10.0), pad=0.1) == [-1.0, 11.0]
    assert span([0.0])[0] < 0 < span([0.0])[1]


def test_a_name_cannot_open_a_tag() -> None:
    assert label("a<b>&c") == "a&lt;b&gt;&amp;c"


def test_every_difference_and_the_control_has_a_row_with_its_interval(tmp_path: Path) -> None:
    result = analyze(write(compare_run(), tmp_path))

    forest = compare_charts.differences_forest(result["differences"], result["control"])

    assert forest is not None
    value = result["differences"][0]["cpu_us_per_chunk"]
    assert trace(forest, "filter-off minus filter-on") == {"x": [value["estimate"]], "y": [1]}
    assert trace(forest, "95 %") == {"x": value["ci95"], "y": [1, 1]}
    assert trace(forest, "A/A: filter-off minus itself")["y"] == [0]
    assert trace(forest, "99.9 %")["x"] == result["control"]["cpu_us_per_chunk"]["ci999"]


def test_four_rounds_draw_a_control_without_its_99_9_interval_on_an_axis_scaled_by_the_95_one(tmp_path: Path) -> None:
    result = analyze(write(compare_run(rounds=4), tmp_path / "four"))
    forest = compare_charts.differences_forest(result["differences"], result["control"])

    assert forest is not None
    assert "99.9 %" not in [t["name"] for t in forest["data"]]
    rows = [d["cpu_us_per_chunk"] for d in (*result["differences"], result["control"])]
    ends = [end for row in rows for end in (*row["ci95"], row["mde"], -row["mde"])]
    assert forest["layout"]["xaxis"]["range"] == span(ends)
    three = analyze(write(compare_run(rounds=3), tmp_path / "three"))
    assert compare_charts.differences_forest(three["differences"], three["control"]) is None


def test_paired_differences_are_drawn_round_by_round_with_void_ones_crossed(tmp_path: Path) -> None:
    files = compare_run(rounds=10)
    files["blocks.jsonl"][3]["chunks"] //= 2
    path = write(files, tmp_path)
    result, judged = analyze(path), judged_rounds(RunFiles.read(path))
    pair = ("filter-off", "filter-on")

    figure = compare_charts.paired_differences([pair], judged, {pair: result["differences"][0]})

    assert figure is not None
    drawn = trace(figure, "filter-off minus filter-on")
    assert drawn["x"] == [0, 2, 3, 4, 5, 6, 7, 8, 9]
    assert np.mean(drawn["y"]) == pytest.approx(result["differences"][0]["cpu_us_per_chunk"]["estimate"])
    assert trace(figure, "void") == {"x": [1], "y": [0.0]}


def test_without_rounds_there_is_nothing_to_draw(tmp_path: Path) -> None:
    files = compare_run()
    del files["blocks.jsonl"]
    path = write(files, tmp_path)
    result, judged = analyze(path), judged_rounds(RunFiles.read(path))
    looks = looks_of(list(result["arms"]))

    assert compare_charts.differences_forest(result["differences"], result["control"]) is None
    assert compare_charts.cost_by_arm(judged, result["arms"], looks) is None
    assert compare_charts.cost_over_time(judged, looks) is None
    assert compare_charts.lag_by_arm(judged, looks) is None
    assert compare_charts.events_per_read(judged, looks) is None
    assert compare_charts.rate_over_time(judged, looks, 1.0) is None


def test_live_streams_rise_with_sends_and_fall_with_ends(tmp_path: Path) -> None:
    files = load_run(requests=3)
    for at_s, stream in enumerate(files["streams.jsonl"]):
        planned = 10**12 + at_s * 10**9
        stream.update({"planned_ns": planned, "sent_ns": planned, "end_ns": planned + 5 * 10**8})
    files["streams.jsonl"][0]["end_ns"] += 4 * 10**9

    figure = load_charts.load_over_time(RunFiles.read(write(files, tmp_path)))

    assert figure is not None
    assert trace(figure, "live streams") == {"x": [0.0, 1.0, 2.0, 3.0, 4.0, 5.0], "y": [1, 2, 2, 1, 1, 0]}
    assert trace(figure, "sent")["y"] == [1, 1, 1, 0, 0]


def test_a_failed_stream_is_crossed_with_its_reason(tmp_path: Path) -> None:
    files = load_run(requests=5)
    files["streams.jsonl"][2].update({"outcome": "cut", "first_token_ns": None})

    figure = load_charts.ttft_over_time(RunFiles.read(write(files, tmp_path)))

    assert figure is not None
    assert len(trace(figure, "passed every check")["x"]) == 4
    assert next(t for t in figure["data"] if t["name"] == "failed a check")["text"] == ["cut"]


def test_lateness_has_a_curve_for_each_instrument(tmp_path: Path) -> None:
    figure = load_charts.lateness_tails(RunFiles.read(write(compare_run(), tmp_path)))

    assert figure is not None
    assert [t["name"] for t in figure["data"]] == ["gen0: tokens", "ctx0: prefill answers", "load: sends"]
