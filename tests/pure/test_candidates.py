"""What the bench says of the programs it compares with, and what it starts them with."""

import dataclasses
import json

import pytest

from bench.candidate import Addresses, Load
from bench.candidates import clients, environment, gens, relays
from bench.candidates.environment import Environment
from bench.candidates.programs.tally import Tally

ADDRESSES = Addresses(port=21001, gen_url="http://127.0.0.1:21002", target_url="http://127.0.0.1:9", second_port=21003)
LOAD = Load(streams=1000, tok_s=15.0, ramp_s=4.0, duration_s=20.0)


def test_every_candidate_has_a_name_of_its_own_and_its_kind():
    of_kind = {"relay": relays(), "gen": gens(), "client": clients()}
    names = [candidate.name for candidates in of_kind.values() for candidate in candidates]
    assert len(set(names)) == len(names) == 11
    assert all(candidate.kind == kind for kind, candidates in of_kind.items() for candidate in candidates)


def test_an_environment_says_what_is_missing_and_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setattr(environment, "ROOT", tmp_path)
    made = Environment("x")
    assert made.missing() == "no .bench/x: `make bench-env` makes it"

    made.directory.mkdir(parents=True)
    log = tmp_path / ".bench" / "x.log"
    log.write_text("WARNING: slow\nERROR: No matching distribution found for x==1\nERROR: gave up\n")
    assert made.missing() == (
        "`make bench-env` could not make .bench/x (No matching distribution found for x==1; all of it in "
        ".bench/x.log): run it again"
    )
    assert made.version_of("x")() == "not installed"

    (made.directory / ".installed").touch()
    assert made.missing() is None


def test_a_relay_is_told_whom_to_talk_to_and_keeps_to_loopback(tmp_path):
    for relay in relays():
        argv = relay.argv(ADDRESSES, tmp_path, None)
        said = " ".join(argv) + (tmp_path / "nginx.conf").read_text() if relay.name == "nginx" else " ".join(argv)
        assert "21001" in said
        assert "127.0.0.1:21002" in said
        assert "0.0.0.0" not in said


@pytest.mark.parametrize(
    ("name", "itl"), [("guidellm-mock", ("--itl-ms", "50.0")), ("aiperf-mock-server", ("--itl", "50.0"))]
)
def test_a_gen_is_told_the_rate_as_inter_token_latency(name, itl, tmp_path):
    gen = next(gen for gen in gens() if gen.name == name)
    argv = list(gen.argv(ADDRESSES, tmp_path, dataclasses.replace(LOAD, tok_s=20.0)))
    place = argv.index(itl[0])
    assert tuple(argv[place : place + 2]) == itl


def test_a_guidellm_reply_outlasts_the_load(tmp_path):
    argv = list(gens()[1].argv(ADDRESSES, tmp_path, LOAD))
    assert int(argv[argv.index("--output-tokens") + 1]) == 24 * 15 * 3 / 2 + 100


def test_locust_gets_the_load_as_users_and_spawn_rate(tmp_path):
    argv = " ".join(clients()[0].argv(ADDRESSES, tmp_path, LOAD))
    assert "-u 1000 -r 250 " in argv
    assert argv.endswith("--duration-s 20.0")


def test_a_client_without_a_load_is_a_mistake_of_the_caller(tmp_path):
    for client in clients():
        with pytest.raises(ValueError, match="needs a load"):
            client.argv(ADDRESSES, tmp_path, None)


def test_a_tally_is_told_so_far_and_at_the_end(tmp_path):
    tally = Tally(str(tmp_path))
    tally.tokens, tally.streams, tally.failed, tally.live = 7, 3, 1, 2
    tally.write()
    told = json.loads((tmp_path / "progress.json").read_text())
    assert told == {"t_ns": told["t_ns"], "tokens": 7, "live": 2}
    assert json.loads(tally.to_json()) == {"tokens": 7, "streams": 3, "failed": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["progress.json"]
