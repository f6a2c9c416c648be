"""Gates: what trips beyond the noise, what does not, what can't be judged, and what is refused before a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loadtest.experiment.client_figures import client_figures
from loadtest.experiment.conclusions import exit_code
from loadtest.experiment.condition import Figure
from loadtest.experiment.fail_if import check_gates, judge_gates
from loadtest.experiment.fail_if_text import gates_text
from loadtest.experiment.named_figures import DISTRIBUTIONS, PERCENTILES, catalogue_of, point
from loadtest.experiment.result import analyze
from loadtest.experiment.run_files import RunFiles
from loadtest.experiment.text import WIDTH
from sim.core.settings import SettingError
from tests.synthetic_run import compare_run, load_run, write

MINE = "my_pkg.mine:policy"
ARMS = ["filter-on", MINE, "filter-on:again"]
DEARER = f"cpu_us_per_chunk({MINE}) > 1.05 * cpu_us_per_chunk(filter-on)"


def cost(values: Any) -> dict[str, Any]:
    return {"cpu_us_per_chunk": {"mean": float(np.mean(values)), "ci95": None, "by_round": list(values)}}


def simulated(seed: int, dearer: float = 0.0, rounds: int = 40, noise: float = 0.08) -> dict[str, Any]:
    """A result's arms as this kind of machine gives them: drift that arms share, blocks 10 % uneven, heavy tails."""
    rng = np.random.default_rng(seed)
    drift = 1.0 + 0.01 * np.cumsum(rng.standard_normal(rounds))
    costs = {"filter-on": 25.0, MINE: 25.0 * (1 + dearer), "filter-on:again": 25.0}
    arms = {name: cost(c * drift * (1 + noise * rng.standard_t(5, rounds))) for name, c in costs.items()}
    return {"schema": "disagg-sim/compare/1", "arms": arms}


def judged(expression: str, result: dict[str, Any], earlier: dict[str, Any] | None = None, **more: Any) -> dict:
    return judge_gates([expression], result, earlier, more.get("not_comparable"), 1)[0]


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    files = compare_run(("filter-on", MINE), costs_us={"filter-on": 25.0, MINE: 30.0})
    return analyze(write(files, tmp_path_factory.mktemp("compare")))


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return analyze(write(load_run(), tmp_path_factory.mktemp("run")))


def test_a_fifth_more_trips_and_equal_arms_do_not() -> None:
    """In 200 runs of 40 rounds: what is 20 % dearer trips in 199; of equal arms none does with a margin of 5 %.

    A plain > trips by chance in one run of forty (its interval has 2.5 % on that side).
    """
    dearer = [judged(DEARER, simulated(seed, 0.20))["tripped"] for seed in range(200)]
    equal = [judged(DEARER, simulated(seed))["tripped"] for seed in range(200)]
    plain = "cpu_us_per_chunk(filter-on:again) > cpu_us_per_chunk(filter-on)"
    by_chance = sum(judged(plain, simulated(seed))["tripped"] for seed in range(200))

    assert dearer.count(True) >= 198
    assert equal.count(False) == 200
    assert 1 <= by_chance <= 13  # 5 are expected, more than 13 come once in a thousand times


def test_a_comparison_of_two_arms_agrees_with_the_difference_in_the_report(compared: dict[str, Any]) -> None:
    gate = judged(f"cpu_us_per_chunk(filter-on) - cpu_us_per_chunk({MINE}) < 0", compared)
    reported = compared["differences"][0]["cpu_us_per_chunk"]
    found = gate["comparisons"][0]["difference"]

    assert gate["tripped"] is True
    assert found["estimate"] == pytest.approx(reported["estimate"])
    assert found["ci95"] == pytest.approx(reported["ci95"], rel=0.02)  # other draws of the same bootstrap


@pytest.mark.parametrize(
    ("sign", "low", "middle", "high"),
    [
        (">", False, False, True),
        (">=", False, False, True),
        ("<", True, False, False),
        ("<=", True, False, False),
        ("!=", True, False, True),
    ],
)
def test_the_whole_interval_has_to_be_on_the_side(sign: str, low: bool, middle: bool, high: bool) -> None:
    result = {"schema": "disagg-sim/compare/1", "arms": {"a": cost([9.0, 10.0, 11.0, 10.0, 9.5, 10.5])}}

    assert [judged(f"cpu_us_per_chunk(a) {sign} {limit}", result)["tripped"] for limit in (12, 10.1, 8)] == [
        low,
        middle,
        high,
    ]


