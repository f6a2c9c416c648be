"""Scenarios: those that come with the project are right, and every fault of a file is told at once."""

from __future__ import annotations

import pytest

from loadtest.load_files import lengths_of
from loadtest.scenario import TABLES, load_scenario, scenario_names
from loadtest.workload import plan_requests
from sim.core.settings import SettingError


def written(tmp_path, text):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return str(path)


def faults(name, *overrides):
    with pytest.raises(SettingError) as caught:
        load_scenario(name, overrides)
    return str(caught.value).splitlines()


NAMES = [
    "azure-code", "azure-conv", "burst-start", "cancel-storm", "lockstep", "long-context", "mooncake", "ramp-to-limit",
    "seed", "smoke", "soak", "steady",
]  # fmt: skip


def test_the_list_of_scenarios():
    assert scenario_names() == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_scenario_is_checked_described_and_makes_a_schedule(name):
    scenario = load_scenario(name)

    assert scenario.name == name
    assert scenario.description
    assert list(scenario.tables()) == list(TABLES)
    assert plan_requests(scenario.load, 1, lengths=lengths_of(scenario.load))


def test_the_seed_scenario_is_the_seed_load():
    seed = load_scenario("seed")

    assert seed.load.streams / seed.gen.itl_s == pytest.approx(15_400)
    assert (seed.gen.chunk_bytes, seed.gen.usage, seed.gen.tokens_per_chunk) == (258, "final", 1)
    assert (seed.load.arrivals, seed.load.ramp_s, seed.load.duration_s) == ("staggered", 8.0, 0.0)
    assert seed.load.output_tokens * seed.gen.itl_s > 3600


def test_a_file_of_ones_own_starts_from_the_defaults(tmp_path):
    scenario = load_scenario(written(tmp_path, '[gen]\nusage = "null"\n'))

    assert scenario.name == "mine"
    assert scenario.gen.usage == "null"
    assert scenario.ctx.cache_hit_ratio == 0.25


def test_every_fault_is_told_with_file_table_key_and_what_is_allowed(tmp_path):
    path = written(
        tmp_path,
        """
        [scenario]
        name = 5
        colour = "red"
        [ctx]
        slots = 0
        [gen]
        usage = "maybe"
        speed = 1
        [load]
        arrivals = "poisson"
        streams = "many"
        [engine]
        """,
    )
    told = faults(path, "load.seed=-1", "usage_by=nobody")

    assert told[:4] == [
        f"{path}:13: [engine]: unknown table; known: scenario, ctx, gen, orchestrator, load",
        f"{path}:3: scenario.name: 5 is not a string",
        f"{path}:4: scenario.colour: unknown key; known: name, description",
        f"{path}:6: ctx.slots: 0 is out of range; allowed: 1 to 100000",
    ]
    assert told[4] == f"{path}:8: gen.usage: 'maybe' is not one of absent, null, final, continuous"
    assert told[5].startswith(f"{path}:9: gen.speed: unknown key; known: apply_ctx_usage, chunk_bytes")
    assert told[6:] == [
        "--set: orchestrator.usage_by: 'nobody' is not one of orchestrator, gen",
        f"{path}:12: load.streams: 'many' is not a number",
        "--set: load.seed: -1 is out of range; allowed: >= 0",
    ]


def test_a_rule_between_keys_is_told_when_each_key_is_right(tmp_path):
    path = written(tmp_path, '[load]\narrivals = "poisson"\n')

    assert faults(path) == [
        f"{path}:1: load.request_rate: poisson arrivals need a rate above 0",
        f"{path}:1: load.duration_s: poisson arrivals need an end: set duration_s or limit",
    ]


def test_a_rule_between_keys_is_told_at_the_key_it_names(tmp_path):
    path = written(tmp_path, '[load]\narrivals = "steps"\n\nstep_rates = "1,x"\n[gen]\ntok_s = 1\nitl_ms = 1\n')

    assert faults(path, "burstiness=2", "turns=2") == [
        f"{path}:7: gen.itl_ms: 1 and tok_s 1 are both set; give one of the two",
        "--set: load.burstiness: steps arrivals have none; it is for gamma",
        f"{path}:4: load.step_rates: 'x' is not a number from 0 to 100000",
    ]


