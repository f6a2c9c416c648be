"""A prefix cache: which leading blocks of a prompt have been seen before, and which are forgotten first.

A prompt is cut into blocks of equally many tokens; a block's key is a hash of everything up to its end, so equal
keys mean equal prompts up to there, and a block is worth nothing without those before it.  What is at hand is the
number of leading blocks that are held, less whatever would make it the whole prompt: an engine computes at least
the last token, or it would have nothing to answer from.

The last block of a prompt, if it is not full, is never held, as in real engines.  Roles of messages take no tokens
here and are not hashed.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from sim.core.tokens import BYTES_PER_TOKEN, prompt_ids, prompt_texts

__all__ = ["PrefixCache", "block_keys"]

KEY_BYTES = 16


def block_keys(body: Mapping[str, object], block_tokens: int) -> list[bytes]:
    """The key of every full block of the body's prompt, in order."""
    ids = prompt_ids(body)
    blocks = _text_blocks(body, block_tokens) if ids is None else _id_blocks(ids, block_tokens)
    # One hash that goes on, copied at every block's end: the prompt is read once, however many blocks it has.
    whole = hashlib.blake2b(b"text" if ids is None else b"ids", digest_size=KEY_BYTES)
    keys = []
    for block in blocks:
        whole.update(block)
        keys.append(whole.copy().digest())
    return keys


class PrefixCache:
    """Blocks of ``block_tokens``, at most ``capacity_tokens`` of them in all (0: no limit), least recently used out.

    ``evicted`` counts the blocks that had to go.
    """

    def __init__(self, block_tokens: int, capacity_tokens: int = 0) -> None:
        self.block_tokens = block_tokens
        self.evicted = 0
        self._capacity_blocks = capacity_tokens // block_tokens
        self._held: OrderedDict[bytes, None] = OrderedDict()

    @property
    def blocks(self) -> int:
        """Blocks held."""
        return len(self._held)

    def cached_tokens(self, keys: Sequence[bytes], prompt_tokens: int) -> int:
        """Tokens at hand of a prompt of ``prompt_tokens`` with these keys; never all of them."""
        usable = min(len(keys), (prompt_tokens - 1) // self.block_tokens)
        held = next((number for number in range(usable) if keys[number] not in self._held), usable)
        return held * self.block_tokens

    def hold(self, keys: Sequence[bytes]) -> None:
        """A prompt has been computed: keep its blocks, and let go of those unused for longest.

        The last block counts as used first, so that what goes first is a prompt's end and never its beginning.
        """
        for key in reversed(keys):
            self._held[key] = None
            self._held.move_to_end(key)
        while self._capacity_blocks and len(self._held) > self._capacity_blocks:
            self._held.popitem(last=False)
            self.evicted += 1


def _text_blocks(body: Mapping[str, object], block_tokens: int) -> Iterator[memoryview]:
    text = memoryview("".join(prompt_texts(body)).encode("utf-8", "surrogatepass"))
    size = block_tokens * BYTES_PER_TOKEN
    return (text[at : at + size] for at in range(0, len(text) - size + 1, size))


def _id_blocks(ids: Sequence[object], block_tokens: int) -> Iterator[bytes]:
    ends = range(block_tokens, len(ids) + 1, block_tokens)
    return (msgspec.json.encode(ids[end - block_tokens : end]) for end in ends)
