"""The body of POST /admin/rate: what it makes of the settings, and what it refuses."""

from __future__ import annotations

import pytest

from sim.core.settings import GenSettings, SettingError
from sim.gen_server.live_rate import pace_json, read_pace


@pytest.mark.parametrize(
    ("body", "tok_s", "itl_ms"), [({"tok_s": 25}, 25.0, 0.0), ({"itl_ms": 12.5}, 0.0, 12.5)], ids=["tok_s", "itl_ms"]
)
def test_the_pace_replaces_whichever_was_set(body, tok_s, itl_ms):
    for before in (GenSettings(tok_s=15, seed=7), GenSettings(itl_ms=65, seed=7)):
        after = read_pace(body, before)

        assert (after.tok_s, after.itl_ms, after.seed) == (tok_s, itl_ms, 7)


def test_the_pace_in_force_is_told_both_ways():
    assert pace_json(GenSettings(tok_s=25)) == {"tok_s": 25.0, "itl_ms": 40.0}
    assert pace_json(GenSettings(itl_ms=50)) == {"tok_s": 20.0, "itl_ms": 50.0}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (None, "the body must be"),
        ([], "the body must be"),
        ({}, "the body must be"),
        ({"rate": 5}, "the body must be"),
        ({"tok_s": 5, "itl_ms": 200}, "the body must be"),
        ({"tok_s": "5"}, "tok_s: '5' is not a number above 0"),
        ({"tok_s": True}, "tok_s: True is not a number above 0"),
        ({"tok_s": None}, "tok_s: None is not a number above 0"),
        ({"tok_s": 0}, "tok_s: 0 is not a number above 0"),
        ({"itl_ms": 0.0}, "itl_ms: 0.0 is not a number above 0"),
        ({"tok_s": -1}, "tok_s: -1.0 is out of range; allowed: 0 to 10000"),
        ({"tok_s": 10_001}, "tok_s: 10001.0 is out of range; allowed: 0 to 10000"),
        ({"itl_ms": 600_001}, "itl_ms: 600001.0 is out of range; allowed: 0 to 600000"),
        (
            {"tok_s": 1e-300},
            "tok_s: 1e-300 is no pace that can be kept; allowed: 0.001 to 600000 ms from token to token",
        ),
        ({"tok_s": 0.001}, "tok_s: 0.001 is no pace"),
        ({"itl_ms": 1e-300}, "itl_ms: 1e-300 is no pace"),
        ({"itl_ms": float("nan")}, "itl_ms: nan is not a finite number"),
    ],
)
def test_what_is_no_pace_is_refused_with_what_is_allowed(body, words):
    with pytest.raises(SettingError, match=words.replace("(", r"\(")):
        read_pace(body, GenSettings())
