"""What the bench reads: process trees in /proc, perf and strace, counters at both edges, what the client lost."""

from __future__ import annotations

import pytest

from bench.checks import lost_in
from bench.edges import Edge, window_figures
from bench.proc_tree import TreeReading, read_tree, rss_bytes, spent_between, tree_of
from bench.syscalls import parse_perf, parse_strace
from sim.core.histogram import LogHistogram

PERF = "33210,,raw_syscalls:sys_enter,980000000,100.00,,\n"
STRACE = """\
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 60.00    0.011200          12       886        12 recvfrom
 40.00    0.001200          12       114           sendto
------ ----------- ----------- --------- --------- ----------------
100.00    0.012400          12      1000        12 total
"""


def process(proc, pid, tasks, children=(), pages=10):
    """A process in a /proc of ours: ``tasks`` is tid -> (cpu ns, wait ns)."""
    for tid, (cpu_ns, wait_ns) in tasks.items():
        task = proc / str(pid) / "task" / str(tid)
        task.mkdir(parents=True)
        (task / "schedstat").write_text(f"{cpu_ns} {wait_ns} 7\n")
        (task / "children").write_text(" ".join(map(str, children)) if tid == pid else "")
    (proc / str(pid) / "statm").write_text(f"100 {pages} 3 1 0 5 0\n")


def test_a_tree_is_the_process_its_threads_and_all_below_it(tmp_path):
    process(tmp_path, 10, {10: (100, 1), 11: (50, 2)}, children=[20, 21], pages=4)
    process(tmp_path, 20, {20: (7, 3)}, children=[30], pages=2)
    process(tmp_path, 30, {30: (1, 0)}, pages=1)
    process(tmp_path, 40, {40: (9999, 0)})  # nobody's child

    assert sorted(tree_of(10, tmp_path)) == [10, 20, 30]  # 21 has ended
    assert read_tree(10, tmp_path).threads == {
        (10, 10): (100, 1),
        (10, 11): (50, 2),
        (20, 20): (7, 3),
        (30, 30): (1, 0),
    }
    assert rss_bytes(10, tmp_path) == 7 * rss_bytes(30, tmp_path) > 0
    assert read_tree(99, tmp_path) == TreeReading({})


def test_what_was_spent_counts_new_threads_whole_and_ended_ones_not():
    before = TreeReading({(1, 1): (100, 10), (1, 2): (500, 0)})
    after = TreeReading({(1, 1): (160, 15), (1, 3): (7, 2)})

    spent = spent_between(before, after)

    assert (spent.cpu_ns, spent.wait_ns) == (67, 7)


def test_perf_and_strace_say_how_many_calls():
    assert parse_perf(PERF) == 33210
    assert parse_perf("<not counted>,,raw_syscalls:sys_enter,0,100.00,,\n") is None
    assert parse_perf("event syntax error: 'raw_syscalls:sys_enter'") is None
    assert parse_strace(STRACE) == 1000
    assert parse_strace(STRACE.replace("        12 total", "           total")) == 1000
    assert parse_strace("strace: attach: ptrace(PTRACE_SEIZE, 1): Operation not permitted") is None


def gen(tokens, late_ms=()):
    lateness = LogHistogram()
    for late in late_ms:
        lateness.record_ns(int(late * 1e6))
    return {"tokens": tokens, "pacing": {"lateness": lateness.to_json()}}


def edge(at_s, cpu_ms, tokens, client=None, relay=None, late_ms=()):
    """Gen's answer comes 10 ms after the clocks were read, the client's 100 ms."""
    trees = {"relay": TreeReading({(1, 1): (int(cpu_ms * 1e6), 0)})}
    made = Edge(at_ns=int(at_s * 1e9), trees=trees, relay=relay)
    if tokens is not None:
        made.gen = int((at_s + 0.01) * 1e9), gen(tokens, late_ms)
    if client is not None:
        made.client = int((at_s + 0.1) * 1e9), client
    return made


