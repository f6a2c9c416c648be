"""Block schedules: which times follow from one, what is refused, and what two readings make of a block."""

import dataclasses

import pytest

from sim.orchestrator.arms import NeedsGenError, UnknownPolicyError, build_arms
from sim.orchestrator.blocks import Block, Reading, ScheduleError, block_record, read_schedule
from sim.service.health import LagWindow

ARMS = build_arms(["parse", "prefilter", "verbatim"], "parse", usage_by_gen=False)
MS = 1_000_000


def row(**changes):
    return {"round": 0, "slot": 0, "arm": "filter-on", "policy": "filter-on", "length_ns": 1000 * MS, **changes}


def read(body, now_ns=0):
    return read_schedule(body, ARMS.index_of, ARMS.names, now_ns)


def test_blocks_follow_each_other_without_a_gap():
    rows = [row(), row(slot=1, arm="filter-off", policy="parse", length_ns=500 * MS), row(round=1, arm="again")]
    schedule = read({"start_ns": 7_000 * MS, "settle_ns": 100 * MS, "blocks": rows})
    assert schedule.settle_ns == 100 * MS
    assert schedule.switches_ns == (7_000 * MS, 8_000 * MS, 8_500 * MS, 9_500 * MS)
    assert schedule.blocks == (
        Block(0, 0, "filter-on", "prefilter", 1, 1000 * MS),
        Block(0, 1, "filter-off", "parse", 0, 500 * MS),
        Block(1, 0, "again", "prefilter", 1, 1000 * MS),
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"start_ns": -1}, "start_ns: -1 is not a whole number of at least 0"),
        ({"start_ns": 1.5}, "start_ns: 1.5 is not a whole number"),
        ({"start_ns": True}, "start_ns: True is not a whole number"),
        ({"start_ns": 9}, "start_ns 9 lies 0.000 s in the past"),
        ({"settle_ns": None}, "settle_ns: None is not a whole number"),
        ({"blocks": []}, "blocks must be an array of 1 to 100000 blocks"),
        ({"blocks": {}}, "blocks must be an array"),
        ({"blocks": [row(), 3]}, r"blocks\[1\] must be an object with round, slot, arm, policy, length_ns"),
        ({"blocks": [row(arm=3)]}, r"blocks\[0\].arm must be a string"),
        ({"blocks": [row(policy=None)]}, r"blocks\[0\].policy must be a string"),
        ({"blocks": [row(round="1")]}, r"blocks\[0\].round: '1' is not a whole number of at least 0"),
        ({"blocks": [row(length_ns=100 * MS)]}, r"blocks\[0\].length_ns: 100000000 is not .* at least 100000001"),
    ],
)
def test_a_schedule_that_cannot_be_run_is_refused_with_the_place(changes, message):
    body = {"start_ns": 10, "settle_ns": 100 * MS, "blocks": [row()], **changes}
    with pytest.raises(ScheduleError, match=message):
        read(body, now_ns=10)


def test_a_schedule_names_only_policies_that_can_be_chosen():
    with pytest.raises(ScheduleError, match="must be a JSON object"):
        read([])
    with pytest.raises(UnknownPolicyError, match="unknown policy 'nope'"):
        read({"start_ns": 0, "settle_ns": 0, "blocks": [row(policy="nope")]})
    with pytest.raises(NeedsGenError):
        read({"start_ns": 0, "settle_ns": 0, "blocks": [row(policy="verbatim")]})


BEFORE = Reading(
    t_ns=5_000, cpu_ns=100, loop_cpu_ns=90, run_queue_wait_ns=7, user_s=1.0, sys_s=2.0, machine_ticks=(10, 1000),
    throttled_us=3, gc_pause_ns=11, chunks=20, events=25, reads=18, requests=4, bytes_in=1000, bytes_out=990,
    unchanged=24, changed=1, parsed=2,
)  # fmt: skip
AFTER = Reading(
    t_ns=9_000, cpu_ns=160, loop_cpu_ns=140, run_queue_wait_ns=9, user_s=1.5, sys_s=2.25, machine_ticks=(15, 1200),
    throttled_us=3, gc_pause_ns=12, chunks=50, events=57, reads=40, requests=5, bytes_in=3000, bytes_out=2900,
    unchanged=54, changed=3, parsed=9,
)  # fmt: skip


def test_a_record_holds_what_passed_between_its_readings():
    window = LagWindow()
    window.record(6_000_000, 5_000_000)
    window.record(1_000_000, 0)
    block = Block(3, 1, "filter-on:again", "prefilter", 1, 4_000)
    record = block_record(block, BEFORE, AFTER, window, spin_ns=777, live_streams=12)
    assert record.pop("lag")["count"] == 2
    assert record.pop("lag_kernel")["sum_ns"] == 5_000_000
    assert record == {
        "round": 3,
        "slot": 1,
        "arm": "filter-on:again",
        "policy": "prefilter",
        "start_ns": 5_000,
        "end_ns": 9_000,
        "wall_ns": 4_000,
        "cpu_ns": 60,
        "loop_cpu_ns": 50,
        "cpu_user_s": 0.5,
        "cpu_sys_s": 0.25,
        "run_queue_wait_ns": 2,
        "steal_share": 0.025,
        "throttled_us": 0,
        "gc_pause_ns": 1,
        "chunks": 30,
        "events": 32,
        "reads": 22,
        "requests": 1,
        "bytes_in": 2000,
        "bytes_out": 1910,
        "unchanged": 30,
        "changed": 2,
        "parsed": 7,
        "late_ticks": 1,
        "late_ticks_kernel": 1,
        "spin_ns": 777,
        "live_streams": 12,
    }


def test_what_a_plugin_parsed_is_not_known():
    before, after = (dataclasses.replace(reading, parsed=None) for reading in (BEFORE, AFTER))
    record = block_record(Block(0, 0, "p", "m:p", 0, 1), before, after, LagWindow(), spin_ns=0, live_streams=0)
    assert record["parsed"] is None
