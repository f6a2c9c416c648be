"""Counters of the parties against one another where clients cancel: what must be equal, what may fall, and how far."""

from __future__ import annotations

import copy
import dataclasses
from pathlib import Path
from typing import Any

import pytest

from loadtest.experiment.reconcile import Row, mismatches, reconcile, reconciliation_json
from loadtest.experiment.run_files import RunFiles

# 10 replies of 100 tokens: 7 came whole, 3 were cancelled after 20 tokens, when 24, 25 and 26 had been written.
GEN: dict[str, Any] = {
    "streams": {"started": 10, "ended": {"complete": 7, "drained": 0, "client_gone": 3}},
    "answers": {"started": 0, "ended": {"complete": 0, "drained": 0, "client_gone": 0}},
    "tokens": 775, "chunks": 775, "role_events": 10, "finish_events": 0, "usage_events": 7, "done_events": 7,
    "events": 799, "bytes": 200_000,
}  # fmt: skip
RELAY: dict[str, Any] = {
    "streams": {"started": 10, "ended": {"complete": 7, "client_gone": 3}}, "answers": 0,
    "chunks": 770, "role_events": 10, "finish_events": 0, "usage_events": 7, "done_events": 7, "events": 794,
    "bytes_in": 199_000, "bytes_out": 199_100,
}  # fmt: skip
CLIENT: dict[str, Any] = {
    "streams": {"started": 10, "ok": 7, "ended_early": 0, "failed": {}, "aborted": 0, "cancelled": 3,
                "cancelled_near_end": 0},
    "left_tokens": 240, "usages": 7, "cached_tokens": 112,
    "tokens": 760, "chunks": 760, "role_events": 10, "finish_events": 0, "usage_events": 7, "done_events": 7,
    "events": 784, "bytes": 198_000,
}  # fmt: skip
CTX: dict[str, Any] = {"answered": 10, "prompt_tokens": {"cached": 160, "computed": 480}}


def files(**parties: dict[str, Any]) -> RunFiles:
    counters = {"gen0": GEN, "orchestrator": RELAY, "ctx0": CTX, "client": CLIENT}
    counters = copy.deepcopy({**counters, **parties})
    client = counters.pop("client")
    return RunFiles(
        path=Path(),
        manifest={"kind": "run"},
        blocks=[],
        samples={},
        counters=counters,
        counters_before=None,
        streams=[],
        client=client,
        equality=None,
    )


def with_count(counters: dict[str, Any], name: str, value: int) -> dict[str, Any]:
    changed = copy.deepcopy(counters)
    *path, last = name.split(".")
    inner = changed
    for part in path:
        inner = inner[part]
    inner[last] = value
    return changed


def test_without_the_clients_counts_nobody_is_said_to_agree() -> None:
    assert reconcile(dataclasses.replace(files(), client=None)) is None
    assert reconciliation_json(None)["state"] == "unknown"


def test_what_cancelled_streams_left_behind_is_within_and_not_called_equal() -> None:
    rows = reconcile(files()) or []
    found = {row.what: row for row in rows}

    assert reconciliation_json(rows)["state"] == "within"
    assert mismatches(rows) == ()
    assert {what for what, row in found.items() if row.rule == "equal"} == {"replies", "replies ended", "role_events"}
    assert found["replies ended"].counts == {"gen": 10, "orchestrator": 10, "client": 10}
    assert found["replies cancelled"] == Row(
        "replies cancelled", {"gen": 3, "orchestrator": 3, "client": 3}, "rising", 0
    )
    assert (found["tokens"].room, found["events"].room, found["usage_events"].room) == (240, 249, 3)
    assert not found["tokens"].equal
    assert found["tokens"].holds


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"client": with_count(CLIENT, "tokens", 776)}, "tokens"),
        ({"client": with_count(CLIENT, "left_tokens", 14)}, "tokens"),
        ({"orchestrator": with_count(RELAY, "chunks", 776)}, "chunks"),
        ({"client": with_count(CLIENT, "done_events", 8)}, "done events"),
        (
            {"orchestrator": with_count(RELAY, "done_events", 11), "gen0": with_count(GEN, "done_events", 11)},
            "done events",
        ),
        ({"orchestrator": with_count(RELAY, "bytes_in", 200_001)}, "bytes from gen"),
        ({"client": with_count(CLIENT, "bytes", 199_101)}, "bytes to client"),
        ({"gen0": with_count(GEN, "streams.ended.client_gone", 2)}, "replies ended"),
        ({"client": with_count(CLIENT, "role_events", 9)}, "role events"),
    ],
)
def test_what_cancelling_cannot_explain_differs(changes: dict[str, Any], what: str) -> None:
    rows = reconcile(files(**changes))

    assert reconciliation_json(rows)["state"] == "differs"
    assert what in [found.what for found in mismatches(rows)]