def test_cost_per_token_is_cpu_over_the_tokens_of_the_window():
    first = edge(10, 500, 1000, {"tokens": 990, "chunks": 990}, {"reads": 10, "events": 10}, late_ms=[400])
    last = edge(12, 1100, 31000, {"tokens": 30990, "chunks": 30990}, {"reads": 110, "events": 210}, late_ms=[400, 1, 2])

    figures = window_figures(first, last, asked_tok_s=15_000)

    assert figures["tok_s"] == figures["client_tok_s"] == 15_000
    assert figures["processes"]["relay"] == {"cpu_us_per_token": 20.0, "cpu_share": 0.3, "wait_share": 0.0}
    assert figures["delivered_share"] == figures["gen_share"] == 1.0
    assert figures["events_per_read"] == 2.0
    assert figures["gen_late_p99_s"] == pytest.approx(0.002, rel=0.02)  # what was late before is not counted
    assert figures["behind"] is False


def test_where_the_client_is_behind_its_tokens_count_and_not_those_in_buffers():
    first = edge(10, 0, 0, {"tokens": 0, "chunks": 0})
    last = edge(12, 2000, 30000, {"tokens": 16000, "chunks": 16000})

    figures = window_figures(first, last, asked_tok_s=15_000)

    assert figures["behind"] is True
    assert figures["tok_s"] == 8000
    assert figures["processes"]["relay"]["cpu_us_per_token"] == 125.0


def test_of_a_gen_server_that_is_not_ours_events_with_text_are_counted():
    first = edge(10, 0, None, {"tokens": 0, "chunks": 0})
    last = edge(12, 300, None, {"tokens": 90000, "chunks": 30000})

    figures = window_figures(first, last, asked_tok_s=15_000)

    assert (figures["tok_s"], figures["gen_tok_s"], figures["behind"]) == (15_000, None, False)
    assert figures["processes"]["relay"]["cpu_us_per_token"] == 10.0


def test_nothing_passed_means_no_cost_per_token():
    figures = window_figures(edge(10, 0, 5), edge(12, 300, 5), asked_tok_s=15_000)

    assert figures["processes"]["relay"]["cpu_us_per_token"] is None
    assert figures["events_per_read"] is None


def transits(*ms):
    histogram = LogHistogram()
    for one in ms:
        histogram.record_ns(int(one * 1e6))
    return {"tokens": 0, "chunks": 0, "transit": histogram.to_json() if ms else None}


def test_transit_is_that_of_the_window_alone():
    first, last = edge(10, 0, 0, transits(500, 500)), edge(12, 300, 9, transits(500, 500, 1, 1, 1, 40))

    assert window_figures(first, last, 15_000)["transit_s"] == {
        "p50": pytest.approx(0.001, rel=0.02),
        "p99": pytest.approx(0.04, rel=0.02),
    }
    assert window_figures(edge(10, 0, 0, transits()), last, 15_000)["transit_s"]["p99"] == pytest.approx(0.5, rel=0.02)
    assert window_figures(first, edge(12, 300, 9, transits()), 15_000)["transit_s"] is None
    assert window_figures(edge(10, 0, 0), edge(12, 300, 9), 15_000)["transit_s"] is None


COUNTS = {"tokens": 500, "chunks": 500, "done_events": 10}
STREAMS = {"started": 10, "ok": 10, "failed": {}, "aborted": 0}


@pytest.mark.parametrize(
    ("client", "gen_counts", "lost"),
    [
        ({}, {}, None),
        ({"tokens": 499}, {}, "tokens: gen 500, client 499"),
        ({"streams": {**STREAMS, "started": 9}}, {}, "9 of 10 streams started"),
        ({"streams": {**STREAMS, "failed": {"cut": 2}}}, {}, "2 of the streams: cut"),
        ({"streams": {**STREAMS, "aborted": 3}}, {}, "3 of the streams did not end in time"),
        ({"tokens": 1}, None, None),  # a gen server that is not ours: its counts are not known,
        ({"streams": {**STREAMS, "aborted": 7, "failed": {"wrong_order": 3}}}, None, None),  # nor is its text a count
        ({"streams": {**STREAMS, "failed": {"cut": 1, "wrong_order": 9}}}, None, "1 of the streams: cut"),
    ],
)
def test_what_was_lost_is_said(client, gen_counts, lost):
    counts = None if gen_counts is None else {**COUNTS, **gen_counts}

    assert lost_in({"streams": STREAMS, **COUNTS, **client}, counts, 10) == lost


def test_a_client_without_results_is_a_loss_only_if_it_is_ours():
    assert lost_in(None, COUNTS, 10) == "the client wrote no results"
    assert lost_in(None, COUNTS, 10, our_client=False) is None
