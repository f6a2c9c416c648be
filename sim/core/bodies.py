"""A JSON body cut into its members: what is looked at gets decoded, the rest goes on as the bytes it came in.

A relay changes a few small members of a body whose prompt may be 40,000 tokens.  To decode that prompt and to
write it again would be most of the request's cost, and would not give the same bytes back.  Encoding a mapping of
`msgspec.Raw` copies the bytes, so whoever makes a body out of `as_received` need not know of any of this.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Raw

__all__ = ["BAD_JSON", "JsonObject", "as_received", "read_body"]

BAD_JSON = (msgspec.DecodeError, ValueError, RecursionError)
"""What decoding raises for bytes that are not JSON."""

_LONG = frozenset({"messages", "prompt", "prompt_token_ids"})
"""Members that may be as long as a prompt; all the others are decoded at once, and so checked to the last number."""

_members = msgspec.json.Decoder(dict[str, Raw]).decode
_any = msgspec.json.Decoder().decode
_OPEN_ARRAY, _QUOTE = b'["'
_OF_NUMBERS = b"0123456789- \t\r\n"


class _TextMessage(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    role: str
    content: Raw


_text_messages = msgspec.json.Decoder(list[_TextMessage]).decode


class JsonObject(Mapping[str, Any]):
    """An object; ``members`` are the bytes of its values, and looking a member up decodes it, once."""

    __slots__ = ("_decoded", "_id_counts", "members")

    def __init__(self, members: dict[str, Raw]) -> None:
        self.members = members
        self._decoded = {name: _any(value) for name, value in members.items() if name not in _LONG}
        self._id_counts: dict[str, int] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._decoded:
            self._decoded[name] = _any(self.members[name])
        return self._decoded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.members)

    def __len__(self) -> int:
        return len(self.members)

    def get(self, name: str, default: Any = None) -> Any:
        """The decoded member, or ``default``."""
        return self[name] if name in self.members else default

    def id_count(self, name: str) -> int:
        """How many whole numbers the member's array holds; 0 if it is none, or holds anything else."""
        if name not in self._id_counts:
            value = self.members.get(name)
            self._id_counts[name] = 0 if value is None else _id_count(value)
        return self._id_counts[name]

    def is_text(self, name: str) -> bool:
        """Whether the member is a string."""
        return name in self.members and _first(self.members[name]) == _QUOTE

    def is_array(self, name: str) -> bool:
        """Whether the member is an array."""
        return name in self.members and _first(self.members[name]) == _OPEN_ARRAY

    def holds_text_messages(self) -> bool:
        """Whether ``messages`` are one message or more of a role and a text each, as nearly all are."""
        try:
            messages = _text_messages(self.members["messages"])
        except (KeyError, msgspec.ValidationError):
            return False
        return bool(messages) and all(_first(message.content) == _QUOTE for message in messages)


def read_body(raw: bytes) -> object:
    """``raw`` as a JsonObject, or decoded if it is JSON of another kind.  One of BAD_JSON if it is no JSON.

    A number too large for a float, or of more digits than Python reads, is refused where it is decoded only.
    """
    try:
        members = _members(raw)
    except msgspec.ValidationError:
        return _any(raw)
    if not raw.isascii():
        raw.decode()  # strings that are not decoded are not checked for this
    return JsonObject(members)


def as_received(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """The members of ``body`` to be sent on: their own bytes if it came as bytes."""
    return body.members if isinstance(body, JsonObject) else body


def _first(value: Raw) -> int:
    return memoryview(value)[0]


def _id_count(value: Raw) -> int:
    # The bytes are known to be JSON.  So an array of which only commas are left when everything is deleted that
    # numbers are written with has nothing but numbers in it, and without "." and "e" they are whole.
    kept = bytes(value).translate(None, _OF_NUMBERS)
    if kept == b"[]":
        return int(any(48 <= byte < 58 for byte in memoryview(value)))
    return len(kept) - 1 if kept[:1] == b"[" and kept[1:].lstrip(b",") == b"]" else 0
