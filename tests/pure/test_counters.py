"""What was cut and what passed are one count to whoever asks."""

from sim.orchestrator.counters import Counters, PolicyCounters


def test_totals_are_of_both_ways_through_the_relay_and_of_all_policies():
    one, other = PolicyCounters(), PolicyCounters()
    counters = Counters((one, other))
    counters.cut_reads, counters.cut_events, counters.cut_bytes_in, counters.cut_bytes_out = 1, 20, 300, 301
    one.cut, one.changed, one.failed, one.passed, one.passed_bytes = 9, 2, 1, 4, 48
    other.passed, other.passed_bytes = 5, 70

    assert (counters.reads, counters.events) == (1 + 9, 20 + 9)
    assert (counters.bytes_in, counters.bytes_out) == (300 + 118, 301 + 118)
    assert (one.offered, one.unchanged, other.offered, other.unchanged) == (13, 10, 5, 5)
