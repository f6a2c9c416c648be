"""What a probe means: every key of the objective, who is to blame, and how an objective is written."""

from __future__ import annotations

import pytest

from loadtest.experiment.capacity_slo import FAIL, PASS, UNATTRIBUTABLE, Outcome, Slo, judge_probe, parse_slo
from tests.capacity_runs import probe

RATE = 20_000


def test_a_healthy_probe_holds():
    assert judge_probe(probe(RATE), Slo()) == Outcome(PASS)


@pytest.mark.parametrize(
    ("changes", "by"),
    [
        ({"lag_p99_s": 0.0501}, ("slo:lag",)),
        ({"itl_p99_s": 1000 / RATE + 0.101}, ("slo:itl",)),
        ({"itl_p99_s": None}, ("slo:itl",)),
        ({"ttft_p95_s": 1.01}, ("slo:ttft",)),
        ({"ttft_p95_s": None}, ("slo:ttft",)),
        ({"relayed_share": 0.96}, ("slo:rate",)),
        ({"failed_streams": 1}, ("slo:loss",)),
        ({"lag_p99_s": 0.2, "failed_streams": 1, "relayed_share": 0.5}, ("slo:lag", "slo:rate", "slo:loss")),
    ],
)
def test_each_breach_is_the_orchestrators_while_all_others_do_their_part(changes, by):
    assert judge_probe(probe(RATE, **changes), Slo()) == Outcome(FAIL, by)


@pytest.mark.parametrize(
    "edge", [{"lag_p99_s": 0.050}, {"ttft_p95_s": 1.0}, {"relayed_share": 0.97}, {"gen_due_share": 0.97}]
)
def test_a_limit_that_is_just_kept_is_kept(edge):
    assert judge_probe(probe(RATE, **edge), Slo()) == Outcome(PASS)


@pytest.mark.parametrize(
    ("changes", "by"),
    [
        ({"gen_cpu_share": 0.91}, "generator"),
        ({"gen_late_p99_s": 0.021}, "generator"),
        ({"load_cpu_share": 0.91}, "load"),
        ({"load_lag_p99_s": 0.021}, "load"),
        ({"run_queue_wait_share": 0.26}, "machine"),
        ({"steal_share": 0.11}, "machine"),
    ],
)
def test_a_breach_while_somebody_else_gave_out_says_nothing_of_the_orchestrator(changes, by):
    broken = probe(RATE, lag_ms=80, busiest_core_share=0.6, **changes)

    assert judge_probe(broken, Slo()) == Outcome(UNATTRIBUTABLE, (by,))
    assert judge_probe({**broken, "busiest_core_share": 0.9}, Slo()) == Outcome(FAIL, ("slo:lag",))
    assert judge_probe({**broken, "lag_p99_s": 0.01}, Slo()) == Outcome(PASS)


def test_a_generator_short_of_its_rate_makes_even_a_pass_worthless():
    assert judge_probe(probe(RATE, gen_due_share=0.969), Slo()) == Outcome(UNATTRIBUTABLE, ("generator",))


def test_a_few_tokens_are_no_shortfall_where_there_are_few():
    few = {"due_tokens": 100, "gen_due_share": 0.78, "relayed_share": 0.78}

    assert judge_probe(probe(RATE, **few), Slo()).state == PASS
    assert judge_probe(probe(RATE, **{**few, "relayed_share": 0.76}), Slo()) == Outcome(FAIL, ("slo:rate",))


def test_a_whole_step_in_lockstep_is_no_shortfall():
    assert judge_probe(probe(RATE, relayed_share=0.90), Slo()).state == FAIL
    assert judge_probe(probe(RATE, relayed_share=0.90, uneven_share=0.08), Slo()).state == PASS


def test_workers_that_share_a_cpu_may_wait_for_one_another():
    broken = probe(RATE, lag_ms=80, busiest_core_share=0.6, run_queue_wait_share=0.4, workers_share_cpu=True)

    assert judge_probe(broken, Slo()) == Outcome(FAIL, ("slo:lag",))


def test_an_objective_is_read_and_keys_left_out_keep_their_defaults():
    assert parse_slo("lag:20") == Slo(lag=20.0)
    assert parse_slo(" itl:5.5  ttft:300 lag:1 ") == Slo(lag=1.0, ttft=300.0, itl=5.5)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "it is empty; give KEY:MS with keys lag, ttft, itl"),
        ("lag", "'lag' is not KEY:MS with one of the keys lag, ttft, itl"),
        ("tpot:5", "'tpot:5' is not KEY:MS"),
        ("lag:", "'lag:': '' is not a number of ms above 0"),
        ("lag:0", "'lag:0': '0' is not a number"),
        ("lag:-1", "'lag:-1': '-1' is not a number"),
        ("lag:nan", "'lag:nan': 'nan' is not a number"),
        ("lag:inf", "'lag:inf': 'inf' is not a number"),
        ("lag:5 lag:6", "lag is given twice"),
    ],
)
def test_what_is_no_objective_is_refused_with_what_is_allowed(text, words):
    with pytest.raises(ValueError, match=words):
        parse_slo(text)
