"""An orchestrator of several processes: who gets which CPU, what is said of it, and counters added up."""

from __future__ import annotations

import pytest

from loadtest.experiment.preparation import worker_notes
from loadtest.experiment.server_counters import combined, role_total, streams_by_server
from loadtest.experiment.topology import Pinning, pinning_of


@pytest.mark.parametrize(
    ("cpus", "workers", "orchestrator", "others", "first_worker"),
    [
        ([0, 1], 1, {1}, {0}, {1}),
        ([0, 1], 2, {1}, {0}, {1}),
        ([0, 1, 2], 2, {1, 2}, {0}, {1}),
        ([0, 1, 2, 3], 2, {2, 3}, {0, 1}, {2}),
        ([0, 1, 2, 3], 4, {1, 2, 3}, {0}, {1, 2, 3}),
        ([5], 2, set(), set(), set()),
    ],
)
def test_each_worker_has_a_cpu_if_one_is_left_for_the_others(cpus, workers, orchestrator, others, first_worker):
    pinning = pinning_of(cpus, wanted=True, workers=workers)

    assert (pinning.orchestrator, pinning.others) == (orchestrator, others)
    assert pinning.of_worker(0, workers) == first_worker


def test_workers_with_a_cpu_each_have_different_ones():
    pinning = Pinning(frozenset({2, 3}), frozenset({0, 1}))

    assert [pinning.of_worker(index, 2) for index in range(2)] == [{2}, {3}]


def test_what_a_machine_cannot_certify_is_said_only_where_it_is_so():
    assert worker_notes(pinning_of([0, 1, 2], wanted=True, workers=2), 2) == []
    assert worker_notes(pinning_of([0, 1], wanted=False, workers=2), 2) == []
    (note,) = worker_notes(pinning_of([0, 1], wanted=True, workers=2), 2)
    assert note.startswith("2 workers of the orchestrator share 1 CPU and wait")
    assert note.endswith("that takes 3 CPUs")


COUNTERS = {
    "gen0": {"chunks": 30},
    "orchestrator0": {"chunks": 10, "streams": {"started": 3, "ended": {"complete": 2}}, "upstreams": [1]},
    "orchestrator1": {"chunks": 21, "streams": {"started": 5, "ended": {"complete": 4}}, "policy": {"parsed": None}},
}


def test_counters_of_a_role_are_added_up_less_what_they_stood_at():
    before = {"orchestrator0": {"chunks": 1}, "orchestrator1": {"streams": {"started": 1}}}

    assert role_total(COUNTERS, "orchestrator", before) == {
        "chunks": 30,
        "streams": {"started": 7, "ended": {"complete": 6}},
        "policy": {"parsed": None},
    }
    assert role_total(COUNTERS, "ctx") == {}
    assert streams_by_server(COUNTERS, "orchestrator") == {"orchestrator0": 3, "orchestrator1": 5}


def test_what_one_side_lacks_counts_as_nothing():
    assert combined({"a": 2}, {"b": {"c": 1}}, -1) == {"a": 2, "b": {"c": -1}}
