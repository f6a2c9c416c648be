"""The history's CSV: a number in every metric's cell, one machine and load a file, no run twice, oldest first."""

from __future__ import annotations

import copy
import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from loadtest.experiment.__main__ import main
from loadtest.experiment.history import ATTRIBUTES, history_row, with_rows
from loadtest.experiment.result import analyze
from sim.core.settings import SettingError
from tests.synthetic_run import compare_run, load_run, write


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return analyze(write(compare_run(), tmp_path_factory.mktemp("run")))


def dated(result: dict[str, Any], started: str) -> dict[str, Any]:
    return {**result, "started": started}


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_a_row_has_time_attributes_and_a_number_for_each_metric(result: dict[str, Any]) -> None:
    row = history_row(result, "compare-1", "abc123")
    metrics = {name: cell for name, cell in row.items() if name not in ("time", *ATTRIBUTES)}

    assert list(row)[:6] == ["time", *ATTRIBUTES]
    assert (row["time"], row["commit"], row["run"], row["verdict"]) == (
        "2026-12-01T09:00:00+00:00",
        "abc123",
        "compare-1",
        "valid",
    )
    assert float(row["cpu_us_per_chunk(filter-on)"]) == pytest.approx(
        result["arms"]["filter-on"]["cpu_us_per_chunk"]["mean"], rel=1e-5
    )
    assert float(row["cpu_us_per_chunk(filter-off) - cpu_us_per_chunk(filter-on)"]) == pytest.approx(
        result["differences"][0]["cpu_us_per_chunk"]["estimate"], rel=1e-5
    )
    assert float(row["ttft_p95_s"]) == pytest.approx(result["client"]["ttft_s"]["p95"], rel=1e-5)
    assert all(float(cell) >= 0 for cell in metrics.values())
    assert len(metrics) == 3 * 3 + 7 + 1


def test_a_load_run_has_a_row_too(tmp_path: Path) -> None:
    result = analyze(write(load_run(), tmp_path / "run"))
    row = history_row(result, "run-1", "abc123")

    assert float(row["cpu_us_per_chunk"]) == pytest.approx(result["orchestrator"]["cpu_us_per_chunk"], rel=1e-5)
    assert float(row["e2e_p99_s"]) == pytest.approx(result["client"]["e2e_s"]["p99"], rel=1e-5)


def test_a_figure_that_was_not_measured_is_refused(result: dict[str, Any]) -> None:
    lacking = copy.deepcopy(result)
    lacking["client"]["ttft_s"]["p99"] = None

    with pytest.raises(SettingError, match="compare-1: ttft_p99_s was not measured"):
        history_row(lacking, "compare-1", "abc123")


def test_rows_are_kept_oldest_first_and_none_twice(result: dict[str, Any]) -> None:
    late = history_row(dated(result, "2026-12-02T09:00:00+00:00"), "b", "2")
    early = history_row(dated(result, "2026-12-02T09:30:00+01:00"), "a", "1")  # 08:30 UTC
    text, again = with_rows("", [late])
    assert again == []
    text, again = with_rows(text, [early, late])

    assert again == ["b"]
    assert [row["run"] for row in rows_of(text)] == ["a", "b"]
    assert with_rows(text, [early, late]) == (text, ["a", "b"])
    assert rows_of(text)[1] == late


def test_a_directory_of_the_same_name_at_another_time_is_another_run(result: dict[str, Any]) -> None:
    rows = [history_row(dated(result, f"2026-12-0{day}T09:00:00+00:00"), "run", "1") for day in (1, 2)]

    assert len(rows_of(with_rows("", rows)[0])) == 2


def test_another_machine_or_load_is_refused_unless_told(result: dict[str, Any]) -> None:
    text, _ = with_rows("", [history_row(result, "a", "1")])
    for key, what in ((("host", "cpus"), "host"), (("scenario", "name"), "settings")):
        other = copy.deepcopy(dated(result, "2026-12-02T09:00:00+00:00"))
        other[key[0]][key[1]] = 99
        row = history_row(other, "b", "2")
        with pytest.raises(SettingError, match=f"--csv: b has another {what} than the file"):
            with_rows(text, [row])
        assert len(rows_of(with_rows(text, [row], any_run=True)[0])) == 2


