"""Settings: what is converted, what is refused and how the refusal reads."""

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.core.settings import (
    CtxSettings,
    GenSettings,
    OrchestratorSettings,
    SettingError,
    SettingInfo,
    describe,
    from_mapping,
    setting,
)

ALL = [CtxSettings, GenSettings, OrchestratorSettings]
each_class = pytest.mark.parametrize("cls", ALL, ids=lambda cls: cls.__name__)


def refusal(cls, where="gen", **values):
    with pytest.raises(SettingError) as caught:
        from_mapping(cls, values, where)
    return str(caught.value)


# --- what is taken ---


@each_class
def test_nothing_given_is_the_defaults(cls):
    assert from_mapping(cls, {}, "x") == cls()


@each_class
def test_its_own_values_read_back_equal(cls):
    assert from_mapping(cls, dataclasses.asdict(cls()), "x") == cls()


@each_class
def test_its_own_values_as_strings_read_back_equal(cls):
    assert from_mapping(cls, {name: str(value) for name, value in dataclasses.asdict(cls()).items()}, "x") == cls()


@pytest.mark.parametrize(
    ("name", "raw", "expected"),
    [
        ("slots", "64", 64),
        ("slots", 64.0, 64),
        ("slots", "64.0", 64),
        ("slots", "1e3", 1000),
        ("slots", " 64 ", 64),
        ("tok_s", 20, 20.0),
        ("tok_s", "15.4", 15.4),
        ("itl_ms", "6.5e1", 65.0),
        ("usage", "null", "null"),
        ("glue_done", True, True),
        ("glue_done", "true", True),
        ("glue_done", "Yes", True),
        ("glue_done", "on", True),
        ("glue_done", "1", True),
        ("glue_done", "FALSE", False),
        ("glue_done", "no", False),
        ("glue_done", "off", False),
        ("glue_done", "0", False),
    ],
)
def test_a_value_is_converted_to_the_fields_type(name, raw, expected):
    value = getattr(from_mapping(GenSettings, {name: raw}, "gen"), name)
    assert value == expected
    assert type(value) is type(expected)


@pytest.mark.parametrize("seed", [2**53 + 1, 2**63 - 1, 10**30 + 1])
@pytest.mark.parametrize("form", [int, str], ids=["number", "string"])
def test_a_whole_number_keeps_its_last_digit(seed, form):
    assert from_mapping(GenSettings, {"seed": form(seed)}, "gen").seed == seed


BOUNDS = [
    pytest.param(cls, f.name, f.metadata[side], step, id=f"{cls.__name__}.{f.name} {side}")
    for cls in ALL
    for f in dataclasses.fields(cls)
    for side, step in (("minimum", -1), ("maximum", 1))
    if f.metadata[side] is not None
]


@pytest.mark.parametrize(("cls", "name", "bound", "step"), BOUNDS)
def test_a_bound_is_taken_and_what_lies_beyond_is_refused(cls, name, bound, step):
    assert getattr(from_mapping(cls, {name: bound}, "x"), name) == bound
    assert " is out of range; allowed: " in refusal(cls, "x", **{name: bound + step})


# --- what is refused ---


def test_an_unknown_key_is_refused_with_the_known_ones():
    message = refusal(OrchestratorSettings, where="orchestrator", polcy="parse")
    assert message == (
        "orchestrator.polcy: unknown setting; known: engine, first_byte_timeout_s, gc, max_body_bytes, "
        "max_event_bytes, policy, retries, routing, stall_timeout_s, usage_by"
    )


