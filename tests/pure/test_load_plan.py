"""LoadSettings and LoadPlan: what is accepted, what is refused and how, and that a plan file says all."""

from __future__ import annotations

import json

import pytest

from loadtest.load_settings import LoadSettings
from loadtest.plan import LoadPlan, Target
from sim.core.settings import GenSettings, SettingError, describe, from_mapping

PLAN = LoadPlan(
    host="http://127.0.0.1:8000",
    settings=LoadSettings(arrivals="poisson", request_rate=3, duration_s=10),
    gen=GenSettings(usage="null"),
    cache_hit_ratio=0.5,
    may_end_early=True,
    out="/some/where",
    ops="127.0.0.1:0",
)


def test_a_plan_file_gives_the_same_plan_back(tmp_path):
    PLAN.write(tmp_path / "plan.json")

    assert LoadPlan.read(tmp_path / "plan.json") == PLAN


def test_a_plan_for_servers_that_are_not_ours_needs_no_settings_of_theirs(tmp_path):
    plan = LoadPlan(host="http://h:1", settings=LoadSettings(), usage_by_ctx=False)

    assert LoadPlan.from_json(json.loads(json.dumps(plan.to_json()))) == plan


@pytest.mark.parametrize(
    ("values", "at_once"),
    [
        ({"streams": 700}, 700),
        ({"streams": 700, "max_concurrency": 50}, 50),
        ({"arrivals": "bursts", "burst_size": 300}, 300),
        ({"arrivals": "closed", "max_concurrency": 40, "limit": 400}, 40),
        ({"arrivals": "poisson", "request_rate": 5, "duration_s": 9, "max_concurrency": 8}, 8),
        ({"arrivals": "poisson", "request_rate": 5, "duration_s": 9}, 0),
    ],
)
def test_how_many_streams_there_are_at_once_is_known_for_some_loads(values, at_once):
    assert LoadSettings(**values).streams_at_once == at_once


def test_streams_may_end_early_only_where_the_plan_says_so():
    assert LoadPlan.from_json({"host": "http://h:1", "settings": {}}).may_end_early is False
    assert LoadPlan.from_json({"host": "http://h:1", "settings": {}, "may_end_early": True}).may_end_early is True


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"host": "https://h:1"}, "plan.host: 'https://h:1' is not an http:// URL"),
        ({"host": "http://h:port"}, "plan.host: 'http://h:port' is not of the form"),
        ({"host": 5}, "plan.host: 5 is not a string"),
        ({"settings": {"streams": 0}}, "plan.settings.streams: 0 is out of range; allowed: 1 to 1000000"),
        ({"settings": None}, "plan.settings: None is not an object"),
        ({"gen": {"usage": "maybe"}}, "plan.gen.usage: 'maybe' is not one of absent, null, final, continuous"),
        ({"cache_hit_ratio": 2}, "plan.cache_hit_ratio: 2 is out of range; allowed: 0 to 1"),
        ({"cache_hit_ratio": "x"}, "plan.cache_hit_ratio: 'x' is not a number"),
        ({"usage_by_ctx": 0}, "plan.usage_by_ctx: 0 is not true or false"),
        ({"may_end_early": "yes"}, "plan.may_end_early: 'yes' is not true or false"),
        ({"may_end_early": None}, "plan.may_end_early: None is not true or false"),
        ({"ops": "8000"}, "plan.ops: '8000' is not of the form HOST:PORT"),
        ({"colour": "red"}, "plan.colour: unknown key; known: host, settings, gen"),
    ],
)
def test_a_fault_of_a_plan_is_told_with_its_key(changes, message):
    with pytest.raises(SettingError) as caught:
        LoadPlan.from_json({**PLAN.to_json(), **changes})

    assert str(caught.value).startswith(message)


