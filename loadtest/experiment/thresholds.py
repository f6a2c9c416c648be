"""The limits that make a run suspect or void: every one of them, and where it comes from.

Each is a row of docs/measurement.md too, and a test holds the two together.  Pairs are the limit above which a
run is suspect and the one above which it is void.  What holds facts against them is `verdict`; the limit that
voids a block is `rounds.RATE_TOLERANCE`.
"""

from __future__ import annotations

# Run-queue wait: ready to run, but the kernel ran others.  5 %: an uncontended relay waits under 0.3 %, and lag
# follows the wait from a few per cent on.  25 %: in a pilot, reads began to merge between there and 58 %.
ORCHESTRATOR_WAIT_SUSPECT, ORCHESTRATOR_WAIT_VOID = 0.05, 0.25
# The fakes and the load share the CPUs that the orchestrator leaves over and wait for one another by design; what
# they must keep is their schedule, which has limits of its own below.  40 %: at 31 %, with gen, ctx and 9,000
# streams' load on one CPU, requests went out 7 ms late at p99 and tokens 10 ms, half of what those limits allow.
OTHERS_WAIT_SUSPECT, OTHERS_WAIT_VOID = 0.40, 0.60
# Steal: CPU the hypervisor took away.  A quiet virtual machine shows 0.06 %.
STEAL_SUSPECT, STEAL_VOID = 0.01, 0.10
# A CPU quota that bit: a throttled process stands still for up to 100 ms at a time, which looks just like lag.
THROTTLED_SUSPECT, THROTTLED_VOID = 0.005, 0.05
# CPU of gen, ctx or load: Locust itself warns at 90 %; a queue in front of one of them builds up before that.
OTHERS_CPU_SUSPECT, OTHERS_CPU_VOID = 0.80, 0.95
# The relay's loop thread: past this its queue, not the policy, decides what a chunk costs (reads merge).
SATURATED_SUSPECT, SATURATED_VOID = 0.92, 0.985
# Lateness of sends, tokens and prefill answers, p99.  20 ms: a third of the default inter-token time, ten wheel ticks.
LATENESS_SUSPECT_S, LATENESS_VOID_S = 0.020, 0.500
# Token rate that gen delivered, short of the asked one.  Half, and all, of what voids a block.
GEN_SHORTFALL_SUSPECT, GEN_SHORTFALL_VOID = 0.015, 0.03
# The load's own loop: seconds with a stall over LATE_SECOND_S, long against the 1-4 ms of a loop that keeps up.
LATE_SECOND_S = 0.050
LATE_SECONDS_SUSPECT, LATE_SECONDS_VOID = 0.10, 0.50
# Any failed stream makes a run suspect; above one in a hundred, the load was not the one asked for.
FAILED_STREAMS_VOID = 0.01
# Counters must agree to the unit, or the run is suspect.  One in a thousand is far more than streams caught half-way.
MISMATCH_VOID = 0.001
# With n rounds the smallest two-sided sign-flip p is 2/2^n: under 6 nothing can reach 5 %.  The interval's
# coverage is proven from 8 rounds on.
ROUNDS_VOID, ROUNDS_SUSPECT = 6, 8
# A control that excludes zero at 99.9 % is a bias of the harness; one beyond this share of the cost per chunk is as
# large as the effects it is there to guard.
CONTROL_BIAS_VOID = 0.02
# Events per read, over what gen writes at once: a relay that keeps up reads 1.00; overload reads more, which
# *lowers* the cost per chunk.  1.2 was seen in the worst block of a pilot.
BATCHING_SUSPECT, BATCHING_VOID = 1.10, 2.0
# Events per read of one arm over another's: the arms then did not do the same work.
BATCHING_BY_ARM_SUSPECT = 0.03
# Voids strike the dear arm first.  A gap of this share of the rounds begun, and of this many blocks, is no chance.
VOID_GAP_SUSPECT, VOID_GAP_LEAST_BLOCKS = 0.10, 4
# The fixed spin, slowest over fastest quarter: 20 % is usual over tens of minutes on a shared host, and pairing
# takes it out; past that the mean cost has no one machine to belong to.
SPIN_DRIFT_SUSPECT, SPIN_DRIFT_VOID = 0.25, 1.0
# The fixed spin of one arm against all, in share and in standard errors: pairing can't take that out.
SPIN_BY_ARM_SUSPECT, SPIN_BY_ARM_LEAST_ERRORS = 0.05, 4.0
# Share of the loop's lateness that was the kernel's, above which lag says more of the machine than of the code.
KERNEL_LAG_NOTE = 0.20
