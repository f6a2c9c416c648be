"""Lengths: ranges, tables of quantiles and recordings are drawn from as they say; a broken file is told."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from random import Random

import pytest

from loadtest.lengths import DrawnApart, OfRows, Quantiles, plain_lengths
from loadtest.load_files import lengths_of, mean_output_tokens, notes_of, table_of
from loadtest.load_settings import LoadSettings
from loadtest.scenario import load_scenario
from loadtest.traces.rows import TraceRow
from loadtest.workload import plan_requests
from sim.core.settings import SettingError

SHAREGPT = Path(__file__).parents[3] / "shared" / "traces" / "sharegpt_length_quantiles.json"
TABLE = {"percentile": [0, 50, 90, 100], "prompt_tokens": [10, 20, 60, 1000], "output_tokens": [0, 5, 5, 9]}
TRACE = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.5,7,5\n2023-11-16 18:15:56.5,70,15\n"


def draws(lengths, count: int = 20_000, seed: int = 5) -> list[tuple[int, int]]:
    rng = Random(seed)
    return [lengths.draw(rng) for _ in range(count)]


def settings(path: Path, **changes) -> LoadSettings:
    return LoadSettings(lengths="file", lengths_file=str(path), **changes)


def test_a_range_is_drawn_from_its_least_to_its_greatest_length():
    ranged = LoadSettings(lengths="range", prompt_tokens=3, prompt_tokens_max=5, output_tokens=7, output_tokens_max=7)
    prompts, replies = zip(*draws(plain_lengths(ranged)), strict=True)

    assert {n: prompts.count(n) / len(prompts) for n in sorted(set(prompts))} == pytest.approx(
        dict.fromkeys((3, 4, 5), 1 / 3), abs=0.02
    )
    assert set(replies) == {7}
    assert mean_output_tokens(ranged) == 7


def test_quantiles_are_linear_between_what_is_given():
    quantiles = Quantiles((0, 50, 90, 100), (10, 20, 60, 1000))

    assert [quantiles.at(p) for p in (0, 25, 50, 70, 90, 95, 100)] == [10, 15, 20, 40, 60, 530, 1000]
    assert quantiles.mean_tokens == 0.5 * 15 + 0.4 * 40 + 0.1 * 530


def test_a_table_gives_back_its_own_percentiles_and_mean():
    lengths = table_of(TABLE, "t")
    prompts, replies = zip(*draws(lengths), strict=True)

    assert statistics.median(prompts) == pytest.approx(20, abs=1)
    assert statistics.quantiles(prompts, n=10)[6] == pytest.approx(40, abs=2)
    assert statistics.fmean(prompts) == pytest.approx(76.5, rel=0.05)
    assert min(replies) == 1  # nothing shorter can be asked for
    assert max(replies) <= 9


def test_rows_keep_what_prompt_and_reply_have_in_common():
    rows = [TraceRow(0, 10, 1), TraceRow(1, 20, 2)]

    assert set(draws(OfRows(rows), 100)) == {(10, 1), (20, 2)}
    assert OfRows(rows).mean_output_tokens == 1.5


def test_lengths_follow_from_the_seed_and_do_not_move_arrivals(tmp_path):
    path = tmp_path / "table.json"
    path.write_text(json.dumps(TABLE))
    drawn = settings(path, arrivals="gamma", burstiness=0.5, request_rate=50, duration_s=5)
    lengths = lengths_of(drawn)
    plan = plan_requests(drawn, 1, (), lengths)

    assert plan == plan_requests(drawn, 1, (), lengths)
    assert plan != plan_requests(drawn, 2, (), lengths)
    fixed = LoadSettings(arrivals="gamma", burstiness=0.5, request_rate=50, duration_s=5)
    assert [request.due_ns for request in plan] == [request.due_ns for request in plan_requests(fixed, 1)]
    assert len({request.prompt_tokens for request in plan}) > 20


def test_characters_are_four_to_a_token():
    lengths = table_of({"percentile": [0, 100], "prompt_chars": [40, 80], "output_chars": [4, 4]}, "t")

    assert lengths == DrawnApart(Quantiles((0, 100), (10, 20)), Quantiles((0, 100), (1, 1)))


@pytest.mark.skipif(not SHAREGPT.is_file(), reason="the quantiles are not part of the project")
def test_sharegpts_quantiles_are_taken_as_they_are():
    lengths = lengths_of(settings(SHAREGPT))
    prompts, replies = zip(*draws(lengths), strict=True)

    assert statistics.median(prompts) == pytest.approx(144 / 4, rel=0.05)
    assert statistics.quantiles(replies, n=100)[94] == pytest.approx(3026 / 4, rel=0.05)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"percentile": None}, "t: percentile is not a list of numbers"),
        ({"percentile": [0, 50, 90, True]}, "t: percentile[3] True is not a number"),
        ({"percentile": [0, 50, 90, 99]}, "t: percentile does not rise from 0 to 100"),
        ({"percentile": [0, 50, 50, 100]}, "t: percentile does not rise from 0 to 100"),
        ({"percentile": [100]}, "t: percentile does not rise from 0 to 100"),
        ({"prompt_tokens": [1, 2, 3]}, "t: prompt_tokens has 3 numbers, percentile 4"),
        ({"prompt_tokens": [1, 2, "3", 4]}, "t: prompt_tokens[2] '3' is not a number"),
        ({"prompt_tokens": [1, 2, float("nan"), 4]}, "t: prompt_tokens[2] nan is not a number"),
        ({"prompt_tokens": [1, 3, 2, 4]}, "t: prompt_tokens falls, or leaves the range from 0 to 10000000 tokens"),
        ({"output_tokens": [-1, 3, 3, 4]}, "t: output_tokens falls, or leaves the range"),
        ({"output_tokens": [1, 3, 3, 10**9]}, "t: output_tokens falls, or leaves the range"),
        ({"output_chars": [1, 3, 3, 4]}, "t: output_tokens and output_chars are both there; expected one of output_to"),
    ],
)
def test_a_fault_of_a_table_is_told(changes, words):
    with pytest.raises(SettingError) as caught:
        table_of({**TABLE, **changes}, "t")

    assert str(caught.value).startswith(words)


def test_a_table_without_lengths_or_that_is_none_is_told():
    with pytest.raises(SettingError, match="t: no lengths; expected one of prompt_tokens, prompt_chars, first_human"):
        table_of({"percentile": [0, 100]}, "t")
    with pytest.raises(SettingError, match="t: list is not an object"):
        table_of([], "t")


def test_a_file_of_lengths_is_checked_with_its_scenario_and_counts_from_the_files_folder(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('[load]\nlengths = "file"\nlengths_file = "table.json"\n')
    with pytest.raises(
        SettingError, match=r"mine\.toml:3: load\.lengths_file: .*table\.json: cannot read: No such file"
    ):
        load_scenario(str(path))
    (tmp_path / "table.json").write_text("{")
    with pytest.raises(SettingError, match=r"mine\.toml:3: load\.lengths_file: .*table\.json: not JSON"):
        load_scenario(str(path))
    (tmp_path / "table.json").write_text(json.dumps(TABLE))
    assert lengths_of(load_scenario(str(path)).load) == table_of(TABLE, "t")


def test_a_recordings_broken_rows_are_counted_also_where_only_lengths_are_drawn_from_it(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(TRACE + "x,1,1\n")
    with pytest.raises(SettingError, match=r"t\.csv:4: TIMESTAMP 'x'"):
        lengths_of(settings(path))
    skipping = settings(path, skip_bad_rows=True)

    assert set(draws(lengths_of(skipping), 100)) == {(7, 5), (70, 15)}
    assert notes_of(skipping)[0].startswith(f"{path}: broken rows left out: 1; the first: {path}:4: TIMESTAMP 'x'")
    assert notes_of(LoadSettings()) == []


def test_a_window_without_a_request_is_a_fault_of_the_scenario(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(TRACE)
    with pytest.raises(SettingError, match=r"no request in the window \(window_from_s 11, window_s 0\); .* lasts 10 s"):
        load_scenario("smoke", [f"trace={path}", "window_from_s=11"])