def test_a_bare_key_is_enough_where_one_table_has_it():
    scenario = load_scenario("smoke", ["streams=7", "usage=null", "cache_hit_ratio = 0.5", "usage_by=gen"])

    assert (scenario.load.streams, scenario.gen.usage) == (7, "null")
    assert (scenario.ctx.cache_hit_ratio, scenario.orchestrator.usage_by) == (0.5, "gen")


def test_overrides_that_cannot_be_understood_are_told():
    told = faults("smoke", "seed=3", "usagee=null", "engine", "motor.slots=1", "gen.slot=1", "=5")

    assert told[0] == "--set seed: more than one table has it; say ctx.seed or gen.seed or load.seed"
    assert told[1].startswith("--set usagee: unknown key; known: apply_ctx_usage, arrivals,")
    assert told[2] == "--set 'engine': not of the form key=value"
    assert told[3] == "--set motor.slots: unknown table 'motor'; known: ctx, gen, orchestrator, load"
    assert told[4] == "--set '=5': not of the form key=value"
    assert told[5].startswith("--set: gen.slot: unknown key; known: apply_ctx_usage,")


def test_the_last_of_two_overrides_holds():
    assert load_scenario("smoke", ["streams=7", "load.streams=9"]).load.streams == 9


@pytest.mark.parametrize(
    ("overrides", "itl_s"), [(["itl_ms=20"], 0.02), (["gen.itl_ms=0", "gen.tok_s=4"], 0.25), (["tok_s=8"], 0.125)]
)
def test_an_overridden_token_rate_takes_the_place_of_the_files(overrides, itl_s):
    assert load_scenario("smoke", overrides).gen.itl_s == itl_s


def test_two_token_rates_in_one_place_are_refused():
    assert "are both set" in faults("smoke", "itl_ms=20", "tok_s=5")[0]


def test_an_unknown_scenario_is_told_with_the_list(tmp_path):
    assert faults("nope") == [f"unknown scenario 'nope'; there are {', '.join(NAMES)}, or give a .toml file"]
    assert faults(f"{tmp_path}/nope.toml") == [f"{tmp_path}/nope.toml: cannot read: No such file or directory"]


def test_a_file_that_is_not_toml_is_told_with_the_place(tmp_path):
    path = written(tmp_path, "[gen\n")

    assert faults(path)[0].startswith(f"{path}:1: not TOML: ")
    assert faults(written(tmp_path, "gen = 5\n")) == [f"{path}:1: gen: 5 is not a table"]


TRACE = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.5,7,5\n"


def test_a_trace_counts_from_the_files_folder_and_from_the_working_directory_in_an_override(tmp_path, monkeypatch):
    (tmp_path / "t.csv").write_text(TRACE)
    path = written(tmp_path, '[load]\ntrace = "t.csv"\n')

    assert load_scenario(path).load.trace == str(tmp_path / "t.csv")
    monkeypatch.chdir(tmp_path)
    replayed = load_scenario("azure-conv", ["trace=t.csv"])
    assert (replayed.load.arrivals, replayed.load.trace) == ("trace", "t.csv")


def test_a_trace_that_cannot_be_replayed_is_a_fault_of_the_scenario(tmp_path):
    (tmp_path / "t.csv").write_text(TRACE + "2023-11-16 18:15:46.4,7,5\n")

    assert faults("azure-conv", f"trace={tmp_path}/t.csv") == [
        f"--set: load.trace: {tmp_path}/t.csv:3: recorded 0.1 s earlier than the row before it"
    ]
    assert faults("azure-conv", "trace=/no/such.csv") == [
        "--set: load.trace: /no/such.csv: cannot read: No such file or directory"
    ]