def test_figures_without_rounds_are_compared_as_they_stand(loaded: dict[str, Any]) -> None:
    ttft_s = loaded["client"]["ttft_s"]["p95"]

    assert judged(f"ttft_p95_s > {ttft_s}", loaded)["tripped"] is False
    assert judged(f"ttft_p95_s >= {ttft_s}", loaded)["tripped"] is True
    assert judged(f"ttft_p95_s == {ttft_s}", loaded)["tripped"] is True
    assert judged("failed_streams != 0 or failed_share > 0", loaded)["tripped"] is False
    tok_s = loaded["client"]["tokens"] / loaded["measured_s"]
    gate = judged(f"tok_s < {tok_s + 1}", loaded)
    assert gate["tripped"] is True
    assert gate["comparisons"][0] == {
        "text": f"tok_s < {tok_s + 1}",
        "left": pytest.approx(tok_s),
        "right": pytest.approx(tok_s + 1),
        "difference": None,
        "holds": True,
        "why": None,
    }


def test_core_share_goes_with_the_cost(compared: dict[str, Any]) -> None:
    cost_us = compared["arms"][MINE]["cpu_us_per_chunk"]
    gate = judged(f"core_share({MINE}) > 0.1", compared)["comparisons"][0]

    assert gate["left"] == pytest.approx(compared["arms"][MINE]["core_share_at_rate"])
    scale = compared["arms"][MINE]["core_share_at_rate"] / cost_us["mean"]
    assert gate["difference"]["ci95"] == pytest.approx([bound * scale - 0.1 for bound in cost_us["ci95"]], rel=0.02)


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("transit_p99_s > 1", "transit_p99_s was not measured"),
        (f"cpu_us_per_request({MINE}) > 1", f"cpu_us_per_request({MINE}) was not measured"),
        ("failed_streams / failed_share > 1", "it divides by zero"),
        ("1e308 * 1e308 * failed_streams > 1", "it comes to no finite number"),
        ("1 / (cpu_us_per_chunk(filter-on) - cpu_us_per_chunk(filter-on)) > 1", "it divides by zero"),
    ],
)
def test_what_can_t_be_judged_says_why(expression: str, why: str, compared: dict[str, Any]) -> None:
    gate = judged(expression, compared)

    assert gate["tripped"] is None
    assert gate["comparisons"][0]["why"] == why


def test_too_few_rounds_are_not_judged() -> None:
    gate = judged(DEARER, simulated(1, 0.5, rounds=3))

    assert (gate["tripped"], gate["comparisons"][0]["why"]) == (None, "too few rounds for an interval")


@pytest.mark.parametrize(
    ("expression", "tripped"),
    [
        ("failed_streams == 0 or transit_p99_s > 1", True),
        ("failed_streams > 0 or transit_p99_s > 1", None),
        ("failed_streams == 0 and transit_p99_s > 1", None),
        ("failed_streams > 0 and transit_p99_s > 1", False),
        ("(failed_streams > 0 or failed_streams == 0) and spin_us > 0", True),
    ],
)
def test_the_unknown_decides_nothing_that_the_known_can(
    expression: str, tripped: bool | None, compared: dict[str, Any]
) -> None:
    assert judged(expression, compared)["tripped"] is tripped


def test_an_earlier_run_s_rounds_stand_by_themselves() -> None:
    now, then = simulated(1, 0.20, noise=0.002), simulated(2, noise=0.002)
    expression = f"cpu_us_per_chunk({MINE}) > 1.05 * baseline.cpu_us_per_chunk({MINE})"
    gate = judged(expression, now, then)
    paired = judged(DEARER, now)

    def width(entry: dict[str, Any]) -> float:
        low, high = entry["comparisons"][0]["difference"]["ci95"]
        return high - low

    assert gate["comparisons"][0]["left"] == now["arms"][MINE]["cpu_us_per_chunk"]["mean"]
    assert gate["comparisons"][0]["right"] == 1.05 * then["arms"][MINE]["cpu_us_per_chunk"]["mean"]
    assert width(gate) > width(paired)  # the drift of a run does not cancel against another's
    refused = judged(expression, now, then, not_comparable="the two runs differ in more than the code")
    assert (refused["tripped"], refused["comparisons"][0]["why"]) == (None, "the two runs differ in more than the code")


@pytest.mark.parametrize(
    ("state", "tripped", "code"),
    [
        ("valid", [], 0),
        ("valid", [False, False], 0),
        ("suspect", [False, True, None], 4),
        ("valid", [False, None], 1),
        ("void", [True, None], 3),
    ],
)
def test_exit_codes(state: str, tripped: list[bool | None], code: int) -> None:
    gates = [{"tripped": each} for each in tripped]
    assert exit_code({"verdict": {"state": state}, "gates": gates}) == code


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("cpu(filter-on) > 1", "column 1, cpu(filter-on): there is no such figure of a compare; there are cpu_us_per_"),
        ("failed_streams > nope", "column 18, nope: there is no such figure"),
        ("cpu_us_per_chunk > 1", f"allowed: cpu_us_per_chunk(ARM), ARM one of filter-on, {MINE}, filter-on:again"),
        ("cpu_us_per_chunk(filter-off) > 1", f"there is no arm filter-off; there are filter-on, {MINE}, filter-on:ag"),
        ("ttft_p95_s(filter-on) > 1", "it is a figure of the whole run; allowed: ttft_p95_s without brackets"),
        ("baseline.ttft_p95_s > 1", "there is no earlier run to take it from; give --baseline"),
        ("cpu_us_per_chunk(filter-on) == 3", "nothing measured round by round is ever equal beyond the noise"),
        ("cpu_us_per_chunk(filter-on) >", "column 30, at the end: a number, a figure, - or ( is expected"),
    ],
)
def test_what_names_nothing_is_refused_before_the_run(expression: str, words: str) -> None:
    with pytest.raises(SettingError) as refused:
        check_gates(["failed_streams > 0", expression], "compare", ARMS, None)

    assert str(refused.value).startswith("--fail-if: ")
    assert words in str(refused.value)


