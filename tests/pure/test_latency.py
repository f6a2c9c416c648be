"""Latency models: exact times without jitter, their directions, and the jitter's mean and spread."""

import itertools
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.core.latency import Jitter, prefill_s, step_s, transfer_s
from sim.core.settings import CtxSettings, GenSettings

tokens = st.integers(0, 200_000)
shares = st.floats(0, 1)
slopes = st.floats(0, 10)


@pytest.mark.parametrize(
    ("settings", "uncached", "busy", "expected_s"),
    [
        (CtxSettings(), 0, 0.0, 0.002),
        (CtxSettings(), 1000, 0.0, 0.022),
        (CtxSettings(), 1000, 1.0, 0.022),
        (CtxSettings(overhead_ms=10, prefill_us_per_token=100, load_slope=1), 100, 0.0, 0.02),
        (CtxSettings(overhead_ms=10, prefill_us_per_token=100, load_slope=1), 100, 0.5, 0.03),
        (CtxSettings(overhead_ms=10, prefill_us_per_token=100, load_slope=1), 100, 1.0, 0.04),
        (CtxSettings(overhead_ms=0, prefill_us_per_token=0), 1000, 1.0, 0.0),
        (CtxSettings(overhead_ms=0.001, prefill_us_per_token=0.01), 3, 0.0, 1.03e-6),
    ],
)
def test_a_prefill_takes_overhead_and_uncached_tokens_times_load(settings, uncached, busy, expected_s):
    assert prefill_s(settings, uncached, busy) == pytest.approx(expected_s, rel=1e-12)


@pytest.mark.parametrize(
    ("settings", "prompt", "expected_s"),
    [
        (GenSettings(), 0, 0.001),
        (GenSettings(), 1000, 0.001 + 1000 * 128e3 / 50e9),
        (GenSettings(transfer_base_ms=0, transfer_gb_per_s=1, kv_kb_per_token=100), 10, 0.001),
        (GenSettings(transfer_base_ms=0.05, kv_kb_per_token=0), 10_000, 0.00005),
    ],
)
def test_a_transfer_takes_its_base_and_bytes_over_bandwidth(settings, prompt, expected_s):
    assert transfer_s(settings, prompt) == pytest.approx(expected_s, rel=1e-12)


@pytest.mark.parametrize(
    ("settings", "busy", "expected_s"),
    [
        (GenSettings(), 0.0, 0.065),
        (GenSettings(tok_s=20), 1.0, 0.05),
        (GenSettings(itl_ms=20, load_slope=0.5), 0.0, 0.02),
        (GenSettings(itl_ms=20, load_slope=0.5), 0.5, 0.025),
        (GenSettings(itl_ms=20, load_slope=0.5), 1.0, 0.03),
        (GenSettings(itl_ms=0.25), 0.0, 0.00025),
        (GenSettings(tok_s=8000), 0.0, 0.000125),
    ],
)
def test_a_step_takes_the_inter_token_latency_times_load(settings, busy, expected_s):
    assert step_s(settings, busy) == pytest.approx(expected_s, rel=1e-12)


@given(tokens, tokens, shares, shares, slopes)
def test_more_tokens_or_more_load_never_take_less_time(tokens_a, tokens_b, share_a, share_b, slope):
    ctx, gen = CtxSettings(load_slope=slope), GenSettings(load_slope=slope)
    fewer, more = sorted([tokens_a, tokens_b])
    idler, busier = sorted([share_a, share_b])
    assert prefill_s(ctx, fewer, idler) <= prefill_s(ctx, more, idler)
    assert prefill_s(ctx, fewer, idler) <= prefill_s(ctx, fewer, busier)
    assert step_s(gen, idler) <= step_s(gen, busier)
    assert transfer_s(gen, fewer) <= transfer_s(gen, more)


@given(tokens, slopes)
def test_load_and_its_slope_do_not_move_the_network_term(prompt_tokens, slope):
    assert transfer_s(GenSettings(load_slope=slope), prompt_tokens) == transfer_s(GenSettings(), prompt_tokens)


@given(tokens, shares)
def test_without_a_slope_load_moves_nothing(uncached_tokens, share):
    assert prefill_s(CtxSettings(), uncached_tokens, share) == prefill_s(CtxSettings(), uncached_tokens, 0.0)
    assert step_s(GenSettings(), share) == 0.065


# --- jitter ---


@pytest.mark.parametrize("seed", [0, 1, 2**63 - 1])
def test_no_jitter_is_exactly_one(seed):
    jitter = Jitter(0.0, seed)
    assert [jitter.draw() for _ in range(1000)] == [1.0] * 1000


# Tolerances: four standard errors of the mean of 100,000 draws; the sample's CV is heavier-tailed.
@pytest.mark.parametrize(("cv", "cv_tolerance"), [(0.05, 0.02), (0.3, 0.03), (1.0, 0.15)])
def test_jitter_has_mean_one_and_the_coefficient_of_variation_asked_for(cv, cv_tolerance):
    jitter = Jitter(cv, 1)
    draws = [jitter.draw() for _ in range(100_000)]
    assert statistics.fmean(draws) == pytest.approx(1.0, abs=4 * cv / 100_000**0.5)
    assert statistics.pstdev(draws) == pytest.approx(cv, rel=cv_tolerance)
    assert min(draws) > 0


def test_the_same_seed_draws_the_same_and_generators_do_not_disturb_each_other():
    alone = Jitter(0.3, 7)
    expected = [alone.draw() for _ in range(100)]
    one, other, different = Jitter(0.3, 7), Jitter(0.3, 7), Jitter(0.3, 8)
    together = [(one.draw(), other.draw(), different.draw()) for _ in range(100)]
    assert [a for a, _, _ in together] == expected
    assert [b for _, b, _ in together] == expected
    assert all(a != c for a, _, c in together)


def test_steps_under_a_millisecond_keep_their_resolution():
    times = [step_s(GenSettings(itl_ms=milliseconds), 0.0) for milliseconds in (0.1, 0.1001, 0.1002)]
    assert [b - a for a, b in itertools.pairwise(times)] == pytest.approx([1e-7, 1e-7], rel=1e-6)
