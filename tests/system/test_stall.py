"""A stalled orchestrator, seen from the planned and from the real send: a client with a cap hides it from the latter.

Only what a stall forces is asserted, so that a busy machine can't fail it: a request planned during the stall has no
token before its end, and with ten slots only some ten can have been sent.
"""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.system.conftest import finish, start

pytestmark = [pytest.mark.system, pytest.mark.timeout(120)]

RATE, CAP = 200, 10
STALL_S, LATE_S = 1.0, 0.25
DURATION_S = 6
LOAD = {
    "arrivals": "constant", "request_rate": RATE, "prompt_tokens": 16, "output_tokens": 4, "tok_s": 1000,
    "duration_s": DURATION_S, "overhead_ms": 0, "prefill_us_per_token": 0, "transfer_base_ms": 0, "sample_every": 50,
}  # fmt: skip
NS = 1e9


def stalled_run(out: Path, **load: object) -> tuple[dict[str, Any], list[dict[str, Any]], tuple[int, int]]:
    """The result of a run whose orchestrator was stopped for a second, its streams, and from when to when."""
    settings = [argument for key, value in {**LOAD, **load}.items() for argument in ("--set", f"{key}={value}")]
    process = start("run", "smoke", *settings, "--json", "--out", str(out))
    assert process.stderr is not None
    try:
        while not (line := process.stderr.readline()).startswith("load:"):
            assert line, "the run ended before its load began"
        wait_for_streams(out / "streams.jsonl", RATE)
        relay = next(
            child
            for child in psutil.Process(process.pid).children(recursive=True)
            if "sim.orchestrator" in " ".join(child.cmdline())
        )
        os.kill(relay.pid, signal.SIGSTOP)
        begun_ns = stopped_ns(relay)
        time.sleep(STALL_S)
        ended_ns = time.monotonic_ns()
        os.kill(relay.pid, signal.SIGCONT)
    finally:
        code, stdout, err = finish(process, 60)
    assert code in (0, 3), err
    lines = [json.loads(line) for line in (out / "streams.jsonl").read_text().splitlines()]
    return json.loads(stdout), lines, (begun_ns, ended_ns)


def wait_for_streams(path: Path, count: int) -> None:
    """Until so many streams have ended."""
    deadline = time.monotonic() + 40
    while not path.exists() or path.read_text().count("\n") < count:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def stopped_ns(process: psutil.Process) -> int:
    """When the kernel is known to have stopped it."""
    while process.status() != psutil.STATUS_STOPPED:
        time.sleep(0.001)
    return time.monotonic_ns()


def late(streams: list[dict[str, Any]], since: str, stall: tuple[int, int]) -> int:
    """Streams that were out (by ``since``) without a token for a part of the stall, and waited longer than LATE_S."""
    begun_ns, ended_ns = stall
    return sum(
        stream[since] < ended_ns
        and stream["first_token_ns"] > begun_ns
        and stream["first_token_ns"] - stream[since] > LATE_S * NS
        for stream in streams
        if stream["first_token_ns"]
    )


def due_long_before_the_end(streams: list[dict[str, Any]], stall: tuple[int, int]) -> int:
    begun_ns, ended_ns = stall
    return sum(begun_ns <= stream["planned_ns"] < ended_ns - LATE_S * NS for stream in streams)


def test_under_a_cap_only_the_planned_send_shows_the_stall(tmp_path: Path) -> None:
    result, streams, stall = stalled_run(tmp_path / "run", max_concurrency=CAP, goodput_ttft_ms=LATE_S * 1e3)
    from_planned, from_sent = late(streams, "planned_ns", stall), late(streams, "sent_ns", stall)

    assert from_planned >= due_long_before_the_end(streams, stall) >= 100
    assert CAP / 2 <= from_sent <= 2 * CAP  # those under way, and as many if their ends were on the wire already
    held = [stream for stream in streams if stream["ready_ns"] > stream["planned_ns"]]
    client = result["client"]
    assert client["held_s"]["n"] == len(held) >= 100
    assert client["held_s"]["max"] > STALL_S - LATE_S
    assert client["goodput"]["missed"]["ttft"] >= 100
    assert client["goodput"]["share"] < 1.0
    assert (
        client["streams"]["started"] + client["streams"]["unsent"] == client["streams"]["planned"] == RATE * DURATION_S
    )
    own_late = sum(stream["sent_ns"] - stream["ready_ns"] > LATE_S * NS for stream in streams)
    assert own_late < from_planned / 2  # the cap's wait is not put down to the sender


def test_without_a_cap_both_show_it(tmp_path: Path) -> None:
    result, streams, stall = stalled_run(tmp_path / "run")

    assert late(streams, "planned_ns", stall) >= due_long_before_the_end(streams, stall) >= 100
    assert late(streams, "sent_ns", stall) >= 100
    assert result["client"]["held_s"] is None
    assert result["client"]["goodput"] is None
