"""`disagg-sim micro`: what the timed process hands over, how its figures become cells, and the table."""

from __future__ import annotations

import json

import pytest

from loadtest.experiment.micro import check, fold
from loadtest.experiment.micro_text import render_micro
from loadtest.experiment.options import USAGES, parser
from sim.core.settings import SettingError
from sim.orchestrator import chunk_timer
from sim.orchestrator.arms import build_arms
from sim.orchestrator.policies import BUILTIN


def sample(policy="parse", usage="absent", size=258, cost=4.0, process=0, wait=0.01):
    return {
        "policy": policy,
        "usage": usage,
        "size": size,
        "process": process,
        "chunk_bytes": size,
        "us_per_chunk": cost,
        "changed_share": 0.0,
        "run_queue_wait_share": wait,
    }


def manifest(**changes):
    base = {"policies": ["parse", "a:b"], "usage": ["absent", "final"], "sizes": [258, 4096], "processes": 3}
    return {**base, "interrupted": False, **changes}


SAMPLES = [
    *(sample(cost=cost, process=n) for n, cost in enumerate([4.0, 9.0, 5.0])),
    *(sample("a:b", cost=0.26, process=n) for n in range(2)),
    sample(size=4096, cost=123.456),
    sample(usage="final", cost=12.345),
]


def test_a_cell_is_the_median_over_its_processes_with_the_lowest_and_the_highest():
    cells = fold(manifest(), SAMPLES)["cells"]

    assert [(cell["policy"], cell["usage"], cell["size"], cell["processes"]) for cell in cells] == [
        ("parse", "absent", 258, 3),
        ("parse", "absent", 4096, 1),
        ("a:b", "absent", 258, 2),
        ("parse", "final", 258, 1),
    ]
    assert cells[0]["us_per_chunk"] == {"median": 5.0, "low": 4.0, "high": 9.0}
    assert cells[0]["core_share_at_rate"] == pytest.approx(0.077)
    assert cells[-1]["core_share_at_rate"] is None  # one such event a stream


def test_processes_that_waited_for_a_cpu_are_counted():
    waits = [0.01, 0.04, 0.06, 0.5]
    processes = fold(manifest(), [sample(process=n, wait=wait) for n, wait in enumerate(waits)])["processes"]

    assert processes["run_queue_wait_share"] == {"median": 0.05, "high": 0.5}
    assert processes["waited"] == 0.5
    assert processes["measured"] == 4


def test_the_table_shows_every_cell_beside_the_figures_of_the_seed():
    lines = render_micro(fold(manifest(), SAMPLES)).splitlines()

    assert "3.46" in lines[1]
    assert "0.25" in lines[1]
    rows = {line.split()[0]: line.split(None, 1)[1] for line in lines if line.startswith(("parse ", "a:b "))}
    assert rows["a:b"].split("  ")[0] == "0.26 [0.26, 0.26]"
    assert rows["a:b"].split() == ["0.26", "[0.26,", "0.26]", "-", "0.40", "%"]
    assert "  123 [123, 123]" in next(line for line in lines if line.startswith("parse "))
    assert rows["parse"] == "12.3 [12.3, 12.3]"  # the last: the closing event
    assert max(map(len, lines)) <= 101
    assert "busy" not in "".join(lines)
    assert "Interrupted" not in "".join(lines)


def test_the_table_says_what_is_in_the_way():
    result = fold(manifest(interrupted=True), [sample(wait=0.2), sample(process=1)])
    text = render_micro(result)

    assert "busy: 50 % of the figures" in text
    assert "most 20 %" in text
    assert "Interrupted" in text


def test_a_policy_named_twice_is_refused():
    check(["filter-on", "parse"])
    with pytest.raises(SettingError, match="parse is named twice"):
        check(["parse", "filter-on", "parse"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--sizes", "150,big"],
            "'150,big' is not a list of sizes in bytes; allowed: different whole numbers from 150",
        ),
        (["--sizes", "149"], "from 150 to 1048576"),
        (["--sizes", "258,258"], "different whole numbers"),
        (["--usage", "maybe"], "'maybe' is not a list of absent, null, final, continuous"),
        (["--usage", "null,null"], "each at most once"),
        (["--processes", "0"], "'0' is not a whole number, 1 or more"),
    ],
)
def test_a_bad_option_says_what_is_allowed(arguments, message, capsys):
    with pytest.raises(SystemExit) as end:
        parser().parse_args(["micro", *arguments])

    assert end.value.code == 2
    assert message in capsys.readouterr().err


def test_experiment_and_timed_process_mean_the_same_kinds_of_usage():
    assert USAGES == chunk_timer.USAGES


@pytest.mark.parametrize(
    ("usage", "size", "changed"),
    [("absent", 258, 0.0), ("null", 1024, 0.0), ("continuous", 4096, 1.0), ("final", 1, 1.0)],
)
def test_the_timed_chunks_are_of_the_size_and_usage_asked_for(usage, size, changed):
    streams = chunk_timer.streams_of(build_arms(["prefilter"], "prefilter", usage_by_gen=True), usage, size)
    events = [event for _, events in streams for event in events]
    figures = chunk_timer.measure(streams, seconds=0)

    assert len(set(events)) == len(events) == chunk_timer.STREAMS * (1 if usage == "final" else 8)
    assert all(len(event) == size for event in events) or usage == "final"
    assert figures["chunk_bytes"] == len(events[0])
    assert figures["changed_share"] == changed
    assert figures["us_per_chunk"] > 0


def test_a_size_that_no_chunk_can_have_is_left_out(capsys):
    assert chunk_timer.main(["parse", "--usage", "continuous", "--sizes", "150", "1024", "--seconds", "0.001"]) == 0
    assert [figure["size"] for figure in json.loads(capsys.readouterr().out)["figures"]] == [1024]


def test_policies_are_checked_before_anything_is_timed(capsys):
    assert chunk_timer.main(["--check"]) == 0
    assert json.loads(capsys.readouterr().out) == {"policies": list(BUILTIN)}
    assert chunk_timer.main(["--check", "parse", "nope"]) == 2
    assert "unknown policy 'nope'; built-in: parse" in capsys.readouterr().err
