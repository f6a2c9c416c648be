"""What the load keeps: one line per stream, counts that add up, a client.json that is whole or not there."""

from __future__ import annotations

import io
import json

import pytest

from loadtest.goodput import GoodputLimits
from loadtest.recorder import Recorder, write_json
from loadtest.stream_record import StreamRecord
from sim.core.histogram import LogHistogram
from tests.pure.replies import MS, events_of, read, reads_of


def record(outcome="ok", **changes):
    fields = {
        "seq": 3,
        "planned_ns": 100 * MS,
        "ready_ns": 100 * MS,
        "sent_ns": 101 * MS,
        "first_byte_ns": 110 * MS,
        "first_token_ns": 111 * MS,
        "last_token_ns": 190 * MS,
        "end_ns": 200 * MS,
        "prompt_tokens": 64,
        "asked_tokens": 13,
        "tokens": 13,
        "chunks": 13,
        "events": 16,
        "outcome": outcome,
        "checked": "counted",
        **changes,
    }
    return StreamRecord(**fields)


def test_a_line_holds_the_record_and_a_detail_only_where_there_is_one():
    lines = io.StringIO()
    recorder = Recorder(lines)
    reader = read(reads_of(events_of(13)))
    recorder.end(record(), reader)
    recorder.end(record("cut", detail="the connection ended"), reader)
    first, second = map(json.loads, lines.getvalue().splitlines())

    assert first["seq"] == 3
    assert list(first) == [
        "seq", "planned_ns", "ready_ns", "sent_ns", "first_byte_ns", "first_token_ns", "last_token_ns", "end_ns",
        "prompt_tokens", "asked_tokens", "tokens", "chunks", "events", "outcome", "checked",
    ]  # fmt: skip
    assert second == {**first, "outcome": "cut", "detail": "the connection ended"}


def test_counts_add_up_over_streams_by_outcome():
    recorder = Recorder()
    events = events_of(13, dialect="openai", finish="own")
    recorder.planned = 6
    for outcome in ("ok", "ok", "cut", "http_429", "aborted"):
        recorder.start(0, 0, 2 * MS)
        recorder.end(record(outcome), read(reads_of(events)))
    found = recorder.to_json()

    assert found["streams"] == {
        "planned": 6, "started": 5, "unsent": 0, "ok": 2, "ended_early": 0, "failed": {"cut": 1, "http_429": 1},
        "aborted": 1, "cancelled": 0, "cancelled_near_end": 0,
    }  # fmt: skip
    assert found["tokens"] == found["chunks"] == 65
    assert found["events"] == 5 * len(events)
    assert [found[f"{kind}_events"] for kind in ("role", "finish", "usage", "done", "other")] == [5, 5, 5, 5, 0]
    assert found["bytes"] == 5 * sum(map(len, events))
    assert LogHistogram.from_json(found["lateness"]).max_ns == 2 * MS


def test_streams_that_ended_early_are_a_part_of_those_that_are_ok():
    recorder = Recorder()
    reader = read(reads_of(events_of(13)))
    recorder.end(record(), reader)
    recorder.end(record(asked_tokens=200), reader)
    recorder.end(record("cut", asked_tokens=200), reader)

    assert recorder.to_json()["streams"]["ok"] == 2
    assert recorder.to_json()["streams"]["ended_early"] == 1


def test_latency_counts_from_the_plan_with_the_from_sent_figure_beside_it():
    recorder = Recorder()
    recorder.first_token(100 * MS, 103 * MS, 110 * MS)
    recorder.end(record(), read(reads_of(events_of(13))))
    recorder.end(record("cut"), read(reads_of(events_of(13))))
    found = {key: LogHistogram.from_json(recorder.to_json()[key]) for key in
             ("ttft", "ttft_from_sent", "e2e", "e2e_from_sent")}  # fmt: skip

    assert {key: (h.count, h.sum_ns) for key, h in found.items()} == {
        "ttft": (1, 10 * MS), "ttft_from_sent": (1, 7 * MS), "e2e": (1, 100 * MS), "e2e_from_sent": (1, 99 * MS),
    }  # fmt: skip


def test_time_per_output_token_is_of_streams_that_passed_and_have_two_tokens():
    recorder = Recorder()
    reader = read(reads_of(events_of(13)))
    for each in (record(), record(tokens=1), record(tokens=0, first_token_ns=None, last_token_ns=None), record("cut")):
        recorder.end(each, reader)

    assert record().tpot_ns == (190 - 111) * MS / 12
    assert record(tokens=1).tpot_ns is None
    assert (recorder.tpot.count, recorder.tpot.sum_ns) == (1, round(79 * MS / 12))


