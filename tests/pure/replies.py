"""Replies as a gen server writes them, and the HTTP bytes that carry them: material for the load's readers."""

from __future__ import annotations

from collections.abc import Iterable

from loadtest.stream_check import Expectation
from loadtest.stream_reader import StreamReader
from loadtest.time_log import TokenGaps
from sim.core.chunks import ChunkShape, StreamWriter
from sim.core.settings import GenSettings
from sim.core.usage import Usage

MS = 1_000_000
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"
USAGE = Usage(prompt_tokens=64, cached_tokens=16)
SHAPES = {
    "trtllm": {},
    "padded": {"chunk_bytes": 258},
    "openai": {"dialect": "openai", "usage": "null", "finish": "own"},
    "continuous": {"usage": "continuous"},
    "absent": {"usage": "absent"},
    "four tokens a chunk": {"tokens_per_chunk": 4},
    "CRLF": {"newline": "crlf"},
    "CR": {"newline": "cr"},
    "escaped key": {"usage_key": "escaped"},
}


def shape(**settings: object) -> ChunkShape:
    return ChunkShape.from_settings(GenSettings(**settings))


def events_of(
    tokens: int = 12, endpoint: str = "chat", told: Usage = USAGE, include_usage: bool = True, **settings: object
) -> list[bytes]:
    """Every event of one reply, in order."""
    form = shape(**settings)
    writer = StreamWriter(
        form, endpoint=endpoint, id="chatcmpl-7", created=1, model="sim", usage=told, include_usage=include_usage
    )
    step = form.tokens_per_chunk
    role = writer.role_event()
    content = [writer.content_event(k, min(step, tokens - k), last=k + step >= tokens) for k in range(0, tokens, step)]
    return [*([] if role is None else [role]), *content, *writer.closing_events(tokens)]


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def reads_of(events: Iterable[bytes], end: bytes = END) -> list[bytes]:
    """One read for the head, one per event, one for the end."""
    return [HEAD, *map(chunk, events), *([end] if end else [])]


class FullReader(StreamReader):
    """A reader that never has a template, so that every read goes the full way."""

    def _learn(self, event: bytes, data: bytes, alone: bool) -> None:
        pass


def read(reads: Iterable[bytes], *, keep: bool = False, step_ns: int = 10 * MS, foresee: bool = True) -> StreamReader:
    """Feed each read, ``step_ns`` apart; ``foresee`` False: the full way only."""
    reader = (StreamReader if foresee else FullReader)(TokenGaps(), keep=keep)
    for number, data in enumerate(reads):
        reader.feed(data, (number + 1) * step_ns)
    return reader


def expectation(tokens: int = 12, **changes: object) -> Expectation:
    """What the reply of `events_of` has to be; ``changes`` replace fields."""
    fields: dict[str, object] = {
        "endpoint": "chat",
        "stream": True,
        "asked_tokens": tokens,
        "may_end_early": False,
        "prompt_tokens": 64,
        "cached_tokens": 16,
        "include_usage": True,
        "judge_usage": True,
        "shape": shape(),
        **changes,
    }
    return Expectation(**fields)  # type: ignore[arg-type]