def test_other_columns_are_refused_with_their_names(result: dict[str, Any]) -> None:
    text, _ = with_rows("", [history_row(result, "a", "1")])
    other = copy.deepcopy(dated(result, "2026-12-02T09:00:00+00:00"))
    other["arms"]["verbatim"] = other["arms"].pop("filter-off:again")

    with pytest.raises(SettingError) as refused:
        with_rows(text, [history_row(other, "b", "2")], any_run=True)
    assert "new: cpu_us_per_chunk(verbatim), events_per_read(verbatim)" in str(refused.value)
    assert "missing: cpu_us_per_chunk(filter-off:again)" in str(refused.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\n1,2\n", "the file is no history: its header lacks time, commit, run, host, settings, verdict"),
        ("time,commit\n", "the file is no history"),
        ("time,commit,run,host,settings,verdict\n2026-12-01T09:00:00+00:00,1\n", "line 2 has 2 cells, the header 6"),
        ("time,commit,run,host,settings,verdict\n1 May,1,r,h,s,valid\n", "line 2: '1 May' is no time"),
        ("time,commit,run,host,settings,verdict\n2026-12-01T09:00:00,1,r,h,s,valid\n", "with its offset from UTC"),
    ],
)
def test_a_broken_file_is_refused_with_its_line(text: str, words: str) -> None:
    with pytest.raises(SettingError) as refused:
        with_rows(text, [])

    assert words in str(refused.value)


def saved(path: Path, result: dict[str, Any]) -> str:
    path.mkdir()
    (path / "result.json").write_text(json.dumps(result))
    return str(path)


def test_the_verb_appends_says_what_it_left_out_and_changes_nothing_on_error(
    result: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = saved(tmp_path / "good", result)
    void = saved(tmp_path / "void", {**dated(result, "2026-12-02T09:00:00+00:00"), "verdict": {"state": "void"}})
    table = tmp_path / "history.csv"

    assert main(["history", good, void, "--csv", str(table), "--commit", "abc"]) == 0
    shown = capsys.readouterr()
    assert shown.out == f"1 of 2 runs appended to {table}\n"
    assert f"left out: {void} is void" in shown.err
    assert main(["history", good, void, "--csv", str(table), "--void"]) == 0
    shown = capsys.readouterr()
    assert shown.out == f"1 of 2 runs appended to {table}\n"
    assert f"left out: good is in {table} already" in shown.err
    kept = table.read_text()
    assert [(row["run"], row["verdict"]) for row in rows_of(kept)] == [("good", "valid"), ("void", "void")]
    assert rows_of(kept)[0]["commit"] == "abc"

    lacking = copy.deepcopy(dated(result, "2026-12-03T09:00:00+00:00"))
    lacking["client"]["itl_s"]["p99"] = None
    assert main(["history", saved(tmp_path / "lacking", lacking), "--csv", str(table)]) == 2
    assert main(["history", str(tmp_path), "--csv", str(table)]) == 2
    assert "cannot read" in capsys.readouterr().err
    assert table.read_text() == kept


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "is not JSON"),
        ("[]", "is no result of compare, run, instructions"),
        ('{"schema": "disagg-sim/doctor/1"}', "is no result of compare, run, instructions"),
        ('{"schema": "disagg-sim/run/1"}', "lacks host, scenario, versions, started; `disagg-sim report"),
    ],
)
def test_what_is_no_result_is_refused(
    content: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "result.json").write_text(content)

    assert main(["history", str(tmp_path), "--csv", str(tmp_path / "h.csv")]) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "h.csv").exists()


def test_an_unusable_file_is_refused(
    result: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["history", saved(tmp_path / "run", result), "--csv", str(tmp_path)]) == 2
    assert "--csv: cannot use" in capsys.readouterr().err
