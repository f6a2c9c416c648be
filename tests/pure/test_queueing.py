"""The simple queue: against formulas that are exact, and against a simulated queue."""

from __future__ import annotations

import math

import numpy as np
import pytest

from loadtest.experiment.queueing import utilisation, wait_mean_s, wait_quantile_s


def test_the_mean_wait_of_a_constant_service_is_half_of_an_exponential_one():
    # M/M/1 at utilisation 0.8: W = 0.8 / (1 - 0.8) services.
    assert wait_mean_s(8.0, 0.1, cv=1.0) == pytest.approx(0.4)
    assert wait_mean_s(8.0, 0.1) == pytest.approx(0.2)


def test_the_quantile_of_an_exponential_service_is_exact():
    # M/M/1: P(W > t) = u exp(-(1 - u) t / s)
    t = wait_quantile_s(0.99, 8.0, 0.1, cv=1.0)

    assert 0.8 * math.exp(-(1 - 0.8) * t / 0.1) == pytest.approx(0.01)


@pytest.mark.parametrize("used", [0.3, 0.6, 0.9])
def test_a_simulated_queue_of_constant_service_waits_as_said(used):
    rng = np.random.default_rng(5)
    service_s, wait_s, waits = 1.0, 0.0, []
    for gap_s in rng.exponential(service_s / used, 200_000):
        wait_s = max(0.0, wait_s + service_s - gap_s)
        waits.append(wait_s)

    assert np.mean(waits) == pytest.approx(wait_mean_s(used, service_s), rel=0.08)
    assert np.quantile(waits, 0.99) == pytest.approx(wait_quantile_s(0.99, used, service_s), rel=0.25)


def test_an_idle_server_lets_nobody_wait_and_a_full_one_all_of_them():
    assert wait_quantile_s(0.99, 0.005, 1.0) == 0.0
    assert utilisation(20.0, 0.05) == 1.0
    assert wait_quantile_s(0.99, 20.0, 0.05) == wait_mean_s(20.0, 0.05) == math.inf
