"""What an event is for, against every event that a gen server can write."""

import itertools

import pytest

from sim.core.chunks import ChunkShape, StreamWriter
from sim.core.settings import GenSettings
from sim.core.usage import Usage
from sim.orchestrator.kinds import kind_of

SHAPES = list(
    itertools.product(
        ("trtllm", "openai"), ("absent", "null", "final", "continuous"), ("last", "own"), ("lf", "crlf", "cr"), (1, 2)
    )
)


@pytest.mark.parametrize("endpoint", ["chat", "completions"])
@pytest.mark.parametrize(("dialect", "usage", "finish", "newline", "tokens"), SHAPES)
def test_every_event_of_every_shape_is_recognised(endpoint, dialect, usage, finish, newline, tokens):
    settings = GenSettings(dialect=dialect, usage=usage, finish=finish, newline=newline, tokens_per_chunk=tokens)
    shape = ChunkShape.from_settings(settings)
    writer = StreamWriter(
        shape, endpoint=endpoint, id="i", created=1, model="m", usage=Usage(10, 10), include_usage=True
    )
    role = writer.role_event()
    assert (role is None) == (endpoint == "completions")
    if role is not None:
        assert kind_of(role) == "role"
    assert kind_of(writer.content_event(0, tokens, last=False)) == "chunk"
    assert kind_of(writer.content_event(tokens, tokens, last=True)) == "chunk"
    expected = ["finish"] * (finish == "own") + ["usage"] * (usage != "absent") + ["done"]
    assert [kind_of(event) for event in writer.closing_events(2 * tokens)] == expected


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        (b'data: {"choices":[{"delta":{"content":""}}]}\n\n', "chunk"),
        (b'data: {"choices":[{"delta":{"content":""},"finish_reason":"stop"}]}\n\n', "chunk"),
        (b'data: {"choices":[{"delta":{"role":"assistant","content":"a"}}]}\n\n', "chunk"),
        (b'data: {"choices":[{"delta":{"role":"assistant","reasoning_content":"a"}}]}\n\n', "chunk"),
        (b'data: {"choices":[{"delta":{"tool_calls":[{"index":0}]}}]}\n\n', "chunk"),
        (b'data: {"choices":[{"delta":{"role":"assistant","content":null}}]}\n\n', "role"),
        (b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n', "finish"),
        (b'data: {"choices":[],"usage":null}\n\n', "chunk"),
        (b'data: {"choices":[3]}\n\n', "chunk"),
        (b'data: {"error":{"message":"x"}}\n\n', "chunk"),
        (b"data: 7\n\n", "chunk"),
        (b"data: {\n\n", "chunk"),
        (b": ping\n\n", "chunk"),
        (b"data:[DONE]\r\n\r\n", "done"),
    ],
)
def test_the_odd_ones(event, kind):
    assert kind_of(event) == kind
