"""The policies known at start: what can be loaded, how a switch moves one index, what happens when one fails."""

import sys
import textwrap

import pytest

from sim.core.usage import Usage
from sim.orchestrator.arms import NeedsGenError, PolicyFailedError, UnknownPolicyError, build_arms
from sim.orchestrator.policies import BUILTIN

CTX = Usage(prompt_tokens=100, cached_tokens=25, completion_tokens=1)
PLAIN = b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2}}\n\n'
REWRITTEN = (
    b'data: {"choices":[],"usage":{"prompt_tokens":100,"completion_tokens":2,"total_tokens":102,'
    b'"prompt_tokens_details":{"cached_tokens":25}}}\n\n'
)
DONE = b"data: [DONE]\n\n"


@pytest.fixture
def plugins(tmp_path, monkeypatch):
    """A module `user_policies` as a user would have it on the path."""
    (tmp_path / "user_policies.py").write_text(
        textwrap.dedent("""
            import json
            from sim.orchestrator.policies import make

            class Nested:
                @staticmethod
                def upper(ctx_usage):
                    return lambda event: event.upper()

            def wrapped(ctx_usage):
                return make("filter-on", ctx_usage)

            def copies(ctx_usage):
                return lambda event: bytes(bytearray(event))

            def raises_on_b(ctx_usage):
                def policy(event):
                    if b"BOOM" in event:
                        raise StopIteration(event)
                    return event
                return policy

            def exits(ctx_usage):
                def policy(event):
                    raise SystemExit(3)
                return policy

            def gives_text(ctx_usage):
                return lambda event: event.decode()

            def gives_bytearray(ctx_usage):
                return lambda event: bytearray(event)

            def fails_later(ctx_usage):
                if ctx_usage.prompt_tokens == 100:
                    raise RuntimeError("no")
                return lambda event: event

            def per_event(event):
                return event

            def raises(ctx_usage):
                return ctx_usage.nothing

            def leaves(ctx_usage):
                raise SystemExit("bye")

            def two(ctx_usage, other):
                return None

            def none():
                return None

            number = 3
        """)
    )
    (tmp_path / "broken_policies.py").write_text("1 / 0\n")
    (tmp_path / "leaving_policies.py").write_text("raise SystemExit(3)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("user_policies", None)


def arms_of(*names, active=None, usage_by_gen=False):
    return build_arms(names, active or names[0], usage_by_gen=usage_by_gen)


def test_aliases_are_loaded_under_the_name_behind_them_once():
    arms = build_arms(["filter-off", "filter-on", "parse"], "filter-on", usage_by_gen=False)
    assert arms.names == ("parse", "prefilter")
    assert arms.policy == "prefilter"
    assert arms.index_of("filter-off") == 0


def test_the_active_policy_is_loaded_even_when_it_is_not_listed():
    assert build_arms(["parse"], "prefilter-find", usage_by_gen=False).names == ("parse", "prefilter-find")


def test_an_unknown_policy_is_refused_with_the_names_allowed():
    with pytest.raises(UnknownPolicyError, match=r"unknown policy 'x'; built-in: parse, .*verbatim, filter-off"):
        arms_of("x")
    with pytest.raises(UnknownPolicyError, match=r"unknown policy 'parse'; known: prefilter$"):
        arms_of("prefilter").index_of("parse")


def test_verbatim_can_be_loaded_but_not_chosen_while_the_orchestrator_rewrites():
    arms = build_arms(BUILTIN, "parse", usage_by_gen=False)
    with pytest.raises(NeedsGenError, match="usage_by=gen"):
        arms.index_of("verbatim")
    with pytest.raises(NeedsGenError, match="usage_by=gen"):
        arms_of("verbatim")
    assert arms_of("verbatim", usage_by_gen=True).policy == "verbatim"


def test_a_switch_moves_the_events_of_open_streams_to_the_other_policy():
    arms = arms_of("prefilter", "verbatim", usage_by_gen=True)
    stream = arms.open(CTX)
    assert stream.apply([USAGE]) == REWRITTEN
    arms.active = arms.index_of("verbatim")
    assert stream.apply([USAGE]) == USAGE
    arms.active = arms.index_of("prefilter")
    assert stream.apply([PLAIN, USAGE]) == PLAIN + REWRITTEN
    assert arms.to_json() == {
        "prefilter": {"offered": 3, "unchanged": 1, "changed": 2, "failed": 0, "parsed": 2},
        "verbatim": {"offered": 1, "unchanged": 1, "changed": 0, "failed": 0, "parsed": 0},
    }


def test_a_single_unchanged_event_is_passed_on_as_the_same_object():
    assert arms_of("prefilter").open(CTX).apply([PLAIN]) is PLAIN


@pytest.mark.parametrize("events", [[DONE], [USAGE, DONE], [DONE, b": after\n\n"]])
def test_the_end_marker_is_noticed_wherever_it_lies_in_a_read(events):
    stream = arms_of("parse").open(CTX)
    stream.apply([PLAIN])
    assert stream.done is False
    stream.apply(events)
    assert stream.done is True


def test_text_that_looks_like_the_end_marker_is_none():
    stream = arms_of("parse").open(CTX)
    stream.apply([b'data: {"text":"data: [DONE]"}\n\n', b": [DONE]\n\n", b"event: [DONE]\n\n"])
    assert stream.done is False


@pytest.mark.usefixtures("plugins")
def test_a_plugin_is_a_policy_and_counts_no_parsing():
    arms = arms_of("user_policies:Nested.upper", "user_policies:wrapped", "user_policies:copies")
    assert arms.open(CTX).apply([PLAIN]) == PLAIN.upper()
    arms.active = 1
    assert arms.open(CTX).apply([PLAIN, USAGE]) == PLAIN + REWRITTEN
    arms.active = 2
    assert arms.open(CTX).apply([PLAIN]) == PLAIN
    assert arms.to_json() == {
        "user_policies:Nested.upper": {"offered": 1, "unchanged": 0, "changed": 1, "failed": 0, "parsed": None},
        "user_policies:wrapped": {"offered": 2, "unchanged": 1, "changed": 1, "failed": 0, "parsed": None},
        "user_policies:copies": {"offered": 1, "unchanged": 1, "changed": 0, "failed": 0, "parsed": None},
    }


@pytest.mark.usefixtures("plugins")
@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("user_policies:nothing", "cannot be loaded: AttributeError"),
        ("no_such_module_at_all:f", "cannot be loaded: ModuleNotFoundError"),
        ("broken_policies:f", "cannot be loaded: ZeroDivisionError"),
        ("leaving_policies:f", "'leaving_policies:f' cannot be loaded: SystemExit: 3"),
        ("user_policies:leaves", "'user_policies:leaves' raised for Usage.*SystemExit: bye"),
        ("user_policies:", "package.module:callable"),
        (":f", "package.module:callable"),
        ("user_policies:number", "is a int, not a callable"),
        ("user_policies:two", "does not take the one argument ctx_usage"),
        ("user_policies:none", "does not take the one argument ctx_usage"),
        ("user_policies:raises", "raised for Usage.*AttributeError"),
        ("user_policies:per_event", "returned a Usage, not a callable"),
    ],
)
def test_a_plugin_that_cannot_be_used_is_refused_at_start(name, problem):
    with pytest.raises(UnknownPolicyError, match=f"{problem}.*; built-in policies: parse, prefilter"):
        arms_of(name)


@pytest.mark.usefixtures("plugins")
@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("user_policies:raises_on_b", "raised StopIteration"),
        ("user_policies:exits", "raised SystemExit"),
        ("user_policies:gives_text", "returned a str, not bytes"),
        ("user_policies:gives_bytearray", "returned a bytearray, not bytes"),
    ],
)
def test_a_plugin_that_fails_on_an_event_says_so_and_keeps_what_came_before(name, problem):
    arms = arms_of(name)
    with pytest.raises(PolicyFailedError, match=f"policy '{name}' {problem}") as failed:
        arms.open(CTX).apply([PLAIN, b"data: BOOM\n\n", PLAIN])
    assert failed.value.sent == ([PLAIN] if name == "user_policies:raises_on_b" else [])
    counts = arms.to_json()[name]
    assert counts["offered"] == 3
    assert counts["failed"] == 3 - len(failed.value.sent)


@pytest.mark.usefixtures("plugins")
def test_a_plugin_that_fails_when_a_stream_opens_fails_that_stream():
    with pytest.raises(PolicyFailedError, match="policy 'user_policies:fails_later' raised RuntimeError"):
        arms_of("parse", "user_policies:fails_later").open(CTX)