def over_before_gen_heard(near_end: int) -> RunFiles:
    gen = with_count(with_count(GEN, "streams.ended.client_gone", 2), "streams.ended.complete", 8)
    return files(gen0=gen, client=with_count(CLIENT, "streams.cancelled_near_end", near_end))


def test_a_relay_that_does_not_drop_gen_is_told_unless_the_stream_was_nearly_over() -> None:
    assert [found.what for found in mismatches(reconcile(over_before_gen_heard(0)))] == ["replies cancelled"]
    assert mismatches(reconcile(over_before_gen_heard(1))) == ()


def test_a_run_without_cancelled_streams_has_no_room() -> None:
    client = {**CLIENT, "streams": {**CLIENT["streams"], "ok": 10, "cancelled": 0}}
    rows = reconcile(files(client=client)) or []

    assert {(row.rule, row.room) for row in rows} == {("equal", 0)}
    assert "replies ended" not in [row.what for row in rows]
    assert "tokens" in [found.what for found in mismatches(rows)]


@pytest.mark.parametrize(
    ("rule", "counts", "room", "holds"),
    [
        ("equal", (3, 3, 3), 0, True),
        ("equal", (3, 3, 2), 9, False),
        ("falling", (5, 5, 2), 3, True),
        ("falling", (5, 5, 2), 2, False),
        ("falling", (5, 2, 3), 9, False),
        ("falling", (900, 2), None, True),
        ("falling", (2, 900), None, False),
        ("rising", (2, 3), 1, True),
        ("rising", (3, 2), 1, False),
    ],
)
def test_a_rule_and_its_room(rule: str, counts: tuple[int, ...], room: int | None, holds: bool) -> None:
    row = Row("what", dict(zip("abc", counts, strict=False)), rule, room)

    assert row.holds is holds
    assert row.equal is (len(set(counts)) == 1)


def cached_rows(**parties: dict[str, Any]) -> list[Row]:
    client = {**CLIENT, "usages": 10, "cached_tokens": 160}
    found = reconcile(files(**{"client": client, **parties})) or []
    return [row for row in found if row.what == "cached tokens told"]


def test_cached_tokens_are_held_against_what_clients_were_told() -> None:
    [row] = cached_rows()
    [wrong] = cached_rows(ctx0=with_count(CTX, "prompt_tokens.cached", 161))

    assert (row.counts, row.equal) == ({"ctx": 160, "client": 160}, True)
    assert not wrong.holds


@pytest.mark.parametrize(
    "changes",
    [
        {"client": CLIENT},
        {"ctx0": with_count(CTX, "answered", 11)},
        {"ctx0": {}},
        {"client": {key: value for key, value in CLIENT.items() if key != "cached_tokens"}},
    ],
    ids=["a usage did not come", "a prefill was asked for twice", "no counters of ctx", "an older client.json"],
)
def test_cached_tokens_are_not_compared_where_the_parties_speak_of_other_replies(changes: dict[str, Any]) -> None:
    assert cached_rows(**changes) == []
