"""What a request holds: lengths from the settings and the seed, prompts of exactly that many tokens, HTTP bytes."""

from __future__ import annotations

import json
import math
import statistics
from random import Random

import pytest

from loadtest.lengths import PRESETS, LogNormal
from loadtest.load_settings import LoadSettings
from loadtest.plan import Target
from loadtest.prompts import Prompts
from loadtest.traces.rows import TraceRow
from loadtest.workload import PlannedRequest, plan_requests, request_bytes
from sim.core.requests import read_client_request

S = 1_000_000_000
TARGET = Target("127.0.0.1", 8000, "")


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("part", ["prompt", "output"])
def test_a_preset_has_the_median_and_the_mean_it_is_made_from(preset, part):
    lengths = getattr(PRESETS[preset], part)
    rng = Random(3)
    drawn = [lengths.draw(rng) for _ in range(60_000)]

    assert statistics.median(drawn) == pytest.approx(lengths.p50_tokens, rel=0.03)
    assert statistics.fmean(drawn) == pytest.approx(lengths.mean_tokens, rel=0.04)
    assert min(drawn) >= 1


def test_sigma_follows_from_median_and_mean():
    assert LogNormal(100, 100 * math.exp(0.5)).sigma == pytest.approx(1.0)


def test_a_staggered_plan_has_the_fixed_lengths_and_the_ramp():
    settings = LoadSettings(streams=3, ramp_s=3.0, prompt_tokens=9, output_tokens=5, duration_s=1.0)

    assert plan_requests(settings, 1) == [
        PlannedRequest(0, 0, 9, 5), PlannedRequest(1, S, 9, 5), PlannedRequest(2, 2 * S, 9, 5)
    ]  # fmt: skip


def test_a_plan_follows_from_its_seed_and_lengths_do_not_move_arrivals():
    settings = LoadSettings(arrivals="poisson", request_rate=20, duration_s=5, lengths="azure-conv")
    plan = plan_requests(settings, 1)
    fixed = plan_requests(LoadSettings(arrivals="poisson", request_rate=20, duration_s=5), 1)

    assert plan == plan_requests(settings, 1)
    assert plan != plan_requests(settings, 2)
    assert [r.due_ns for r in plan] == [r.due_ns for r in fixed]
    assert all(r.due_ns < 5 * S for r in plan)
    assert len({r.output_tokens for r in plan}) > 10


def test_a_replay_has_the_recordings_times_and_lengths():
    rows = [TraceRow(50 * S, 10, 1), TraceRow(54 * S, 20, 2), TraceRow(58 * S, 30, 3), TraceRow(90 * S, 40, 4)]
    settings = LoadSettings(trace="some.csv", speed=4.0, duration_s=5.0, lengths="azure-code")

    assert plan_requests(settings, 1, rows) == [
        PlannedRequest(0, 0, 10, 1), PlannedRequest(1, S, 20, 2), PlannedRequest(2, 2 * S, 30, 3)
    ]  # fmt: skip


@pytest.mark.parametrize("endpoint", ["chat", "completions"])
@pytest.mark.parametrize("tokens", [1, 2, 63, 1000, 40_000])
def test_a_servers_own_count_of_the_prompt_is_what_was_planned(endpoint, tokens):
    settings = LoadSettings(endpoint=endpoint)
    prompt = Prompts(1).make(7, tokens)
    _, _, payload = request_bytes(TARGET, settings, prompt, 5).partition(b"\r\n\r\n")

    assert len(prompt) == 4 * tokens
    assert read_client_request(json.loads(payload), endpoint).prompt_tokens == tokens


def test_prompts_differ_and_can_be_made_again():
    prompts = Prompts(1)
    made = [prompts.make(seq, 64) for seq in range(2000)]

    assert len(set(made)) == 2000
    assert made == [Prompts(1).make(seq, 64) for seq in range(2000)]
    assert Prompts(2).make(0, 64) != made[0]


@pytest.mark.parametrize(
    ("changes", "path", "stream", "include_usage"),
    [
        ({}, b"/v1/chat/completions", True, True),
        ({"endpoint": "completions", "include_usage": False}, b"/v1/completions", True, False),
        ({"stream": False}, b"/v1/chat/completions", False, False),
    ],
)
def test_the_request_asks_for_what_the_settings_say(changes, path, stream, include_usage):
    settings = LoadSettings(**changes)
    head, _, payload = request_bytes(Target("::1", 80, "/base"), settings, "12345", 17).partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    request = read_client_request(json.loads(payload), settings.endpoint)

    assert lines[0] == b"POST /base" + path + b" HTTP/1.1"
    assert b"Host: [::1]:80" in lines
    assert b"Content-Length: %d" % len(payload) in lines
    assert (request.stream, request.include_usage, request.max_tokens) == (stream, include_usage, 17)
