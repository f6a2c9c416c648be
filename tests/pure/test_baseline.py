"""A run beside an earlier one: what is comparable, the ratio and its interval, and what is refused before the run."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from loadtest.experiment.baseline import BASELINE_FILE, against_baseline, read_earlier
from loadtest.experiment.comparable import identity, machine_of, settings_of, unlike
from loadtest.experiment.conclusions import exit_code
from loadtest.experiment.fail_if_plan import gated
from loadtest.experiment.fail_if_text import gates_text
from loadtest.experiment.result import analyze
from loadtest.experiment.text import WIDTH
from sim.core.settings import GenSettings, SettingError
from tests.synthetic_run import Files, compare_run, load_run, write


def folded(path: Path, files: Files) -> dict[str, Any]:
    return analyze(write(files, path))


def kept(path: Path, result: Any) -> Path:
    path.mkdir(exist_ok=True)
    (path / "result.json").write_text(result if isinstance(result, str) else json.dumps(result))
    return path


@pytest.fixture(scope="module")
def then(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return folded(tmp_path_factory.mktemp("then"), compare_run(costs_us={"filter-on": 20.0}))


@pytest.fixture(scope="module")
def now(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return folded(tmp_path_factory.mktemp("now"), compare_run(costs_us={"filter-on": 24.0}, seed=2))


def test_ratios_of_the_arms_that_both_runs_have(now: dict[str, Any], then: dict[str, Any]) -> None:
    found = against_baseline(now, {"path": "old", "any": False, "result": then}, 1)
    ratios = {entry["figure"]: entry for entry in found["ratios"]}

    assert (found["state"], found["differs"], found["withheld"]) == ("valid", [], None)
    assert list(ratios) == [f"cpu_us_per_chunk({arm})" for arm in ("filter-off", "filter-on", "filter-off:again")]
    dearer = ratios["cpu_us_per_chunk(filter-on)"]
    means = [run["arms"]["filter-on"]["cpu_us_per_chunk"]["mean"] for run in (now, then)]
    assert (dearer["now"], dearer["then"]) == tuple(means)
    assert dearer["ratio"] == means[0] / means[1]
    low, high = dearer["ci95"]
    assert 1.1 < low < dearer["ratio"] < high < 1.3
    assert dearer["by_spin"] == pytest.approx(dearer["ratio"] / found["spin_ratio"])


def test_the_fixed_spin_tells_a_slower_machine_from_dearer_code(then: dict[str, Any], tmp_path: Path) -> None:
    files = compare_run(costs_us={"filter-off": 45.0 * 1.3, "filter-on": 20.0 * 1.3}, seed=2)
    for block in files["blocks.jsonl"]:
        block["spin_ns"] = round(block["spin_ns"] * 1.3)
    found = against_baseline(folded(tmp_path / "run", files), {"path": "old", "any": False, "result": then}, 1)

    assert found["spin_ratio"] == pytest.approx(1.3, rel=0.01)
    for entry in found["ratios"]:
        assert entry["ratio"] == pytest.approx(1.3, rel=0.05)
        assert entry["by_spin"] == pytest.approx(1.0, rel=0.05)


def test_a_policy_under_another_name_is_not_the_same_arm(now: dict[str, Any], then: dict[str, Any]) -> None:
    other = copy.deepcopy(then)
    other["arms"]["filter-on"]["policy"] = "my_pkg.mine:policy"
    found = against_baseline(now, {"path": "old", "any": False, "result": other}, 1)

    assert [entry["figure"] for entry in found["ratios"]] == [
        "cpu_us_per_chunk(filter-off)",
        "cpu_us_per_chunk(filter-off:again)",
    ]


def test_a_load_run_has_a_ratio_without_an_interval(tmp_path: Path) -> None:
    result = folded(tmp_path / "run", load_run())
    found = against_baseline(result, {"path": "old", "any": False, "result": result}, 1)
    entry = found["ratios"][0]

    assert len(found["ratios"]) == 1
    assert (entry["figure"], entry["ratio"], entry["ci95"], entry["by_spin"]) == ("cpu_us_per_chunk", 1.0, None, None)
    assert found["spin_ratio"] is None


def changed(result: dict[str, Any], *keys: str, value: Any) -> dict[str, Any]:
    other = copy.deepcopy(result)
    place = other
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = value
    return other


UNLIKE = [
    (("host", "model"), "Epyc", "CPU model Xeon now, Epyc then"),
    (("host", "cpus"), 4, "CPUs 2 now, 4 then"),
    (("host", "pinning"), {"orchestrator": [0, 1], "others": [0, 1]}, "CPU of its own True now, False then"),
    (("versions", "python"), "3.11.9", "Python 3.12 now, 3.11 then"),
    (("scenario", "name"), "steady", "scenario seed now, steady then"),
    (("scenario", "load", "streams"), 500, "load.streams 1000 now, 500 then"),
    (("scenario", "gen", "usage"), "null", "gen.usage the default now, null then"),
    (("block_s",), 0.5, "block_s 0.7 now, 0.5 then"),
    (("verdict", "state"), "void", "it is void: its figures are not to be used"),
]


@pytest.mark.parametrize(("keys", "value", "words"), UNLIKE, ids=[words for *_, words in UNLIKE])
def test_another_machine_or_load_is_refused_unless_told(
    keys: tuple[str, ...], value: Any, words: str, now: dict[str, Any], then: dict[str, Any], tmp_path: Path
) -> None:
    manifest = compare_run()["manifest.json"]
    path = kept(tmp_path / "then", changed(then, *keys, value=value))

    with pytest.raises(SettingError) as refused:
        read_earlier(str(path), "compare", manifest, any_run=False)
    assert words in str(refused.value)
    assert "--baseline-any" in str(refused.value)
    earlier = read_earlier(str(path), "compare", manifest, any_run=True)
    found = against_baseline(now, earlier, 1)
    assert found["withheld"] is None
    assert len(found["ratios"]) == 3
    assert found["state"] == "void" or words in " ".join(found["differs"])


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        (("versions", "aiohttp"), "3.15"),
        (("versions", "python"), "3.12.9"),
        (("host", "kernel"), "7.0"),
        (("host", "load_average"), [9, 9, 9]),
        (("scenario", "load", "seed"), 9),
        (("seed",), 9),
        (("rounds", "planned"), 10),
        (("scenario", "gen", "usage"), GenSettings().usage),
    ],
)
def test_versions_seeds_and_the_run_s_length_part_nothing(
    keys: tuple[str, ...], value: Any, then: dict[str, Any], tmp_path: Path
) -> None:
    path = kept(tmp_path / "then", changed(then, *keys, value=value))
    earlier = read_earlier(str(path / "result.json"), "compare", compare_run()["manifest.json"], any_run=False)

    assert earlier["result"]["arms"] == then["arms"]


def test_versions_that_differ_are_listed(now: dict[str, Any], then: dict[str, Any]) -> None:
    other = changed(changed(then, "versions", "aiohttp", value="3.13"), "host", "kernel", value="6.1")
    found = against_baseline(now, {"path": "old", "any": False, "result": other}, 1)

    assert found["versions_differ"] == ["kernel 6.18 now, 6.1 then", "aiohttp 3.14.5 now, 3.13 then"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "is not JSON"),
        ("[]", "is no result of compare or run"),
        ('{"schema": "disagg-sim/doctor/1"}', "is no result of compare or run"),
        ('{"schema": "disagg-sim/run/1"}', "is disagg-sim/run/1; a compare can be compared with disagg-sim/compare/1"),
        ('{"schema": "disagg-sim/compare/1", "arms": {}}', "lacks host, scenario, versions, started, as an older"),
    ],
)
def test_what_is_no_result_is_refused(content: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(SettingError) as refused:
        read_earlier(str(kept(tmp_path / "then", content)), "compare", compare_run()["manifest.json"], any_run=True)

    assert str(refused.value).startswith("--baseline: ")
    assert words in str(refused.value)


def test_no_file_no_rounds_and_no_arm_in_common_are_refused(then: dict[str, Any], tmp_path: Path) -> None:
    manifest = compare_run()["manifest.json"]
    older = copy.deepcopy(then)
    for arm in older["arms"].values():
        del arm["cpu_us_per_chunk"]["by_round"]
    others = compare_run(("verbatim", "parse-orjson"), costs_us={"verbatim": 1.0})["manifest.json"]

    with pytest.raises(SettingError, match=r"cannot read .*: No such file"):
        read_earlier(str(tmp_path / "none"), "compare", manifest, any_run=True)
    with pytest.raises(SettingError, match=r"lacks by_round.*`disagg-sim report RUN_DIR` writes it anew"):
        read_earlier(str(kept(tmp_path / "older", older)), "compare", manifest, any_run=True)
    with pytest.raises(SettingError, match="has no arm of this run; its arms are filter-off, filter-on, filter-off:"):
        read_earlier(str(kept(tmp_path / "then", then)), "compare", others, any_run=True)


def with_gates(path: Path, files: Files, then: dict[str, Any], *expressions: str, any_run: bool = False) -> dict:
    files["manifest.json"]["fail_if"] = list(expressions)
    files[BASELINE_FILE] = {"path": "old", "any": any_run, "result": then}
    return gated(write(files, path), analyze(path))


def test_a_run_directory_says_what_is_to_be_judged(then: dict[str, Any], tmp_path: Path) -> None:
    dearer = "cpu_us_per_chunk(filter-on) > 1.05 * baseline.cpu_us_per_chunk(filter-on)"
    result = with_gates(tmp_path / "run", compare_run(costs_us={"filter-on": 24.0}, seed=2), then, dearer)

    assert result["gates"][0]["tripped"] is True
    assert exit_code(result) == 4
    assert gated(tmp_path / "run", analyze(tmp_path / "run")) == result
    text = " ".join(gates_text(result).split())
    assert text.startswith("baseline old, a valid run of 2026-12-01T09:00:00+00:00 baseline cpu_us_per_chunk(filter-o")
    assert f"baseline the fixed spin takes {result['baseline']['spin_ratio']:.3f} times as long as then" in text
    assert max(map(len, gates_text(result).splitlines())) <= WIDTH


def test_a_load_that_was_stepped_down_is_not_the_earlier_one(then: dict[str, Any], tmp_path: Path) -> None:
    files = compare_run(seed=2)
    files["manifest.json"]["scenario"]["load"]["streams"] = 700
    gate = "cpu_us_per_chunk(filter-on) > baseline.cpu_us_per_chunk(filter-on)"
    result = with_gates(tmp_path / "run", copy.deepcopy(files), then, gate)

    assert result["baseline"]["differs"] == ["load.streams 700 now, 1000 then"]
    assert result["baseline"]["ratios"] == []
    assert result["gates"][0]["tripped"] is None
    assert exit_code(result) == 1
    text = " ".join(gates_text(result).split())
    assert "no claim, the two runs differ in more than the code: load.streams 700 now, 1000 then" in text
    told = with_gates(tmp_path / "told", files, then, gate, any_run=True)
    assert told["gates"][0]["tripped"] is True
    assert "compared all the same: load.streams 700 now, 1000 then" in gates_text(told)


@pytest.mark.parametrize(
    ("content", "words"),
    [("{", "baseline.json is not JSON"), ("[]", "lacks path, any or result"), ("{}", "lacks path")],
)
def test_a_kept_baseline_that_is_broken_is_named(content: str, words: str, tmp_path: Path) -> None:
    path = write(compare_run(), tmp_path / "run")
    (path / BASELINE_FILE).write_text(content)

    with pytest.raises(ValueError, match=words):
        gated(path, analyze(path))


def test_a_condition_that_a_manifest_can_t_have_is_refused(tmp_path: Path) -> None:
    files = compare_run()
    files["manifest.json"]["fail_if"] = ["nothing(filter-on) > 1"]
    path = write(files, tmp_path / "run")

    with pytest.raises(ValueError, match="there is no such figure of a compare"):
        gated(path, analyze(path))


def test_a_run_without_gates_says_nothing_of_them(tmp_path: Path) -> None:
    path = write(compare_run(), tmp_path / "run")
    result = gated(path, analyze(path))

    assert (result["gates"], result["baseline"]) == ([], None)
    assert gates_text(result) == ""


def test_an_identity_is_the_same_as_long_as_the_facts_are(then: dict[str, Any]) -> None:
    facts = machine_of(then)

    assert identity(facts) == identity(dict(reversed(facts.items())))
    assert identity(facts) != identity({**facts, "CPUs": 3})
    assert len(identity(settings_of(then))) == 10


def test_what_one_run_alone_says_is_unlike() -> None:
    assert unlike({"a": 1, "b": 2}, {"a": 1, "c": 3}) == ["b 2 now, unknown then", "c unknown now, 3 then"]
    assert unlike({"a": 1}, {"a": 1}) == []