def test_a_plan_file_that_cannot_be_read_is_told(tmp_path):
    with pytest.raises(SettingError, match=r"cannot read .*nope\.json: No such file"):
        LoadPlan.read(tmp_path / "nope.json")
    (tmp_path / "plan.json").write_text("{")
    with pytest.raises(SettingError, match="is not JSON"):
        LoadPlan.read(tmp_path / "plan.json")
    with pytest.raises(SettingError, match="plan: list is not an object"):
        LoadPlan.from_json([])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"stream": False, "goodput_ttft_ms": 1}, "load.goodput_ttft_ms: it is for streams, and stream is false"),
        ({"stream": False, "goodput_itl_ms": 1}, "load.goodput_itl_ms: it is for streams, and stream is false"),
        ({"stream": False, "cancel_share": 0.5}, "load.cancel_share: it is for streams, and stream is false"),
        ({"arrivals": "trace"}, "load.trace: arrivals are 'trace', but no file is given"),
        ({"arrivals": "poisson", "duration_s": 1}, "load.request_rate: poisson arrivals need a rate above 0"),
        ({"arrivals": "constant", "request_rate": 1}, "load.duration_s: constant arrivals need an end"),
        ({"lengths": "mooncake"}, "load.lengths: 'mooncake' is not one of fixed, range, azure-conv, azure-code, file"),
        (
            {"arrivals": "ramp", "duration_s": 1},
            "load.end_request_rate: a ramp needs a rate above 0 at one of its ends",
        ),
        ({"arrivals": "ramp", "request_rate": 1}, "load.duration_s: a ramp needs its length"),
        ({"arrivals": "steps"}, "load.step_rates: steps need at least one rate above 0"),
        ({"arrivals": "steps", "step_rates": "1,-2"}, "load.step_rates: '-2' is not a number from 0 to 100000"),
        ({"arrivals": "closed", "limit": 1}, "load.max_concurrency: closed arrivals need the number of requests"),
        ({"arrivals": "bursts", "burst_every_s": 5}, "load.duration_s: repeated bursts need an end"),
        ({"lengths": "range"}, "load.prompt_tokens_max: 0 is below prompt_tokens, 64"),
        ({"output_tokens_max": 9}, "load.output_tokens_max: lengths are 'fixed'; it is for range"),
        ({"lengths": "file"}, "load.lengths_file: goes with lengths = 'file', and that with it"),
        ({"turns": 2, "trace": "t.csv"}, "load.turns: a replay has its own prompts"),
        ({"cancel_share": 0.5, "stream": False}, "load.cancel_share: it is for streams, and stream is false"),
        ({"speed": 0}, "load.speed: 0.0 is out of range; allowed: 0.001 to 10000"),
    ],
)
def test_settings_that_make_no_load_are_refused(values, message):
    with pytest.raises(SettingError) as caught:
        from_mapping(LoadSettings, values, "load")

    assert str(caught.value).startswith(message)


def test_all_rules_that_are_broken_are_told_one_a_line():
    values = {"arrivals": "gamma", "step_rates": "1", "output_tokens_max": 9, "cancel_share": 1, "stream": False}

    with pytest.raises(SettingError) as caught:
        LoadPlan.from_json({**PLAN.to_json(), "settings": values})

    assert [line.partition(": ")[0] for line in str(caught.value).split("\n")] == [
        f"plan.settings.{key}"
        for key in ("request_rate", "step_rates", "output_tokens_max", "cancel_share", "duration_s")
    ]


def test_a_trace_makes_the_arrivals_its_own():
    assert LoadSettings(arrivals="poisson", request_rate=5, duration_s=60, trace="t.csv").arrivals == "trace"


@pytest.mark.parametrize(
    ("settings", "end_s"),
    [
        (LoadSettings(), None),
        (LoadSettings(ramp_s=8, duration_s=60), 68),
        (LoadSettings(arrivals="constant", request_rate=1, duration_s=60), 60),
    ],
)
def test_the_end_of_a_load_counts_a_standing_loads_ramp_in(settings, end_s):
    assert settings.end_s == end_s


def test_every_setting_describes_itself():
    assert all(info.description and info.allowed for info in describe(LoadSettings))


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("http://127.0.0.1:8000", Target("127.0.0.1", 8000, "")),
        ("http://localhost", Target("localhost", 80, "")),
        ("localhost:9", Target("localhost", 9, "")),
        ("http://[::1]:9/base/", Target("::1", 9, "/base")),
    ],
)
def test_a_target_is_a_plain_http_address(url, target):
    assert Target.parse(url) == target
