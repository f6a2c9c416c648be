"""What prompts say: pieces that requests share, then the request's own text, at `BYTES_PER_TOKEN` bytes a token.

A piece is (text number, tokens).  Equal numbers give equal bytes at the same place, and a longer piece begins with
the shorter one of its number; different numbers differ within the piece's first bytes.  Blocks of a recording have
its own numbers, 0 and above; shared prefixes and the turns of sessions have negative ones, odd and even.  A
request's own text begins with its number alone, so that it is none of theirs.

A session is one conversation: the prompt of a turn repeats all earlier turns, what the user said and what was
answered.  The answer is stood for by a text of as many tokens, since it is not known when the load is planned, and
what a context server caches of it depends on its length alone.  All of it goes as one user message.

How long prompts are is in `workload`.
"""

from __future__ import annotations

import dataclasses
from random import Random
from typing import TYPE_CHECKING

from loadtest.load_settings import LoadSettings
from loadtest.shares import SEQS_PER_COPY
from sim.core.tokens import BYTES_PER_TOKEN

if TYPE_CHECKING:
    from loadtest.workload import PlannedRequest

__all__ = ["PromptPlan", "Prompts", "shared_text", "turn_text"]

_TEXT_BYTES = 1 << 16
_STRIDE_BYTES = 977
_WORDS = (
    "the", "of", "and", "you", "that", "was", "for", "with", "his", "they", "one", "have", "this", "from", "had",
    "some", "what", "there", "other", "were", "your", "when", "use", "word", "how", "said", "each", "which", "their",
    "time", "will", "way", "about", "many", "then", "them", "would", "write", "like", "these", "long", "make", "thing",
)  # fmt: skip


def shared_text(group: int) -> int:
    """Text number of the prefix that prefix group ``group`` shares."""
    return -1 - 2 * group


def turn_text(request: int, copy: int) -> int:
    """Text number of the turn that request ``request`` of copy ``copy`` of the load is."""
    return -2 - 2 * (copy * SEQS_PER_COPY + request)


class PromptPlan:
    """Gives each request of one copy of the load its prefix and its cancelling; to be asked in ascending order.

    Request n is turn (n // sessions) % turns of its session: `sessions` of them are under way side by side.
    """

    def __init__(self, settings: LoadSettings, seed: int) -> None:
        self._settings = settings
        self._seed = seed
        self._copy = seed - settings.seed
        self._said: dict[int, tuple[tuple[int, int], ...]] = {}

    def completed(self, request: PlannedRequest) -> PlannedRequest:
        """The request with what its prompt begins with, whose tokens are added, and when it is cancelled."""
        settings = self._settings
        prefix, prompt_tokens = request.prefix, request.prompt_tokens
        group = request.seq
        if settings.turns > 1:
            group = self._session(request.seq)
            earlier, own = self._turn(request)
            prompt_tokens += sum(tokens for _, tokens in earlier)
            prefix = (*earlier, own)
        if settings.shared_prefix_tokens:
            prefix = ((shared_text(group % settings.prefix_groups), settings.shared_prefix_tokens), *prefix)
            prompt_tokens += settings.shared_prefix_tokens
        cancel_after = self._cancel_after(request)
        if (prefix, cancel_after) == (request.prefix, request.cancel_after):
            return request
        return dataclasses.replace(request, prefix=prefix, prompt_tokens=prompt_tokens, cancel_after=cancel_after)

    def _session(self, n: int) -> int:
        sessions, turns = self._settings.sessions, self._settings.turns
        return n % sessions + sessions * (n // (sessions * turns))

    def _turn(self, request: PlannedRequest) -> tuple[tuple[tuple[int, int], ...], tuple[int, int]]:
        """What was said before this turn, as pieces, and the turn's own."""
        settings = self._settings
        place = request.seq % settings.sessions
        first = (request.seq // settings.sessions) % settings.turns == 0
        earlier = () if first else self._said[place]
        text = turn_text(request.seq, self._copy)
        self._said[place] = (*earlier, (text, request.prompt_tokens + request.output_tokens))
        return earlier, (text, request.prompt_tokens)

    def _cancel_after(self, request: PlannedRequest) -> int:
        """Tokens after which it is cancelled; 0 for a reply that would be over by then."""
        settings = self._settings
        if not settings.cancel_share or request.output_tokens <= settings.cancel_after_tokens:
            return 0
        drawn = Random(f"cancels {self._seed} {request.seq}").random()
        return settings.cancel_after_tokens if drawn < settings.cancel_share else 0


class Prompts:
    """Makes prompts: English-looking ASCII, exactly `BYTES_PER_TOKEN` bytes a token.

    One text is made from the seed, and each piece is a number and a run of it: a prompt of 40,000 tokens must not
    cost the load more than a copy.
    """

    __slots__ = ("_text",)

    def __init__(self, seed: int) -> None:
        rng = Random(f"prompts {seed}")
        words: list[str] = []
        size = 0
        while size < _TEXT_BYTES:
            words.append(rng.choice(_WORDS))
            size += len(words[-1]) + 1
        self._text = " ".join(words)[:_TEXT_BYTES]

    def make(self, seq: int, tokens: int, prefix: tuple[tuple[int, int], ...] = ()) -> str:
        """The prompt of request ``seq``: ``tokens`` tokens, the pieces of ``prefix`` first, then its own text.

        Without a prefix it is unlike any other's where it has room to be.  Pieces longer than ``tokens`` are cut.
        """
        own = self._run(f"{seq} ", seq, max(0, tokens - sum(size for _, size in prefix)))
        if not prefix:
            return own
        pieces = [self._run(f"#{number} ", number, size) for number, size in prefix]
        return "".join([*pieces, own])[: tokens * BYTES_PER_TOKEN]

    def _run(self, head: str, number: int, tokens: int) -> str:
        size = tokens * BYTES_PER_TOKEN
        start = (number * _STRIDE_BYTES) % _TEXT_BYTES
        repeats = -(-(start + size) // _TEXT_BYTES)
        text = self._text if repeats <= 1 else self._text * repeats
        return (head + text[start : start + size])[:size]
