"""A standing load that cannot fit is told beforehand, with what would."""

from __future__ import annotations

import pytest

from loadtest.socket_limits import descriptors_of_a_relay, local_ports, relay_shortfall, shortfall


@pytest.mark.parametrize(
    ("streams", "descriptors", "ports", "words"),
    [
        (900, 1024, 28_000, None),
        (924, 1024, None, None),
        (925, 1024, 28_000, "925 streams need 1025 file descriptors, the hard limit is 1024"),
        (30_000, 100_000, 28_232, "30000 streams to one address need as many local ports, there are 28232"),
        (50, 60, None, "ask for at most 0"),
    ],
)
def test_streams_need_descriptors_and_ports(streams, descriptors, ports, words):
    reason = shortfall(streams, descriptors, ports)

    assert reason is None if words is None else words in reason


def test_the_port_range_is_read_where_the_system_says_it(tmp_path):
    path = tmp_path / "range"
    assert local_ports(path) is None
    path.write_text("32768\t60999\n")
    assert local_ports(path) == 28_232


@pytest.mark.parametrize(
    ("streams", "orchestrators", "descriptors", "words"),
    [
        (9_000, 1, 20_000, None),
        (9_950, 1, 20_000, None),
        (9_951, 1, 20_000, "9951 streams need 20002 file descriptors in each orchestrator (two a stream), the hard "),
        (10_000, 2, 20_000, None),
        (20_000, 1, 4_100, "ask for at most 2000"),
        (20_000, 2, 4_500, "ask for at most 4000"),
    ],
)
def test_a_relay_needs_two_descriptors_a_stream(streams, orchestrators, descriptors, words):
    reason = relay_shortfall(streams, orchestrators, descriptors)

    assert reason is None if words is None else words in reason


def test_what_a_refusal_allows_is_allowed():
    for orchestrators in (1, 2, 4):
        reason = relay_shortfall(50_000, orchestrators, 20_000)
        allowed = int(reason.rpartition(" ")[2])

        assert relay_shortfall(allowed, orchestrators, 20_000) is None
        assert descriptors_of_a_relay(allowed + 2 * orchestrators, orchestrators) > 20_000
