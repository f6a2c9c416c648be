"""What a terminal shows: the verdict first, every difference in words, never wider than 100 columns."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from loadtest.experiment import sentences
from loadtest.experiment.latency_wording import goodput_sentence
from loadtest.experiment.result import analyze
from loadtest.experiment.sentences import streams_sentence
from loadtest.experiment.text import WIDTH, render_text
from tests.pure.test_result import GOODPUT, capped_run
from tests.synthetic_run import Files, compare_run, equality, histogram, load_run, write


def difference(estimate: float, low: float, high: float, share: float) -> dict[str, Any]:
    return {
        "a": "filter-off",
        "b": "filter-on",
        "withheld": None,
        "significant": not low <= 0 <= high,
        "cpu_us_per_chunk": {"estimate": estimate, "ci95": [low, high], "ci999": [low, high], "mde": 1.0},
        "core_share_at_rate": {"estimate": share},
    }


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (
            difference(5.1, 4.4, 5.8, 0.0785),
            (
                "filter-off costs 5.10 us more CPU per chunk than filter-on [4.40, 5.80], "
                "i.e. 7.8 % of a core at 15,400 tok/s."
            ),
        ),
        (
            difference(-2.0, -3.0, -1.0, -0.0308),
            (
                "filter-off costs 2.00 us less CPU per chunk than filter-on [1.00, 3.00], "
                "i.e. 3.1 % of a core at 15,400 tok/s."
            ),
        ),
        (
            difference(0.2, -0.5, 0.9, 0.003),
            (
                "No difference seen between filter-off and filter-on: +0.20 us of CPU per chunk [-0.50, 0.90]; "
                "an effect of 1.00 us would be seen four times in five."
            ),
        ),
    ],
)
def test_a_difference_in_plain_words(found: dict[str, Any], words: str) -> None:
    assert sentences.difference_sentence(found, 15_400.0) == words


def test_a_withheld_difference_says_why() -> None:
    found = {**difference(1, 0, 2, 0.1), "cpu_us_per_chunk": None, "withheld": "no round counts"}

    assert sentences.difference_sentence(found, 1.0) == "No claim about filter-off against filter-on: no round counts."


def test_too_few_rounds_make_no_claim() -> None:
    found = difference(1.0, 0.0, 2.0, 0.1)
    found["cpu_us_per_chunk"].update({"ci95": None, "ci999": None, "mde": None})

    assert sentences.difference_sentence(found, 1.0) == (
        "filter-off minus filter-on is +1.00 us: too few rounds for an interval, so no claim."
    )
    assert sentences.control_sentence(found) == (
        "A/A control: filter-off against itself differs by +1.00 us; too few rounds for an interval."
    )


def test_the_control_says_whether_it_holds_zero() -> None:
    assert sentences.control_sentence(difference(0.1, -0.5, 0.7, 0.0)).endswith("[-0.50, 0.70] holds zero.")
    assert sentences.control_sentence(difference(0.6, 0.5, 0.7, 0.0)).endswith("leaves out zero.")
    assert sentences.control_sentence(None) == "There is no A/A control to judge the harness by."


def text_of(tmp_path: Path, files: Files) -> str:
    path = write(files, tmp_path / "run")
    return render_text(analyze(path), Path("runs/compare-1/report.html"))


def test_a_compare_tells_verdict_arms_differences_and_where_the_report_is(tmp_path: Path) -> None:
    files = compare_run(("filter-on", "verbatim"), costs_us={"verbatim": 36.0})
    files["equality.json"] = equality(("filter-on", "verbatim"), changed=0)
    files["blocks.jsonl"][0]["chunks"] //= 2

    lines = text_of(tmp_path, files).splitlines()
    text = " ".join(line.strip() for line in lines)

    assert lines[0] == "VERDICT: VALID - this run can be believed"
    assert lines[1].startswith("  note    dead path: over the equality gate's 17 complete streams filter-on's rewrite")
    assert "29 of 30 rounds count (void: missed rate 1)." in text
    assert "filter-on costs" in text
    assert "A/A control: filter-on against itself" in text
    assert "every policy gave the client the same events" in text
    assert "Counters of gen, orchestrator and client agree to the unit." in text
    assert lines[-1] == "report: runs/compare-1/report.html"


def test_reasons_come_before_figures(tmp_path: Path) -> None:
    files = compare_run()
    for block in files["blocks.jsonl"]:
        block["run_queue_wait_ns"] = block["wall_ns"] // 5

    text = text_of(tmp_path, files)

    assert text.startswith("VERDICT: SUSPECT - read the reasons before the figures\n  suspect CPU starvation")


@pytest.mark.parametrize("broken", [False, True], ids=["whole", "broken off"])
def test_no_line_is_wider_than_a_hundred_columns(tmp_path: Path, broken: bool) -> None:
    long_name = "a_rather_long_package_name.policies.of_ours:prefilter_with_a_twist"
    policies = ("filter-off", long_name, "parse-orjson")
    files = compare_run(policies, costs_us={long_name: 39.0})
    for block in files["blocks.jsonl"]:
        block["requests"] = 50 + block["slot"] * 3 + block["round"]
    if broken:
        del files["blocks.jsonl"]

    assert max(map(len, text_of(tmp_path, files).splitlines())) <= WIDTH


def test_a_load_run_tells_latency_processes_and_streams(tmp_path: Path) -> None:
    text = text_of(tmp_path, load_run())

    assert text.startswith("VERDICT: VALID")
    assert "TTFT from planned" in text
    assert "orchestrator" in text
    assert "400 of 400 streams passed every check." in text
    assert max(map(len, text.splitlines())) <= WIDTH


def test_restarts_are_told_as_a_range(tmp_path: Path) -> None:
    path = write(compare_run(seed=1), tmp_path / "run")
    write(compare_run(seed=2), path / "start-2")

    assert "Over 2 process starts, filter-off minus filter-on is" in " ".join(render_text(analyze(path), None).split())


def unwrapped(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize(
    ("waiting", "state", "lead"),
    [(0.004, "VALID", ""), (0.2, "SUSPECT", "read the reasons first: "), (0.4, "VOID", "not to be used: ")],
)
def test_a_claim_of_a_run_in_doubt_is_qualified(tmp_path: Path, waiting: float, state: str, lead: str) -> None:
    files = compare_run()
    for block in files["blocks.jsonl"]:
        block["run_queue_wait_ns"] = round(waiting * block["wall_ns"])
    path = write(files, tmp_path / "run")
    write(compare_run(seed=2), path / "start-2")

    text = render_text(analyze(path), None)

    assert text.startswith(f"VERDICT: {state}")
    assert f"\n{lead}filter-off costs " in text
    assert f"\n{lead}Over 2 process starts" in text


def test_a_load_run_in_doubt_qualifies_its_cost_and_tells_its_rate(tmp_path: Path) -> None:
    files = load_run()
    files["client.json"]["streams"].update({"ok": 380, "failed": {"cut": 20}})

    text = text_of(tmp_path, files)

    assert "\nnot to be used: The orchestrator relayed 40,000 chunks for 400 requests, " in text
    assert "chunks/s on average, at" in unwrapped(text)


def test_transit_is_told_where_gen_stamped_its_events_and_not_a_word_elsewhere(tmp_path: Path) -> None:
    files = load_run()
    assert "transit from gen" not in text_of(tmp_path / "plain", files)

    files["client.json"]["transit"] = histogram(3 * [2_000_000])
    row = next(line for line in text_of(tmp_path, files).splitlines() if line.startswith("transit from gen"))
    assert row.split()[3:] == ["2.00", "ms"] * 5 + ["3"]


def test_the_measured_rate_stands_beside_each_arm(tmp_path: Path) -> None:
    files = compare_run(rounds=8)
    for block in files["blocks.jsonl"]:
        block["chunks"] = round(block["chunks"] * 0.98)

    lines = text_of(tmp_path, files).splitlines()

    head = next(i for i, line in enumerate(lines) if line.startswith("CPU by arm"))
    assert "chunks/s" in lines[head]
    assert all(" 15,092 " in line for line in lines[head + 1 : head + 4])


def test_too_few_rounds_are_told_in_table_and_words(tmp_path: Path) -> None:
    text = text_of(tmp_path, compare_run(rounds=2))

    row = next(line for line in text.splitlines() if line.startswith("filter-off - filter-on"))
    assert row.split()[4] == "-"
    assert row.endswith("too few rounds")
    assert "us: too few rounds for an interval, so no claim." in unwrapped(text)


NOTE = "stepped down from 1,000 to 700 streams (10,780 tok/s): this machine relayed 91 % of the asked rate"


def test_a_note_of_the_run_is_told_in_full_and_changes_no_verdict(tmp_path: Path) -> None:
    files = compare_run()
    files["manifest.json"]["notes"] = [NOTE, "a second one"]

    text = text_of(tmp_path, files)

    assert text.startswith("VERDICT: VALID - this run can be believed\n  note    stepped down from 1,000")
    assert f"note {NOTE} note a second one" in unwrapped(text)


def test_lag_over_the_whole_run_is_labelled_so(tmp_path: Path) -> None:
    assert "lag p99, whole run" in text_of(tmp_path, load_run())


def latency_text(tmp_path: Path, files: Files) -> str:
    text = render_text(analyze(write(files, tmp_path / "run")), None)
    assert all(len(line) <= WIDTH for line in text.splitlines())
    return text


def test_a_cap_is_said_with_what_it_held_back_and_left_unsent(tmp_path: Path) -> None:
    files = capped_run()
    files["client.json"]["streams"]["unsent"] = 12
    text = latency_text(tmp_path, files)
    words = " ".join(text.split())

    assert re.search(r"^held back by the cap( +300.0 ms){5} +100$", text, re.MULTILINE)
    assert (
        "The cap of 10 requests under way held 100 of 400 back, by 300.0 ms at p50, 300.0 ms at p99, 300.0 ms at most. "
        "Latency from planned has that wait, latency from sent and the send lateness have not. 12 that were due got no "
        "slot before the end, and were never sent."
    ) in words
    assert "400 of 400 streams passed every check; 12 were never sent." in words


def test_a_cap_that_held_nothing_back_is_said_too(tmp_path: Path) -> None:
    files = capped_run()
    for line in files["streams.jsonl"]:
        line["ready_ns"] = line["planned_ns"]

    assert "The cap of 10 requests under way held none back." in latency_text(tmp_path, files)


def test_a_closed_loop_is_told_for_what_it_cannot_see(tmp_path: Path) -> None:
    text = latency_text(tmp_path, capped_run(arrivals="closed"))

    assert "Closed loop, 10 requests under way: each was planned for the moment" in text
    assert "coordinated omission" in text
    assert "held back" not in text


def test_goodput_is_a_sentence_with_limits_interval_and_what_was_missed(tmp_path: Path) -> None:
    words = " ".join(latency_text(tmp_path, capped_run(goodput=GOODPUT)).split())

    assert re.search(
        r"Goodput: 75.0 % \[70.5, 79.0\] of 400 streams kept TTFT from planned within 500 ms and E2E from planned "
        r"within 9,000 ms; "
        r"\d+\.\d\d requests/s. Missed: TTFT 90, E2E 20\.",
        words,
    )
    assert goodput_sentence(None, "valid") is None
    nothing = {"limits": {"ttft_ms": 1.0, "itl_ms": None, "e2e_ms": None}, "share": None}
    assert goodput_sentence(nothing, "valid") == "Goodput (TTFT from planned within 1 ms): no stream to judge by."


def test_the_goodput_of_a_void_run_is_not_to_be_quoted(tmp_path: Path) -> None:
    files = capped_run(goodput=GOODPUT)
    files["manifest.json"]["failure"] = "gen0 died"

    assert "not to be used: Goodput: 75.0 %" in latency_text(tmp_path, files)


def test_gaps_between_chunks_have_a_row_only_where_they_are_not_the_tokens(tmp_path: Path) -> None:
    one = load_run()
    several = load_run()
    several["client.json"]["chunks"] //= 4
    for files in (one, several):
        files["client.json"]["inter_chunk"] = histogram([4_000_000])

    assert "between chunks" not in latency_text(tmp_path / "one", one)
    assert re.search(r"^between chunks +4.00 ms", latency_text(tmp_path / "several", several), re.MULTILINE)


def test_streams_lost_with_a_worker_are_told_beside_what_became_of_the_others() -> None:
    streams = {"planned": 30, "started": 26, "ok": 19, "failed": {"cut": 1}, "aborted": 0, "unsent": 0, "lost": 10}

    assert streams_sentence({**streams, "started": 0}) == "No stream was started."
    assert streams_sentence({**streams, "started": 0, "planned": None}) == "The load left no record of its streams."
    assert streams_sentence(streams) == (
        "19 of 26 streams passed every check; failed: cut 1; 10 were lost with their worker."
    )
