from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loadtest.experiment.blocks import Block
from loadtest.experiment.report import write_report
from loadtest.experiment.request_cost import request_cost
from loadtest.experiment.result import analyze
from loadtest.experiment.sentences import request_cost_sentence
from loadtest.experiment.text import render_text
from tests import synthetic_run

CHUNK_US, REQUEST_US = 40.0, 700.0
TOGETHER = "chunks and requests rose and fell together from block to block, so their costs can't be told apart"
OUTSIDE = "no request came inside a measured block"


def churn_blocks(rounds: int, rng: np.random.Generator, noise: float = 0.03, **fixed: Any) -> list[Block]:
    """Blocks of a load whose requests come at random and whose chunks are those of streams begun earlier."""
    made = []
    for number in range(rounds):
        record = synthetic_run.block(number, 0, "on", "on", 0, CHUNK_US, rng)
        record |= {"chunks": int(rng.integers(9_000, 11_000)), "requests": int(rng.poisson(60)), **fixed}
        load = 1.0 + noise * rng.standard_t(5)
        cost_us = (CHUNK_US * record["chunks"] + REQUEST_US * record["requests"]) * load
        made.append(Block.from_record({**record, "cpu_ns": round(cost_us * 1e3)}))
    return made


def fold(tmp_path: Path, files: Any) -> dict[str, Any]:
    return analyze(synthetic_run.write(files, tmp_path / "run"))


def with_churn(rounds: int = 20) -> Any:
    files = synthetic_run.compare_run(rounds=rounds)
    rng = np.random.default_rng(5)
    for block in files["blocks.jsonl"]:
        block["requests"] = int(rng.poisson(60))
        block["chunks"] = round(block["chunks"] * rng.uniform(0.98, 1.02))
        request_us = {"filter-off": 900.0, "filter-on": 700.0}[block["policy"]]
        block["cpu_ns"] = round(40e3 * block["chunks"] + request_us * 1e3 * block["requests"])
    return files


def test_a_known_cost_is_found() -> None:
    found = request_cost(churn_blocks(12, np.random.default_rng(1), noise=0.0), np.random.default_rng(2))

    assert found["cpu_us_per_request"]["estimate"] == pytest.approx(REQUEST_US, rel=1e-4)
    assert found["cpu_us_per_request_reason"] is None


def test_the_interval_covers_the_known_cost_as_often_as_it_says() -> None:
    rng = np.random.default_rng(3)
    runs, covered = 400, 0
    for _ in range(runs):
        low, high = request_cost(churn_blocks(16, rng), rng)["cpu_us_per_request"]["ci95"]
        covered += low <= REQUEST_US <= high

    assert 0.88 <= covered / runs <= 0.99


@pytest.mark.parametrize(
    ("rounds", "fixed", "reason"),
    [
        (0, {}, "no round counts"),
        (12, {"requests": 0}, OUTSIDE),
        (12, {"chunks": 10_000, "requests": 50}, TOGETHER),
        (2, {}, "2 rounds are too few to tell chunks from requests: it takes more than 2"),
    ],
)
def test_no_figure_without_grounds_but_the_reason(rounds: int, fixed: dict[str, int], reason: str) -> None:
    found = request_cost(churn_blocks(rounds, np.random.default_rng(4), **fixed), np.random.default_rng(5))

    assert found == {"cpu_us_per_request": None, "cpu_us_per_request_reason": reason}


def test_chunks_in_proportion_to_requests_give_no_figure() -> None:
    rng = np.random.default_rng(6)
    blocks = []
    for number in range(12):
        record = synthetic_run.block(number, 0, "on", "on", 0, CHUNK_US, rng)
        requests = int(rng.poisson(60))
        record |= {"requests": requests, "chunks": 200 * requests, "cpu_ns": round(requests * rng.normal(9e6, 1e5))}
        blocks.append(Block.from_record(record))

    assert request_cost(blocks, rng) == {"cpu_us_per_request": None, "cpu_us_per_request_reason": TOGETHER}


def test_three_rounds_give_an_estimate_without_an_interval() -> None:
    figure = request_cost(churn_blocks(3, np.random.default_rng(7)), np.random.default_rng(8))["cpu_us_per_request"]

    assert figure["ci95"] is None


def test_each_arm_of_a_compare_has_its_own_cost_in_result_text_and_report(tmp_path: Path) -> None:
    result = fold(tmp_path, with_churn())

    costs = {name: arm["cpu_us_per_request"]["estimate"] for name, arm in result["arms"].items()}
    assert costs["filter-off"] == pytest.approx(900.0, rel=1e-3)
    assert costs["filter-on"] == pytest.approx(700.0, rel=1e-3)
    text = " ".join(render_text(result, None).split())
    assert "CPU per request, its chunks not counted: filter-off 900 us [900, 900];" in text
    report = write_report(tmp_path / "run", result).read_text()
    assert "filter-off 900\u00a0µs [900, 900]" in report
    assert "<td>900</td><td>[900.00, 900.00]</td>" in report


def test_a_compare_of_standing_streams_says_why_it_has_none(tmp_path: Path) -> None:
    result = fold(tmp_path, synthetic_run.compare_run())

    assert {arm["cpu_us_per_request_reason"] for arm in result["arms"].values()} == {OUTSIDE}
    assert f"CPU per request is not known: {OUTSIDE}." in " ".join(render_text(result, None).split())


def test_a_run_says_why_it_has_none(tmp_path: Path) -> None:
    relay = fold(tmp_path, synthetic_run.load_run())["orchestrator"]

    assert relay["cpu_us_per_request"] is None
    assert relay["cpu_us_per_request_reason"].startswith("a run's one-second samples hold CPU but no counts")


def test_an_arm_without_a_figure_is_named_beside_those_with_one() -> None:
    known = {"cpu_us_per_request": {"estimate": 700.4, "ci95": None}, "cpu_us_per_request_reason": None}
    unknown = {"cpu_us_per_request": None, "cpu_us_per_request_reason": OUTSIDE}

    assert request_cost_sentence({"a": known, "b": unknown}) == (
        f"CPU per request, its chunks not counted: a 700 us (too few rounds for an interval); b not known ({OUTSIDE})."
    )
