"""The document and the table of targets, from the results of a run that is made up."""

from __future__ import annotations

import re

import pytest

from bench.document import BEGIN, END, render, replaced
from bench.figures import Cells
from bench.targets import verdicts
from tests.bench_results import LEAD, cell, manifest, results, row


def targets(cells=None, **elsewhere):
    return {row.figure: row for row in verdicts(Cells(results() if cells is None else cells), LEAD, elsewhere)}


@pytest.mark.parametrize(
    ("figure", "measured", "met"),
    [
        (f"`{LEAD}` / nginx, CPU per token", "1.11 (1.11-1.11)", "yes"),
        (f"`{LEAD}` / FastAPI + aiohttp in TRT-LLM's shape", "0.42 (0.42-0.42)", "yes"),
        (f"`{LEAD}` / `stream+parse`", "0.40 (0.40-0.40)", "yes"),
        (f"`{LEAD}` / sglang-router and / vllm-router", "0.80 (0.80-0.80) and 0.83 (0.83-0.83)", "yes"),
        (f"user instructions per chunk, `{LEAD}`", "7,900", "yes, the aim too"),
        ("system calls per token", "2.16", "yes"),
        ("highest rate of one core, added p99 < 50 ms, tok/s", ">= 40k, generator-bound", "yes"),
        ("gen / relay, CPU per token", "0.50 (0.50-0.50)", "yes, the aim too"),
        ("Locust load / relay, CPU per token", "0.55 (0.55-0.55)", "yes, the aim too"),
        ("whole chain, 3,000 streams, 15k tok/s, added p99, ms", "0.60 (0.60-0.60)", "yes"),
        ("whole chain, 3,000 streams, 30k tok/s, added p99, ms", "0.60 (0.60-0.60)", "yes"),
        ("memory per stream at 3,000, relay, KB", "25.00 (25.00-25.00)", "yes, the aim too"),
        ("two-hop request, orchestrator CPU, ms", "0.66 (0.55-0.79)", "no"),
        ("the same with a prompt of 40k tokens, ms", "4.20 (3.50-5.04)", "no"),
        ("`make compare`: mde, % of cost per chunk", "-", "-"),
    ],
)
def test_every_target_has_its_value_and_whether_it_is_met(figure, measured, met):
    found = targets(instructions=7900.0)[figure]

    assert (found.measured, found.met) == (measured, met)


def test_a_target_that_was_not_measured_is_neither_met_nor_missed():
    for found in targets(cells=[]).values():
        assert found.met == "-"


def test_a_rival_that_is_cheaper_is_told():
    cells = results()
    for one in cells:
        if one["name"] == "vllm-router":
            one["processes"]["relay"]["cpu_us_per_token"] *= 0.7

    assert targets(cells)[f"`{LEAD}` / sglang-router and / vllm-router"].met == "no"


def test_a_limit_that_the_generator_set_below_the_target_is_not_the_relays():
    cells = [one for one in results() if one["table"] != "capacity"]
    climb = {"highest_tok_s": 25_000, "bound": "generator", "steps": []}

    found = targets([*cells, row("capacity", "climb", LEAD, 0, climb)])

    rate = found["highest rate of one core, added p99 < 50 ms, tok/s"]
    assert (rate.measured, rate.met) == (">= 25k, generator-bound", "not known: generator-bound")


def table_of(document, title):
    section = document.split(f"## {title}")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[column.strip() for column in line.strip("|").split("|")] for line in (lines[0], *lines[2:])]


def test_the_document_shows_every_relay_with_its_ratio_and_added_latency():
    head, *rows = table_of(render(manifest(), results()), "Relays, 1,000 x 15 tok/s")

    found = {line[0]: dict(zip(head, line, strict=True)) for line in rows}
    assert found["direct"]["added p99, ms"] == "0.40 (0.40-0.40) in all"
    assert found["nginx"]["CPU us/token"] == "21.6 (18.0-25.9)"
    ours = found[f"`{LEAD}`"]
    assert (ours["CPU us/token"], ours["/ nginx"]) == ("24.0 (20.0-28.8)", "1.11 (1.11-1.11)")
    assert (ours["added p50, ms"], ours["added p99, ms"]) == ("0.20 (0.20-0.20)", "0.60 (0.60-0.60)")
    assert (ours["system calls/token"], ours["events/read"], ours["streams"]) == (
        "2.16",
        "1.00 (1.00-1.00)",
        "all right",
    )
    assert found["nginx"]["events/read"] == "-"