def test_figures_of_the_earlier_run_are_checked_by_its_arms() -> None:
    check_gates([f"cpu_us_per_chunk({MINE}) > baseline.cpu_us_per_chunk(filter-off)"], "compare", ARMS, ["filter-off"])
    check_gates(["ttft_p95_s > 2 * baseline.ttft_p95_s"], "run", [], [])

    with pytest.raises(SettingError, match=r"column 1, baseline\.core_share\(filter-on\): there is no arm filter-on"):
        check_gates(["baseline.core_share(filter-on) > 1"], "compare", ARMS, ["filter-off"])
    with pytest.raises(SettingError, match="there is no such figure of a run; there are cpu_us_per_chunk, "):
        check_gates(["core_share(filter-on) > 1"], "run", [], None)


def test_every_latency_of_a_result_can_be_named(tmp_path: Path) -> None:
    client = client_figures(RunFiles.read(write(load_run(), tmp_path / "run")))
    spans = {key for key in client if key.endswith("_s")}

    assert spans == {f"{name}_s" for name in DISTRIBUTIONS}
    for kind in ("compare", "run"):
        names = catalogue_of(kind).of_the_run
        assert {f"{span.removesuffix('_s')}_{q}_s" for span in spans for q in PERCENTILES} <= set(names)


@pytest.mark.parametrize("kind", ["compare", "run"])
def test_every_figure_has_a_value_or_none_in_a_result(
    kind: str, compared: dict[str, Any], loaded: dict[str, Any]
) -> None:
    result = {"compare": compared, "run": loaded}[kind]
    figures = [Figure(name, None) for name in catalogue_of(kind).of_the_run]
    figures += [Figure(name, "filter-on") for name in catalogue_of(kind).of_an_arm]
    missing = {str(figure) for figure in figures if point(result, figure) is None}

    never = {f"{span}_{q}_s" for span in ("transit", "held", "inter_chunk") for q in PERCENTILES}
    never |= {"goodput", "goodput_requests_per_s"}  # no limit was set
    assert missing == never | ({"cpu_us_per_request(filter-on)"} if kind == "compare" else set())


def test_goodput_is_a_share(loaded: dict[str, Any]) -> None:
    result = {**loaded, "client": {**loaded["client"], "goodput": {"share": 0.93, "requests_per_s": 9.3}}}

    assert judged("goodput < 0.95 and goodput_requests_per_s > 9", result)["tripped"] is True


def test_in_the_terminal(compared: dict[str, Any]) -> None:
    expressions = [DEARER, "failed_streams > 0", "transit_p99_s > 1"]
    gates = judge_gates(expressions, compared, None, None, 1)
    text = gates_text({**compared, "gates": gates})

    assert max(map(len, text.splitlines())) <= WIDTH
    whole = " ".join(text.split())
    assert f"gate tripped {DEARER} (30.11 against 26.45, difference 3.659 [" in whole
    assert "gate held failed_streams > 0 (0 against 0)" in whole
    assert "gate not judged transit_p99_s > 1 (transit_p99_s was not measured)" in whole
    assert gates_text(compared) == ""


def test_a_count_of_instructions_is_gated_by_its_values() -> None:
    per_chunk, per_request = "user_instructions_per_chunk", "user_instructions_per_request"
    arms = {"filter-on": {"policy": "filter-on", per_chunk: 51_000.0, per_request: 2e6}, "mine:p": {per_chunk: None}}
    result = {"schema": "disagg-sim/instructions/1", "arms": arms}
    earlier = {"schema": "disagg-sim/instructions/1", "arms": {"filter-on": {**arms["filter-on"], per_chunk: 50_000.0}}}
    slower = f"{per_chunk}(filter-on) > 1.01 * baseline.{per_chunk}(filter-on)"
    check_gates([slower, f"{per_chunk}(filter-on) == 51000"], "instructions", ["filter-on"], ["filter-on"])

    assert judged(slower, result, earlier)["tripped"] is True
    assert judged(f"{per_chunk}(filter-on) == 51000", result)["tripped"] is True
    assert judged(f"{per_chunk}(mine:p) > 1", result)["tripped"] is None
    with pytest.raises(SettingError, match="there is no such figure of a count of instructions; there are user_instr"):
        check_gates(["ttft_p95_s > 1"], "instructions", ["filter-on"], None)
