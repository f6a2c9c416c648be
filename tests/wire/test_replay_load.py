"""A recording over Locust: its requests in its order, with its lengths, at the times that its schedule says."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadtest.load_files import trace_of
from loadtest.workload import plan_requests
from tests.pure.replies import events_of
from tests.wire.locust_runs import headless, locust, plan_for
from tests.wire.scripted import scripted

SAMPLES = Path(__file__).parents[3] / "shared" / "traces"
LIMIT = 40
RECORDINGS = {
    "azure-code": ("azure_llm_2023_code_head1500.csv", {"speed": 40.0}),
    "azure-conv": ("azure_llm_2023_conv_head2500.csv", {"speed": 20.0, "window_from_s": 60.0}),
    "mooncake": ("mooncake_fast25_conversation_head240.jsonl", {"speed": 10.0}),
}
OWN = """\
Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,47,18,65,Conversation log
5,GPT-4,20,5,25,API log
broken
6,GPT-4,10,0,10,API log
"""


async def as_asked(peer, request):
    await peer.open_stream()
    for event in events_of(request.json["max_tokens"]):
        await peer.chunk(event)
    await peer.end_stream()


def asked(request):
    return len(request.json["messages"][0]["content"]) // 4, request.json["max_tokens"]


async def replayed(tmp_path, **load):
    """What was asked of the server, in order; the plan's requests; the run."""
    async with scripted(as_asked) as server:
        plan = plan_for(server.url, tmp_path, sample_every=0, **load)
        async with locust(tmp_path, *headless(plan, tmp_path)) as run:
            assert await run.end() == 0
        requests = [asked(request) for request in server.requests]
    return requests, plan_requests(plan.settings, plan.settings.seed, trace_of(plan.settings).rows), run


def held_to_its_schedule(run, planned):
    """Each request was planned when the schedule says, and none was sent before."""
    start_ns = run.streams[0]["planned_ns"] - planned[0].due_ns
    assert [line["planned_ns"] - start_ns for line in run.streams] == [request.due_ns for request in planned]
    assert all(line["sent_ns"] >= line["planned_ns"] for line in run.streams)


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="the recorded samples are not part of the project")
@pytest.mark.parametrize("name", RECORDINGS)
async def test_a_recorded_sample_is_sent_in_its_order_with_its_lengths(tmp_path, name):
    file, load = RECORDINGS[name]
    requests, planned, run = await replayed(tmp_path, trace=str(SAMPLES / file), limit=LIMIT, **load)

    assert len(requests) == LIMIT
    assert sorted(requests) == sorted((request.prompt_tokens, request.output_tokens) for request in planned)
    assert [line["tokens"] for line in run.streams] == [request.output_tokens for request in planned]
    held_to_its_schedule(run, planned)


async def test_a_recording_of_ones_own_is_sent_without_its_broken_rows(tmp_path):
    path = tmp_path / "burst.csv"
    path.write_text(OWN)
    requests, planned, run = await replayed(tmp_path, trace=str(path), skip_bad_rows=True, speed=4.0)

    assert requests == [(47, 18), (20, 5), (10, 1)]
    assert [request.due_ns for request in planned] == [0, 125_000_000, 250_000_000]
    held_to_its_schedule(run, planned)


async def test_by_hand_it_is_told_what_was_left_out(tmp_path):
    path = tmp_path / "burst.csv"
    path.write_text(OWN)
    arguments = ["--headless", "-u", "1", "-r", "1", "--only-summary", "--scenario", "smoke"]
    arguments += ["--set", f"trace={path}", "--set", "skip_bad_rows=true", "--set", "spread=false"]
    async with scripted(as_asked) as server, locust(tmp_path, *arguments, "--host", server.url) as run:
        assert await run.end() == 0
        assert len(server.requests) == 3

    assert f"locust: {path}: broken rows left out: 1; the first: {path}:4: 1 fields, expected 6\n" in run.stderr
    assert f"locust: {path}: 3 requests are recorded at 2 instants and replayed so: " in run.stderr


async def test_a_plan_whose_recording_is_broken_is_refused_with_the_line(tmp_path):
    path = tmp_path / "burst.csv"
    path.write_text(OWN)
    plan = plan_for("http://127.0.0.1:1", tmp_path, trace=str(path))
    async with locust(tmp_path, *headless(plan, tmp_path)) as run:
        assert await run.end() == 2

    assert f"locust: {path}:4: 1 fields, expected 6" in run.stderr
