"""Which server is chosen: round robin, least outstanding, only ready ones, and others first on a retry."""

from dataclasses import dataclass

import pytest

from sim.orchestrator.routing import Pool


@dataclass(eq=False)
class Server:
    name: str
    outstanding: int = 0
    ready: bool = True


def servers(*outstanding):
    return [Server(name, count) for name, count in zip("abcd", outstanding, strict=False)]


def names(pool, times, **kwargs):
    return "".join(pool.choose(**kwargs).name for _ in range(times))


def test_round_robin_takes_each_in_turn_and_passes_over_those_not_ready():
    targets = servers(0, 0, 0)
    pool = Pool(targets, "round_robin")
    assert names(pool, 7) == "abcabca"
    targets[1].ready = False
    assert names(pool, 4) == "caca"
    targets[1].ready = True
    assert names(pool, 3) == "bca"


def test_least_outstanding_takes_the_emptiest_and_shares_ties():
    targets = servers(2, 0, 1)
    pool = Pool(targets, "least_outstanding")
    assert names(pool, 2) == "bb"
    targets[1].outstanding = 1
    assert names(pool, 4) == "cbcb"
    targets[1].ready = targets[2].ready = False
    assert names(pool, 1) == "a"


@pytest.mark.parametrize("routing", ["round_robin", "least_outstanding"])
def test_a_retry_goes_elsewhere_if_there_is_an_elsewhere(routing):
    targets = servers(0, 5)
    pool = Pool(targets, routing)
    assert names(pool, 3, tried=[targets[0]]) == "bbb"
    targets[1].ready = False
    assert names(pool, 1, tried=[targets[0]]) == "a"


def test_no_ready_server_is_no_choice():
    targets = servers(0)
    pool = Pool(targets, "round_robin")
    assert pool.ready is True
    targets[0].ready = False
    assert pool.ready is False
    assert pool.choose() is None


def test_an_unknown_routing_is_refused():
    with pytest.raises(ValueError, match="'random' is not one of round_robin, least_outstanding"):
        Pool(servers(0), "random")
