"""What the simplest queue says that a callback of a loop waits, from the cost of a chunk and the rate.  Pure.

M/G/1: work comes at random times, ``rate`` pieces a second, each of ``service_s`` with coefficient of variation ``cv``
(0: M/D/1), and is done one by one.  At utilisation u = rate * service the mean wait is

    W = u * service * (1 + cv^2) / (2 * (1 - u))                            (Pollaczek and Khinchine)

and of those that wait at all, a share u, the wait is taken to be exponential with mean W / u (exact for cv = 1, right
in the tail as u nears 1), so that a share q waits less than (W / u) * ln(u / (1 - q)).

A loop's canary comes at random too, so its lag would be that wait.  The queue knows nothing of timers' grain,
garbage collections, the kernel, or reads that merge: where it parts from what was measured, one of them is why.
"""

from __future__ import annotations

import math

__all__ = ["utilisation", "wait_mean_s", "wait_quantile_s"]


def utilisation(rate_s: float, service_s: float) -> float:
    """Share of the time that the server is busy; from 1 on the queue has no end."""
    return rate_s * service_s


def wait_mean_s(rate_s: float, service_s: float, cv: float = 0.0) -> float:
    """Mean wait of all, those that need not wait included; infinite from a utilisation of 1 on."""
    used = utilisation(rate_s, service_s)
    return math.inf if used >= 1.0 else used * service_s * (1.0 + cv * cv) / (2.0 * (1.0 - used))


def wait_quantile_s(q: float, rate_s: float, service_s: float, cv: float = 0.0) -> float:
    """The wait that a share ``q`` does not exceed; infinite from a utilisation of 1 on."""
    used = utilisation(rate_s, service_s)
    if used >= 1.0:
        return math.inf
    if used <= 1.0 - q:
        return 0.0
    return wait_mean_s(rate_s, service_s, cv) / used * math.log(used / (1.0 - q))
