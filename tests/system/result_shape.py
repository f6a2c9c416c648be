"""The contract of ``disagg-sim/compare/1``, held against a result: keys, types and what must add up."""

from __future__ import annotations

from typing import Any


def assert_compare_shape(result: dict[str, Any]) -> None:
    assert result["schema"] == "disagg-sim/compare/1"
    assert result["verdict"]["state"] in ("valid", "suspect", "void")
    assert all({"code", "text"} <= set(reason) for reason in result["verdict"]["reasons"])
    assert result["equality"]["state"] in ("equal", "differs", "error")
    used = result["rounds"]["used"]
    for name, arm in result["arms"].items():
        assert arm["policy"], name
        figure = arm["cpu_us_per_chunk"]
        if used == 0:  # a busy machine may void every round; then nothing is claimed
            assert figure is None, name
            continue
        assert arm["chunks"] > 0
        assert figure["mean"] > 0
        if figure["ci95"] is not None:  # too few rounds give none
            assert figure["ci95"][0] <= figure["mean"] <= figure["ci95"][1]
        assert 0 < arm["core_share_at_rate"] < 10
        assert arm["events_per_read"] > 0
        assert arm["loop_lag_s"]["p50"] <= arm["loop_lag_s"]["p99"] <= arm["loop_lag_s"]["max"]
        assert 0 <= arm["run_queue_wait_share"] <= 1
    for difference in [*result["differences"], result["control"]]:
        figure = difference["cpu_us_per_chunk"]
        if figure is None or figure["ci95"] is None:
            assert used < 4
            assert not difference["significant"]
            continue
        low, high = figure["ci95"]
        assert low <= figure["estimate"] <= high
        assert figure["mde"] > 0
        assert difference["significant"] == (low > 0 or high < 0)
    first, *others = [name for name in result["arms"] if not name.endswith(":again")]
    assert [(d["a"], d["b"]) for d in result["differences"]][: len(others)] == [(first, other) for other in others]
    assert {result["control"]["a"], result["control"]["b"]} == {first, first + ":again"}
    rounds = result["rounds"]
    assert rounds["planned"] == rounds["used"] + sum(rounds["void"].values())
    client = result["client"]
    for key in ("ttft_s", "itl_s", "e2e_s") if client["streams"]["ok"] else ():
        assert client[key]["p50"] <= client[key]["p99"]
    streams = client["streams"]
    assert streams["started"] == streams["ok"] + sum(streams["failed"].values()) + sum(
        streams.get(how, 0) for how in ("aborted", "cancelled")
    )
