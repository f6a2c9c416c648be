"""The figures of one probe, from two workers' blocks and two readings."""

from __future__ import annotations

import dataclasses

import pytest

from loadtest.experiment.blocks import Block
from loadtest.experiment.capacity_figures import Reading, probe_figures
from sim.core.histogram import LogHistogram

S = 1_000_000_000


def histogram(*values_ms):
    made = LogHistogram()
    for value_ms in values_ms:
        made.record_ns(round(value_ms * 1e6))
    return made


def block(chunks, cpu_s, lag_ms, **changes):
    whole = dict.fromkeys((field.name for field in dataclasses.fields(Block)), 0)
    made = {
        **whole,
        "wall_ns": 2 * S,
        "chunks": chunks,
        "events": chunks,
        "reads": chunks // 2,
        "cpu_ns": round(cpu_s * S),
        "lag": histogram(*[1.0] * 98, *[lag_ms] * 2),
        "lag_kernel": histogram(*[0.0] * 100),
        "requests": 7,
        "live_streams": 500,
    }
    return Block(**{**made, **changes})


def reading(t_s, tokens, itl, ttft, lag, failed=0, cpu=(0.0, 0.0)):
    return Reading(
        t_s=t_s,
        gen_t_s=t_s + 7.0,
        gen={
            "tokens": tokens,
            "pacing": {"tokens_due": tokens + 10, "lateness": histogram(*[1.0] * max(1, tokens // 1000)).to_json()},
        },
        standing={"streams": {"live": 1000, "failed": {"cut": failed}}, "itl": itl.to_json()},
        standing_lag=lag,
        short={"streams": {"live": 2, "failed": {}}, "ttft": ttft.to_json()},
        cpu_s={"gen0": cpu[0], "load": cpu[1]},
    )


def figures(*, share=False, lockstep=False, **changes):
    before = reading(100.0, 5_000, histogram(400, 400), histogram(900), histogram(80))
    after = reading(
        102.0,
        45_000,
        histogram(400, 400, 50, 60),
        histogram(900, 20, 30),
        histogram(80, 2),
        failed=changes.pop("failed", 0),
        cpu=(0.8, 0.6),
    )
    blocks = {"orchestrator0": block(15_000, 0.6, 8.0), "orchestrator1": block(25_000, 1.0, 20.0, **changes)}
    return probe_figures(
        20_000.0, 1000, blocks, before, after, tokens_per_chunk=1, lockstep=lockstep, workers_share_cpu=share
    )


def test_counts_are_summed_and_lag_is_the_worst_workers():
    found = figures()

    assert found["chunks_per_s"] == 20_000
    assert found["relayed_share"] == 1.0
    assert found["cpu_us_per_chunk"] == pytest.approx(40.0)
    assert (found["cpu_share"], found["busiest_core_share"]) == (pytest.approx(0.8), pytest.approx(0.5))
    assert found["lag_p99_s"] == pytest.approx(0.020, rel=0.016)
    assert found["events_per_read"] == 2.0
    assert found["streams_by_worker"] == {"orchestrator0": 500, "orchestrator1": 500}
    assert found["requests"] == 14


def test_workers_on_one_cpu_make_one_busy_core():
    assert figures(share=True)["busiest_core_share"] == pytest.approx(0.8)


def test_client_and_gen_figures_are_of_the_time_in_between_alone():
    found = figures()

    assert found["step_s"] == 0.05
    assert found["itl_p99_s"] == pytest.approx(0.060, rel=0.016)  # not 400 ms, which came before
    assert found["ttft_p95_s"] == pytest.approx(0.030, rel=0.016)
    assert found["ttft_n"] == 2
    assert found["load_lag_p99_s"] == pytest.approx(0.002, rel=0.016)
    assert (found["due_tokens"], found["gen_due_share"], found["gen_written_share"]) == (40_000, 1.0, 1.0)
    assert found["gen_late_p99_s"] == pytest.approx(0.001, rel=0.016)
    assert (found["gen_cpu_share"], found["load_cpu_share"]) == (pytest.approx(0.4), pytest.approx(0.3))
    assert found["failed_streams"] == 0
    assert figures(failed=3)["failed_streams"] == 3


def test_in_lockstep_a_step_more_or_less_is_no_shortfall():
    assert figures()["uneven_share"] == 0.0
    assert figures(lockstep=True)["uneven_share"] == 0.025


def test_what_waits_most_counts():
    assert figures(run_queue_wait_ns=S)["run_queue_wait_share"] == 0.5
    assert figures(steal_share=0.2)["steal_share"] == 0.2