@pytest.mark.parametrize(
    ("name", "raw", "why"),
    [
        ("usage", "maybe", "'maybe' is not one of absent, null, final, continuous"),
        ("usage", "", "'' is not one of absent, null, final, continuous"),
        ("usage", "Final", "'Final' is not one of absent, null, final, continuous"),
        ("usage", None, "None is not a string"),
        ("usage", 7, "7 is not a string"),
        ("usage", ["final"], "['final'] is not a string"),
        ("newline", "crcr", "'crcr' is not one of lf, crlf, cr"),
        ("glue_done", 1, "1 is not a boolean (true or false)"),
        ("glue_done", "maybe", "'maybe' is not a boolean (true or false)"),
        ("glue_done", None, "None is not a boolean (true or false)"),
        ("slots", True, "True is not a number"),
        ("slots", None, "None is not a number"),
        ("slots", [], "[] is not a number"),
        ("slots", "many", "'many' is not a number"),
        ("slots", "", "'' is not a number"),
        ("slots", 1.5, "1.5 is not a whole number"),
        ("slots", "1.5", "'1.5' is not a whole number"),
        ("slots", "inf", "'inf' is not a number"),
        ("slots", math.nan, "nan is not a number"),
        ("slots", 0, "0 is out of range; allowed: 1 to 1000000"),
        ("slots", -1, "-1 is out of range; allowed: 1 to 1000000"),
        ("seed", -1, "-1 is out of range; allowed: >= 0"),
        ("tok_s", True, "True is not a number"),
        ("tok_s", {}, "{} is not a number"),
        ("tok_s", "fast", "'fast' is not a number"),
        ("tok_s", math.inf, "inf is not a finite number"),
        ("tok_s", "nan", "'nan' is not a finite number"),
        ("tok_s", 10**400, f"{10**400} is not a number"),
        ("tok_s", -0.1, "-0.1 is out of range; allowed: 0 to 10000"),
        ("chunk_bytes", 2**24 + 1, "16777217 is out of range; allowed: 0 to 16777216"),
        ("transfer_gb_per_s", 0, "0.0 is out of range; allowed: 1e-06 to 1000000"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_a_value_that_cannot_be_used_is_refused_with_what_is_allowed(name, raw, why):
    assert refusal(GenSettings, **{name: raw}) == f"gen.{name}: {why}"


def test_one_bad_value_among_good_ones_is_the_one_named():
    assert refusal(GenSettings, slots=3, seed=1, finish="never") == "gen.finish: 'never' is not one of last, own"


@given(
    st.sampled_from([(cls, f.name) for cls in ALL for f in dataclasses.fields(cls)]),
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.lists(st.integers(), max_size=2),
)
def test_any_value_is_taken_or_refused_by_its_name_and_what_is_taken_reads_back(place, raw):
    cls, name = place
    try:
        settings = from_mapping(cls, {name: raw}, "here")
    except SettingError as refused:
        error = refused
    else:
        assert from_mapping(cls, dataclasses.asdict(settings), "here") == settings
        return
    assert str(error).startswith(f"here.{name}: ")


# --- inter-token latency ---


@pytest.mark.parametrize(
    ("values", "itl_s"),
    [({}, 0.065), ({"itl_ms": 20}, 0.02), ({"tok_s": 20}, 0.05), ({"itl_ms": 0, "tok_s": 15.4}, 1 / 15.4)],
    ids=repr,
)
def test_inter_token_latency_is_itl_ms_or_tok_s_or_65_ms(values, itl_s):
    assert from_mapping(GenSettings, values, "gen").itl_s == pytest.approx(itl_s, rel=1e-12)


def test_itl_ms_and_tok_s_together_are_refused():
    assert refusal(GenSettings, itl_ms=65, tok_s="20") == (
        "gen.itl_ms: 65 and tok_s 20 are both set; give one of the two"
    )
    with pytest.raises(SettingError, match=r"^itl_ms: 65 and tok_s 20 are both set; give one of the two$"):
        GenSettings(itl_ms=65, tok_s=20)


# --- description ---


def test_a_row_says_type_default_and_what_is_allowed():
    rows = {row.name: row for row in describe(GenSettings)}
    assert rows["newline"] == SettingInfo("newline", "str", "lf", "lf, crlf, cr", "line ending of the stream")
    assert (rows["slots"].type_name, rows["slots"].default) == ("int", 20_000)
    assert {name: rows[name].allowed for name in ("slots", "chunk_bytes", "seed", "glue_done")} == {
        "slots": "1 to 1000000",
        "chunk_bytes": "0 to 16777216",
        "seed": ">= 0",
        "glue_done": "any",
    }


def test_an_upper_bound_alone_is_described_and_held():
    @dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
    class Small:
        size: int = setting(1, "how big", maximum=5)

    assert describe(Small) == [SettingInfo("size", "int", 1, "<= 5", "how big")]
    assert refusal(Small, where="small", size=6) == "small.size: 6 is out of range; allowed: <= 5"
    assert from_mapping(Small, {"size": -9}, "small").size == -9


@each_class
def test_every_setting_is_described_in_order_and_its_default_allowed(cls):
    rows = describe(cls)
    assert [row.name for row in rows] == [f.name for f in dataclasses.fields(cls)]
    assert all(row.description and row.type_name in ("int", "float", "str", "bool") for row in rows)
    for row in rows:
        assert getattr(from_mapping(cls, {row.name: row.default}, "x"), row.name) == row.default
        assert type(row.default).__name__ == row.type_name


@each_class
def test_settings_cannot_be_changed(cls):
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(cls(), dataclasses.fields(cls)[0].name, 1)
