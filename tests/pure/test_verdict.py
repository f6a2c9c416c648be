"""One fact out of line, one reason that names it; nothing out of line, no reason."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from loadtest.experiment.facts import (
    EqualityFacts,
    EvidenceFacts,
    Facts,
    Mismatch,
    ProcessFacts,
    RoundFacts,
    StreamFacts,
)
from loadtest.experiment.stats import Estimate
from loadtest.experiment.verdict import judge

ORCHESTRATOR = ProcessFacts(
    name="orchestrator", role="orchestrator", cpu_share=0.7, loop_cpu_share=0.69, run_queue_wait_share=0.003,
    throttled_share=0.0,
)  # fmt: skip
GEN = ProcessFacts(
    name="gen0", role="gen", cpu_share=0.25, run_queue_wait_share=0.02, lateness_p99_s=0.003, delivered_share=0.9998
)
CTX = ProcessFacts(name="ctx0", role="ctx", cpu_share=0.02, run_queue_wait_share=0.02, lateness_p99_s=0.002)
LOAD = ProcessFacts(
    name="load", role="load", cpu_share=0.3, run_queue_wait_share=0.03, late_second_share=0.0, lateness_p99_s=0.002
)
QUIET = Facts(
    processes=(ORCHESTRATOR, GEN, CTX, LOAD),
    steal_share=0.0006,
    kernel_lag_share=0.05,
    streams=StreamFacts(started=1000, failed={}),
    rounds=RoundFacts(
        planned=40,
        used=39,
        void={"missed_rate": 1},
        void_by_arm={"off": 1, "on": 0, "off:again": 0},
        control=Estimate(0.1, 0.3, (-0.5, 0.7), (-0.9, 1.1), 0.84, 39),
        control_mean_us=45.0,
        events_per_read={"off": 1.0, "on": 1.0, "off:again": 1.001},
        events_per_write=1,
        spin_drift=0.05,
        spin_by_arm={"off": 0.01, "on": -0.01, "off:again": 0.0},
        spin_error=0.005,
    ),
    equality=EqualityFacts(state="equal", streams=17, differences=1),
)


def with_process(name: str, **changes: Any) -> Facts:
    changed = tuple(dataclasses.replace(p, **changes) if p.name == name else p for p in QUIET.processes)
    return dataclasses.replace(QUIET, processes=changed)


def with_rounds(**changes: Any) -> Facts:
    assert QUIET.rounds is not None
    return dataclasses.replace(QUIET, rounds=dataclasses.replace(QUIET.rounds, **changes))


def with_facts(**changes: Any) -> Facts:
    return dataclasses.replace(QUIET, **changes)


def with_gate(**changes: Any) -> Facts:
    return with_facts(equality=EqualityFacts(**{"streams": 17, "differences": 1, **changes}))


def control(value: float, low: float, high: float) -> Estimate:
    return Estimate(value, 0.1, (low, high), (low, high), 0.3, 39)


def test_a_quiet_run_is_valid_and_has_no_reasons() -> None:
    verdict = judge(QUIET)

    assert verdict.state == "valid"
    assert verdict.reasons == ()


def with_evidence(**changes: Any) -> Facts:
    return with_facts(evidence=EvidenceFacts(**changes))


CASES = [
    (with_evidence(client=False), "client_missing", "void", "client.json is missing: the load ended before it wrote"),
    (with_facts(streams=StreamFacts(started=0, failed={})), "no_streams", "void", "no stream was started"),
    (
        with_evidence(unsampled=("orchestrator", "gen0")),
        "samples_missing",
        "suspect",
        "no per-second samples of orchestrator, gen0",
    ),
    (with_evidence(uncounted=("gen0",)), "counters_missing", "suspect", "no counters of gen0"),
    (
        with_evidence(unreconciled="counters_before.json is missing"),
        "not_reconciled",
        "suspect",
        "could not be held against one another: counters_before.json is missing",
    ),
    (
        with_evidence(ended=990, servers_started=1000),
        "streams_without_end",
        "suspect",
        "only 990 of the 1,000 streams that the servers started have an outcome",
    ),
    (
        with_facts(streams=StreamFacts(started=1000, failed={}, aborted=12)),
        "streams_aborted",
        "suspect",
        "12 streams were aborted before their end, though nobody interrupted the run",
    ),
    (
        with_process("orchestrator", run_queue_wait_share=0.051),
        "orchestrator_cpu_starvation",
        "suspect",
        "CPU starvation: the orchestrator",
    ),
    (
        with_process("orchestrator", run_queue_wait_share=0.26),
        "orchestrator_cpu_starvation",
        "void",
        "26 % of the time (limit 25 %)",
    ),
    (
        with_process("orchestrator", throttled_share=0.01),
        "orchestrator_throttled",
        "suspect",
        "a CPU quota held the orchestrator back 1 %",
    ),
    (with_process("orchestrator", loop_cpu_share=0.93), "orchestrator_saturated", "suspect", "core is saturated"),
    (with_process("orchestrator", loop_cpu_share=0.99), "orchestrator_saturated", "void", "ran 99 % of the time"),
    (
        with_process("gen0", run_queue_wait_share=0.41),
        "gen_cpu_starvation",
        "suspect",
        "CPU starvation: the gen server gen0",
    ),
    (
        with_process("gen0", delivered_share=0.98),
        "gen_rate",
        "suspect",
        "gen0 could not hold its rate: it delivered 98 %",
    ),
    (with_process("gen0", delivered_share=0.9), "gen_rate", "void", "90 % of the asked token rate"),
    (with_process("gen0", cpu_share=0.81), "gen_cpu", "suspect", "the gen server gen0 used 81 % of a core"),
    (
        with_process("gen0", lateness_p99_s=0.021),
        "gen_lateness",
        "suspect",
        "tokens went out 21.0 ms after their time at p99",
    ),
    (with_process("gen0", lateness_p99_s=0.6), "gen_lateness", "void", "gen0 was late"),
    (with_process("ctx0", cpu_share=0.96), "ctx_cpu", "void", "the ctx server ctx0 used 96 % of a core"),
    (with_process("ctx0", lateness_p99_s=0.05), "ctx_lateness", "suspect", "prefill answers went out 50.0 ms"),
    (
        with_process("ctx0", run_queue_wait_share=0.5),
        "ctx_cpu_starvation",
        "suspect",
        "the ctx server ctx0 was ready to run",
    ),
    (
        with_process("load", run_queue_wait_share=0.7),
        "load_cpu_starvation",
        "void",
        "CPU starvation: the load generator (Locust)",
    ),
    (with_process("load", cpu_share=0.9), "load_cpu", "suspect", "the load generator (Locust) used 90 % of a core"),
    (
        with_process("load", lateness_p99_s=0.03),
        "load_lateness",
        "suspect",
        "requests went out 30.0 ms after their time",
    ),
    (
        with_process("load", late_second_share=0.2),
        "load_loop_lag",
        "suspect",
        "more than 50 ms late in 20 % of the seconds",
    ),
    (with_process("load", throttled_share=0.06), "load_throttled", "void", "held the load generator (Locust) back 6 %"),
    (
        with_facts(processes=(ORCHESTRATOR, GEN, CTX, dataclasses.replace(LOAD, name="load1", cpu_share=0.9))),
        "load_cpu",
        "suspect",
        "the load generator (Locust, worker load1) used 90 % of a core",
    ),
    (
        with_facts(lost_workers={"load1": (1_500, 3_000)}),
        "worker_lost",
        "suspect",
        "the load's worker load1 was lost: 1,500 of the 3,000 streams of its share have no outcome",
    ),
    (with_facts(steal_share=0.02), "steal", "suspect", "took 2 % of the CPU time"),
    (with_facts(steal_share=0.2), "steal", "void", "took 20 % of the CPU time"),
    (
        with_facts(streams=StreamFacts(started=1000, failed={"cut": 1})),
        "streams_failed",
        "suspect",
        "1 of 1,000 streams failed a check: cut 1",
    ),
    (
        with_facts(streams=StreamFacts(started=1000, failed={"cut": 3, "wrong_usage": 9})),
        "streams_failed",
        "void",
        "wrong_usage 9, cut 3",
    ),
    (
        with_facts(mismatches=(Mismatch("chunks", {"gen": 924_000, "client": 923_999}),)),
        "counters_differ",
        "suspect",
        "chunks (gen 924,000, client 923,999)",
    ),
    (
        with_facts(mismatches=(Mismatch("chunks", {"gen": 1000, "client": 900}),)),
        "counters_differ",
        "void",
        "counters are not equal",
    ),
    (
        with_facts(mismatches=(Mismatch("chunks", {"gen": 1000, "client": 900}),), interrupted=True),
        "counters_differ",
        "suspect",
        "client 900",
    ),
    (with_rounds(used=7), "too_few_rounds", "suspect", "7 of 40 count (at least 8 needed); void: missed rate 1"),
    (with_rounds(used=5), "too_few_rounds", "void", "5 of 40 count (at least 6 needed)"),
    (with_rounds(used=0, control=None), "too_few_rounds", "void", "0 of 40 count"),
    (
        with_rounds(control=control(0.5, 0.1, 0.9)),
        "control_excludes_zero",
        "suspect",
        "A/A control: the same policy against itself differs by +0.50 us",
    ),
    (with_rounds(control=control(1.0, 0.1, 1.9)), "control_excludes_zero", "void", "the harness favours an arm"),
    (
        with_rounds(events_per_read={"off": 1.2, "on": 1.19}),
        "batching",
        "suspect",
        "overload turned into batching: 1.20 events per read under off",
    ),
    (with_rounds(events_per_read={"off": 2.1, "on": 2.1}), "batching", "void", "2.10 events per read"),
    (
        with_rounds(events_per_read={"off": 1.06, "on": 1.0}),
        "batching_by_arm",
        "suspect",
        "events per read differ by arm (off 1.06, on 1.00) over all blocks, the void ones too",
    ),
    (with_rounds(void_by_arm={"off": 6, "on": 1}), "void_imbalance", "suspect", "6 blocks of off, 1 of on"),
    (with_rounds(spin_drift=0.3), "spin_drift", "suspect", "the machine's own speed moved by 30 %"),
    (
        with_rounds(spin_by_arm={"off": 0.08, "on": 0.0}),
        "spin_by_arm",
        "suspect",
        "the machine ran 8 % slower in the blocks of off",
    ),
    (with_rounds(spin_by_arm={"off": 0.0, "on": -0.08}), "spin_by_arm", "suspect", "8 % faster in the blocks of on"),
    (with_facts(interrupted=True), "interrupted", "suspect", "the run was interrupted"),
    (with_facts(failure="gen0 was killed by SIGKILL"), "process_failed", "void", "gen0 was killed by SIGKILL"),
    (with_facts(other_starts={"start-2": "void"}), "other_start", "suspect", "start-2, is void"),
    (with_gate(state="not_run"), "equality_not_run", "suspect", "the equality gate did not run"),
    (
        with_gate(state="differs", differing={"on": "case escaped, event 3"}, withheld=1),
        "equality_differs",
        "void",
        "the output of on differs from the reference: no claim about its speed (case escaped, ",
    ),
    (
        with_gate(state="differs", differing={"on": "case x"}, withheld=2, differences=3),
        "equality_differs",
        "suspect",
        "the output of on differs",
    ),
]


@pytest.mark.parametrize(
    ("facts", "code", "state", "words"), CASES, ids=[f"{c[1]}-{c[2]}-{i}" for i, c in enumerate(CASES)]
)
def test_one_fact_out_of_line_gives_its_reason_alone(facts: Facts, code: str, state: str, words: str) -> None:
    verdict = judge(facts)
    reason = next(reason for reason in verdict.reasons if reason.code == code)

    assert {reason.code for reason in verdict.reasons} <= {code, "interrupted"}
    assert reason.state == state
    assert words in reason.text
    assert verdict.state == state


NOTES = [
    (
        with_gate(state="equal", dead_path=("prefilter",)),
        "17 complete streams prefilter's rewrite changed 0 events, so the policy sits on a dead path",
    ),
    (with_facts(kernel_lag_share=0.4), "40 % of the loop's lateness was the kernel's"),
    (with_facts(notes=("stepped down from 15,400 to 8,000 tok/s",)), "stepped down from 15,400"),
]


@pytest.mark.parametrize(("facts", "words"), NOTES)
def test_a_note_is_told_and_changes_no_verdict(facts: Facts, words: str) -> None:
    verdict = judge(facts)

    assert verdict.state == "valid"
    assert [reason.state for reason in verdict.reasons] == ["note"]
    assert words in verdict.reasons[0].text


LIMITS_NOT_PASSED = [
    with_evidence(ended=1000, servers_started=1000),
    with_rounds(control=None),
    with_rounds(control=Estimate(9.0, 1.0, None, None, 2.8, 39)),
    with_process("orchestrator", run_queue_wait_share=0.05, loop_cpu_share=0.92),
    with_process("gen0", delivered_share=0.986, lateness_p99_s=0.02, cpu_share=0.8),
    with_process("gen0", delivered_share=1.02),
    with_process("load", late_second_share=0.1),
    with_rounds(used=8),
    with_rounds(control=control(0.5, -0.1, 1.1)),
    with_rounds(events_per_read={"off": 1.1, "on": 1.08}),
    with_rounds(events_per_read={"off": 4.3, "on": 4.3}, events_per_write=4),
    with_rounds(void_by_arm={"off": 3, "on": 0}),
    with_rounds(spin_by_arm={"off": 0.08}, spin_error=0.03),
    with_facts(streams=None, steal_share=None, kernel_lag_share=None, processes=(), rounds=None, equality=None),
]


@pytest.mark.parametrize("facts", LIMITS_NOT_PASSED)
def test_a_limit_reached_but_not_passed_is_no_reason(facts: Facts) -> None:
    assert judge(facts).reasons == ()


def test_streams_aborted_by_an_interruption_are_no_reason_of_their_own() -> None:
    facts = with_facts(streams=StreamFacts(started=10, failed={}, aborted=4), interrupted=True)

    assert [reason.code for reason in judge(facts).reasons] == ["interrupted"]


def test_counters_that_differ_because_a_worker_died_void_nothing() -> None:
    mismatch = Mismatch("replies", {"gen": 300, "orchestrator": 300, "client": 200})
    facts = with_facts(mismatches=(mismatch,))
    assert judge(facts).state == "void"

    verdict = judge(dataclasses.replace(facts, lost_workers={"load2": (100, 100)}))
    assert (verdict.state, [reason.code for reason in verdict.reasons]) == (
        "suspect",
        ["worker_lost", "counters_differ"],
    )


def test_reasons_stand_by_weight_void_first() -> None:
    facts = dataclasses.replace(
        with_process("orchestrator", run_queue_wait_share=0.1),
        steal_share=0.3,
        interrupted=True,
        streams=StreamFacts(started=10, failed={"cut": 5}),
        kernel_lag_share=0.9,
    )

    verdict = judge(facts)

    assert [(reason.code, reason.state) for reason in verdict.reasons] == [
        ("steal", "void"),
        ("streams_failed", "void"),
        ("orchestrator_cpu_starvation", "suspect"),
        ("interrupted", "suspect"),
        ("kernel_lag", "note"),
    ]
    assert verdict.state == "void"


def test_a_reason_is_json_with_code_state_text_and_figure() -> None:
    [reason] = judge(with_facts(steal_share=0.02)).to_json()["reasons"]

    assert reason == {
        "code": "steal",
        "state": "suspect",
        "text": "the hypervisor took 2 % of the CPU time away (limit 1 %)",
        "figure": 0.02,
    }
