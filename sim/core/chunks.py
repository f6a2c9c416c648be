"""What a gen server streams: the bytes of each event, per dialect and usage mode.

Shapes follow TensorRT-LLM (role event with a trailing space, no nulls, finish_reason on the last content
event) and plain OpenAI.  A stream's events are cut from templates made once, since at 15,000 tokens a second
nothing may be serialised per token.  When an event is due, and how writes are cut, is not here.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sim.core.settings import GenSettings
from sim.core.tokens import token_text
from sim.core.usage import Usage

__all__ = ["ChunkShape", "StreamWriter", "Template", "full_answer"]

_NEWLINES = {"lf": b"\n", "crlf": b"\r\n", "cr": b"\r"}
_USAGE_KEYS = {"plain": b',"usage":', "escaped": b',"us\\u0061ge":'}
_NESTED = b',"usage":{"prompt_tokens":1}'
_STAMP = b',"sent_ns":'
FINISH_REASON = "length"

_BLOCK = 1000
_TEXTS = tuple(b" %d" % number for number in range(_BLOCK))
_LAST_DIGITS = tuple(b"%03d" % number for number in range(_BLOCK))


@dataclass(frozen=True, slots=True)
class ChunkShape:
    """How events look; the fields are those of GenSettings by the same names."""

    dialect: str
    usage: str
    usage_key: str
    finish: str
    chunk_bytes: int
    newline: str
    tokens_per_chunk: int
    extras: str
    stamp_sent: bool

    @classmethod
    def from_settings(cls, settings: GenSettings) -> ChunkShape:
        """The shape part of a gen server's settings."""
        return cls(**{name: getattr(settings, name) for name in cls.__slots__})


class Template(NamedTuple):
    """The content events of tokens one by one that differ in nothing but their text and the time on them.

    That of token k, up to but not including ``until``, is ``before``, the time in decimal if events are stamped,
    ``middle``, ``texts[k - base]`` and ``after``: ``event_bytes`` in all.  A time of more digits needs another.
    """

    before: bytes
    middle: bytes
    texts: Sequence[bytes]
    base: int
    after: bytes
    until: int
    event_bytes: int