def test_the_caps_wait_is_apart_from_the_senders_lateness():
    recorder = Recorder()
    recorder.start(10 * MS, 10 * MS, 13 * MS)  # late by itself
    recorder.start(10 * MS, 90 * MS, 91 * MS)  # held back
    found = {key: LogHistogram.from_json(recorder.to_json()[key]) for key in ("lateness", "held")}

    assert {key: (h.count, h.sum_ns) for key, h in found.items()} == {"lateness": (2, 4 * MS), "held": (1, 80 * MS)}


LIMITS = GoodputLimits(ttft_ms=20, itl_ms=7, e2e_ms=150)


def test_a_stream_is_good_within_every_limit_counted_from_its_plan():
    recorder = Recorder(None, LIMITS)
    reader = read(reads_of(events_of(13)))
    for each in (
        record(),  # TTFT 11 ms, ITL 6.58 ms, E2E 100 ms
        record(first_token_ns=120 * MS, tokens=11),  # TTFT 20 ms, ITL 7 ms: at the limits
        record(first_token_ns=121 * MS),
        record(last_token_ns=200 * MS),
        record(planned_ns=40 * MS, first_token_ns=60 * MS, tokens=100),  # sent in time, but late
        record(planned_ns=40 * MS),  # TTFT and E2E
        record("cut"),
        record("aborted"),
        record(tokens=1),  # has no inter-token latency
    ):
        recorder.end(each, reader)
    recorder.leave_unsent()

    assert recorder.to_json()["goodput"] == {
        "limits": {"ttft_ms": 20, "itl_ms": 7, "e2e_ms": 150},
        "within": 3,
        "of": 9,
        "missed": {"ttft": 2, "itl": 1, "e2e": 2, "failed": 1, "unsent": 1},
    }
    assert (recorder.planned, recorder.unsent, recorder.to_json()["streams"]["unsent"]) == (1, 1, 1)


def test_without_limits_there_is_no_goodput():
    recorder = Recorder()
    recorder.end(record("cut"), read([]))
    recorder.leave_unsent()

    assert recorder.to_json()["goodput"] is None
    assert recorder.missed_slo == 0


@pytest.mark.parametrize("limit", ["ttft_ms", "itl_ms", "e2e_ms"])
def test_a_limit_alone_judges_by_nothing_else(limit):
    name = limit.removesuffix("_ms")

    assert list(GoodputLimits(**{limit: 1}).missed(2 * MS, 2 * MS, 2 * MS)) == [name]
    assert list(GoodputLimits(**{limit: 2}).missed(2 * MS, 2 * MS, 2 * MS)) == []
    assert list(GoodputLimits(**{limit: 1}).missed(None, None, 0)) == []


def test_totals_hold_live_streams_too():
    recorder = Recorder()
    recorder.end(record(), read(reads_of(events_of(13))))
    live = read(reads_of(events_of(20)[:8], end=b""))
    totals = recorder.totals([live])

    assert (totals.tokens, totals.by_kind["chunks"], totals.by_kind["done_events"]) == (20, 20, 1)
    assert recorder.totals().tokens == 13


def test_a_file_is_put_in_place_whole_or_not_at_all(tmp_path):
    write_json(tmp_path / "client.json", {"a": 1})
    with pytest.raises(TypeError):
        write_json(tmp_path / "client.json", {"a": object()})

    assert json.loads((tmp_path / "client.json").read_text()) == {"a": 1}
    with pytest.raises(OSError, match="No such file"):
        write_json(tmp_path / "no" / "client.json", {})


def test_times_of_tokens_are_in_the_results_whether_folded_in_or_pending():
    recorder = Recorder()
    recorder.gaps.pending.append(5 * MS)
    recorder.transits.pending.append(MS)
    recorder.fold()
    recorder.gaps.pending.append(7 * MS)
    found = recorder.to_json()

    assert recorder.gaps.pending == recorder.transits.pending == []
    assert (found["itl"]["count"], found["itl"]["sum_ns"]) == (2, 12 * MS)
    assert LogHistogram.from_json(found["transit"]).to_json() == {
        "count": 1, "sum_ns": MS, "max_ns": MS, "counts": found["transit"]["counts"],
    }  # fmt: skip


def test_without_stamps_there_is_no_transit():
    assert Recorder().to_json()["transit"] is None
