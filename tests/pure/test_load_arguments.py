"""The locustfile's own options: which operations port a process has, and loads that cannot fit."""

from __future__ import annotations

import argparse

import pytest

from loadtest.load_arguments import add_arguments, check_limits, ops_address, plan_of
from loadtest.load_settings import LoadSettings
from loadtest.plan import LoadPlan
from sim.core.settings import SettingError


class Parser(argparse.ArgumentParser):
    """Locust's, which knows what is not for the web UI's form; and its own --processes."""

    def add_argument(self, *names, include_in_web_ui=True, **how):
        return super().add_argument(*names, **how)


def options(*arguments):
    parser = Parser()
    parser.add_argument("--processes", type=int, default=None)
    add_arguments(parser)
    return parser.parse_args(arguments)


PLAN = LoadPlan(host="http://h:1", settings=LoadSettings(), ops="127.0.0.1:7")


@pytest.mark.parametrize(
    ("arguments", "plan", "address"),
    [
        ((), None, "127.0.0.1:0"),
        (("--ops", "0.0.0.0:9"), None, "0.0.0.0:9"),
        ((), PLAN, "127.0.0.1:7"),
        (("--ops", "[::1]:0"), PLAN, "[::1]:0"),
        (("--processes", "4"), PLAN, "127.0.0.1:7"),
        (("--processes", "4", "--ops", "127.0.0.1:0"), None, "127.0.0.1:0"),
    ],
)
def test_a_worker_always_has_an_operations_port_and_the_option_beats_the_plan(arguments, plan, address):
    assert ops_address(options(*arguments), plan) == address


def test_by_hand_a_process_alone_has_none_unless_told():
    plan = plan_of(options("--set", "streams=3"), "http://h:1")

    assert (plan.settings.streams, plan.usage_by_ctx, plan.out) == (3, False, None)
    assert ops_address(options(), plan) is None


@pytest.mark.parametrize("address", ["9000", ":9", "h:", "h:70000", "h:x"])
def test_an_address_that_is_none_is_refused(address):
    with pytest.raises(SettingError, match=f"--ops: {address!r} is not of the form HOST:PORT"):
        ops_address(options("--ops", address), None)


def test_one_port_for_several_processes_is_refused():
    with pytest.raises(SettingError, match="one port for several processes; with --processes give port 0"):
        ops_address(options("--ops", "127.0.0.1:9", "--processes", "2"), None)


def test_without_a_host_there_is_no_plan():
    with pytest.raises(SettingError, match="--host: say where"):
        plan_of(options(), None)


def test_what_cannot_fit_is_refused_and_a_workers_share_of_it_may_fit():
    settings = LoadSettings(streams=900_000)
    with pytest.raises(SettingError, match="streams: 1800000 streams"):
        check_limits(settings, 2)
    check_limits(settings, 1 / 900)
