"""When full collections are due."""

from __future__ import annotations

from sim.service.garbage import FULL_EVERY_S, OldCollector


def test_an_idle_process_collects_once_enough_has_grown_old():
    collector = OldCollector(0.0, lambda: True)

    assert [collector.due(1.0, middle) for middle in (0, 9, 10, 11)] == [False, False, True, True]


def test_a_busy_process_collects_only_when_the_longest_wait_is_over_and_then_waits_as_long_again():
    collector = OldCollector(100.0, lambda: False)

    times_s = (100.0 + FULL_EVERY_S - 1, 100.0 + FULL_EVERY_S, 101.0 + FULL_EVERY_S, 100.0 + 2 * FULL_EVERY_S)

    assert [collector.due(now_s, 1000) for now_s in times_s] == [False, True, False, True]


def test_a_busy_process_that_becomes_idle_collects_then():
    idle = False
    collector = OldCollector(0.0, lambda: idle)
    assert not collector.due(1.0, 50)

    idle = True

    assert collector.due(2.0, 50)
