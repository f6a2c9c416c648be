"""A standing load that cannot fit is told beforehand, with what would."""

from __future__ import annotations

import pytest

from loadtest.socket_limits import local_ports, shortfall


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