class StreamWriter:
    """The events of one stream, in order: role, content..., closing.  Every event ends with its blank line.

    ``usage`` gives the prompt and cached counts that gen reports.  ``texts`` replaces the counting reply.
    ``continuous`` asks for a full usage on every chunk, as the settings' mode "continuous" does.
    """

    __slots__ = (
        "_choice_end", "_closer", "_continuous", "_finish", "_head", "_include_usage", "_line", "_newline", "_room",
        "_shape", "_templated", "_templates", "_texts", "_usage", "_usage_key", "_usage_tail",
    )  # fmt: skip

    def __init__(
        self,
        shape: ChunkShape,
        *,
        endpoint: str,
        id: str,
        created: int,
        model: str,
        usage: Usage,
        include_usage: bool,
        texts: Sequence[str] | None = None,
        continuous: bool = False,
    ) -> None:
        chat = endpoint == "chat"
        kind = "chat.completion.chunk" if chat else "text_completion"
        self._shape = shape
        self._newline = _NEWLINES[shape.newline]
        self._texts = None if texts is None else [json.dumps(text).encode()[1:-1] for text in texts]
        self._include_usage = include_usage and shape.usage != "absent"
        self._continuous = shape.usage == "continuous" or (continuous and shape.usage != "absent")
        self._usage = usage
        identity = f'{{"id":{json.dumps(id)},"object":"{kind}","created":{created:d},"model":{json.dumps(model)}'
        self._line = b"data: " + identity.encode()
        opener = b'"choices":[{"index":0,"delta":{' if chat else b'"choices":[{"index":0,'
        self._head = opener + (b'"content":"' if chat else b'"text":"')
        self._closer = b'"}' if chat else b'"'
        self._choice_end = _NESTED + b"}]" if shape.extras == "nested" else b"}]"
        self._finish = b',"finish_reason":null' if shape.dialect == "openai" else b""
        self._usage_key = _USAGE_KEYS[shape.usage_key]
        self._usage_tail = self._usage_key + b"null" if shape.usage == "null" else b""
        self._templated = not self._continuous and texts is None and shape.extras != "sse"
        self._templates: dict[int, tuple[bytes, bytes]] = {}
        self._room = 0
        if shape.chunk_bytes:
            self._room = shape.chunk_bytes - len(self._content(b"", b"", b"", b""))

    def role_event(self) -> bytes | None:
        """The event that opens a chat stream; completions have none."""
        if not self._closer.endswith(b"}"):
            return None
        content = b',"content":""' if self._shape.dialect == "openai" else b""
        # TensorRT-LLM's role event has a space before its line ending; parsers must take it.
        space = b" " if self._shape.dialect == "trtllm" else b""
        delta = b',"choices":[{"index":0,"delta":{"role":"assistant"' + content + b"}" + self._finish + self._choice_end
        return self._line + delta + self._tail(0) + b"}" + space + self._newline * 2

    def content_event(self, first_token: int, count: int, last: bool, sent_ns: int = 0) -> bytes:
        """The event of tokens ``first_token`` .. ``first_token + count - 1``; ``last`` is the reply's last.

        ``sent_ns`` is the time of its write, which the event says if its shape has ``stamp_sent``.
        """
        if self._texts is not None:
            text = b"".join(self._texts[first_token : first_token + count])
        elif count == 1:
            text = b" %d" % first_token
        else:
            text = "".join(map(token_text, range(first_token, first_token + count))).encode()
        stamp = _STAMP + b"%d" % sent_ns if self._shape.stamp_sent else b""
        if last or stamp or not self._templated:
            finish = self._finish
            if last and self._shape.finish == "last":
                finish = b',"finish_reason":"' + FINISH_REASON.encode() + b'"'
            event = self._content(text, finish, self._tail(first_token + count), stamp)
            return self._with_sse_lines(event, first_token) if self._shape.extras == "sse" else event
        # Events of one length of text differ in the text alone, padding included.
        template = self._templates.get(len(text))
        if template is None:
            event = self._content(text, self._finish, self._usage_tail, b"")
            at = event.index(self._head) + len(self._head)
            template = self._templates[len(text)] = event[:at], event[at + len(text) :]
        before, after = template
        return before + text + after

    def template(self, token: int, sent_ns: int = 0) -> Template | None:
        """The template of ``token`` and those after it, at ``sent_ns``; None if this stream's events share none."""
        if not self._templated:
            return None
        event = self.content_event(token, 1, False, sent_ns)
        stamp = len(self._line) + len(_STAMP) if self._shape.stamp_sent else 0
        after_stamp = stamp + len(b"%d" % sent_ns) if stamp else 0
        if token < _BLOCK:
            base, texts, until = 0, _TEXTS, 10 ** len(b"%d" % token)
        else:
            base = token - token % _BLOCK
            texts, until = _LAST_DIGITS, base + _BLOCK
        end = event.index(self._head) + len(self._head) + len(b" %d" % token)
        begin = end - len(texts[token - base])
        # Without a stamp, all that stands before the text is in one piece.
        before, middle = (event[:stamp], event[after_stamp:begin]) if stamp else (event[:begin], b"")
        return Template(before, middle, texts, base, event[end:], until, len(event))

    def closing_events(self, completion_tokens: int) -> list[bytes]:
        """What follows the last content event: finish_reason (own event), usage if asked, ``[DONE]``."""
        events = []
        end = self._newline * 2
        if self._shape.finish == "own":
            delta = b'"delta":{}' if self._closer.endswith(b"}") else b'"text":""'
            finish = b',"finish_reason":"' + FINISH_REASON.encode() + b'"'
            choices = b',"choices":[{"index":0,' + delta + finish + self._choice_end
            events.append(self._line + choices + self._tail(completion_tokens) + b"}" + end)
        if self._include_usage:
            usage = self._usage_json(completion_tokens)
            events.append(self._line + b',"choices":[]' + self._usage_key + usage + b"}" + end)
        events.append(b"data: [DONE]" + end)
        return events

    def _content(self, text: bytes, finish: bytes, tail: bytes, stamp: bytes) -> bytes:
        pad = b","
        if self._shape.chunk_bytes:
            room = self._room - len(text) - len(finish) - len(tail) - len(stamp)
            # The field OpenAI pads its own chunks with.
            pad = b',"obfuscation":"' + b"x" * max(0, room) + b'",'
        return b"".join(
            (
                self._line,
                stamp,
                pad,
                self._head,
                text,
                self._closer,
                finish,
                self._choice_end,
                tail,
                b"}",
                self._newline * 2,
            )
        )

    def _with_sse_lines(self, event: bytes, first_token: int) -> bytes:
        """The event with lines that are no data around its own; before the first, a comment, an event by itself."""
        end = self._newline
        lined = b"event: message" + end + event[: -len(end)] + b"id: %d" % first_token + end * 2
        return lined if first_token else b": ping" + end * 2 + lined

    def _tail(self, completion_tokens: int) -> bytes:
        if self._continuous:
            return self._usage_key + self._usage_json(completion_tokens)
        return self._usage_tail

    def _usage_json(self, completion_tokens: int) -> bytes:
        usage = Usage(self._usage.prompt_tokens, self._usage.cached_tokens, completion_tokens)
        return json.dumps(usage.to_json(), separators=(",", ":")).encode()


def full_answer(
    endpoint: str, *, id: str, created: int, model: str, text: str, usage: Usage, finish_reason: str = FINISH_REASON
) -> dict[str, Any]:
    """A non-streamed answer; only fields that TensorRT-LLM's own models allow."""
    choice: dict[str, Any] = {"index": 0}
    if endpoint == "chat":
        choice["message"] = {"role": "assistant", "content": text}
    else:
        choice["text"] = text
    choice["finish_reason"] = finish_reason
    return {
        "id": id,
        "object": "chat.completion" if endpoint == "chat" else "text_completion",
        "created": created,
        "model": model,
        "choices": [choice],
        "usage": usage.to_json(),
    }