def test_the_other_tables_hold_what_was_measured():
    document = render(manifest(), results())

    assert table_of(document, "The highest rate")[1] == [
        LEAD,
        ">= 40k, generator-bound",
        "45,000 tok/s: 44,000 tok/s arrived; the fakes' core is 99% busy",
    ]
    wide = table_of(document, "The whole chain")[1]
    assert wide[0] == "15,000"
    assert wide[5] == "0.77 (0.65-0.93)"  # sum of cores: 10 + 11 + 22 us at 15,000 tok/s, and dearer by pass
    assert table_of(document, "Gen servers")[2][:3] == ["aiohttp write", "36.0 (30.0-43.2)", "3.00 (3.00-3.00)"]
    assert table_of(document, "Load clients")[2][:3] == ["HttpUser", "52.8 (44.0-63.4)", "4.00 (4.00-4.00)"]
    assert table_of(document, "Requests")[1][3] == "660 (550-792)"
    assert "- aiperf-mock-server: is not installed; python -m pip install aiperf-mock-server" in document
    assert "Some CPU, 2 CPUs, 8 GiB, Linux 6.1" in document
    assert "Others: nginx 1.22.1." in document


def test_what_was_lost_behind_or_could_not_be_measured_is_in_its_row():
    relay = {"gen": 10.0, "client": 11.0, "relay": 50.0}
    cells = [
        row("relay", "dense", "a", 0, cell(relay, lost="tokens: gen 10, client 9")),
        row("relay", "dense", "b", 0, cell(relay, behind=True, tok_s=8100.0)),
        row("relay", "dense", "d", 0, cell(relay, open_streams=700, streams=1000)),
        row("relay", "dense", "c", 0, {"problem": "c ended with code 1; its last words (/home/x/log.txt):\n  a | b"}),
    ]

    rows = table_of(render(manifest(), cells), "Relays, 1,000 x 15 tok/s")

    assert [line[-1] for line in rows[1:]] == [
        "tokens: gen 10, client 9",
        "behind: 8,100 tok/s arrived",
        "only 700 of 1,000 streams were open in time",
        "c ended with code 1",
    ]
    assert rows[4][1] == "-"


def test_a_run_that_was_interrupted_or_disturbed_says_so_first():
    cells = results()
    cells[3]["processes"]["relay"]["wait_share"] = 0.31

    head = render(manifest(interrupted=True, quick=True, pinned=False), cells).split("## ")[0]

    assert "interrupted" in head
    assert "quick run" in head
    assert "Nothing was pinned" in head
    assert "in 1 of" in head
    assert "31%" in head


def test_a_quick_run_meets_no_target():
    rows = table_of(render(manifest(quick=True), results()), "Speed to reach")

    assert {line[-1] for line in rows[1:]} == {"-"}


def test_a_run_without_a_single_cell_still_gives_a_document():
    document = render(manifest(interrupted=True), [])

    assert document.count("Not measured in this run.") == 6


def test_no_path_gets_into_the_document():
    assert re.findall(r"(?<![\w.])/(?:home|tmp|root|work|usr)/", render(manifest(), results())) == []


def test_only_the_benchs_part_of_a_document_is_replaced():
    fresh = replaced("", "one\n")
    other = f"# Benchmarks\n\nInstructions.\n\n{BEGIN}\nold\n{END}\n\nMore.\n"

    assert fresh == f"# Benchmarks\n\n{BEGIN}\none\n{END}\n"
    assert replaced(fresh, "two") == f"# Benchmarks\n\n{BEGIN}\ntwo\n{END}\n"
    assert replaced(other, "new") == f"# Benchmarks\n\nInstructions.\n\n{BEGIN}\nnew\n{END}\n\nMore.\n"
    assert replaced("# Benchmarks\n\nInstructions.\n", "new") == (
        f"# Benchmarks\n\nInstructions.\n\n{BEGIN}\nnew\n{END}\n"
    )
