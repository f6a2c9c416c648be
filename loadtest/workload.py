"""What each request holds: lengths, a prompt that really has that many tokens' worth of bytes, the HTTP bytes.

Length presets.  Each is lognormal, fixed by two figures of Azure's 2023 LLM inference traces: the median p50 and
the mean.  With ``mu = ln(p50)`` the mean is ``exp(mu + sigma**2 / 2)``, hence ``sigma = sqrt(2 ln(mean / p50))``.
Prompt and reply are drawn independently, which the recordings are not; a replay keeps what they have in common.

    azure-conv  prompt mean 1,155, p50 1,020; reply mean 211, p50 129
    azure-code  prompt mean 2,048, p50 1,469; reply mean 28, p50 13

Attribution: figures of the Azure LLM inference trace 2023, Microsoft, CC-BY-4.0
(https://creativecommons.org/licenses/by/4.0/), described in Patel, Choukse, Zhang, Shah, Goiri, Maleki, Bianchini,
*Splitwise: Efficient generative LLM inference using phase splitting*, ISCA 2024.  No row of it is copied here.

When a request is due is in `arrivals`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from random import Random

from loadtest import arrivals
from loadtest.azure_trace import TraceRow
from loadtest.load_settings import LoadSettings
from loadtest.plan import Target
from sim.core.tokens import BYTES_PER_TOKEN

__all__ = ["PRESETS", "LogNormal", "PlannedRequest", "Prompts", "iter_requests", "plan_requests", "request_bytes"]

MODEL = "sim"
_PATHS = {"chat": "/v1/chat/completions", "completions": "/v1/completions"}
_TEXT_BYTES = 1 << 16
_WORDS = (
    "the", "of", "and", "you", "that", "was", "for", "with", "his", "they", "one", "have", "this", "from", "had",
    "some", "what", "there", "other", "were", "your", "when", "use", "word", "how", "said", "each", "which", "their",
    "time", "will", "way", "about", "many", "then", "them", "would", "write", "like", "these", "long", "make", "thing",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class LogNormal:
    """A length distribution given by median and mean, both in tokens."""

    p50_tokens: float
    mean_tokens: float

    @property
    def sigma(self) -> float:
        """Standard deviation of the logarithm."""
        return math.sqrt(2 * math.log(self.mean_tokens / self.p50_tokens))

    def draw(self, rng: Random) -> int:
        """One length, at least 1 token."""
        return max(1, round(rng.lognormvariate(math.log(self.p50_tokens), self.sigma)))


PRESETS = {
    "azure-conv": (LogNormal(1020, 1155), LogNormal(129, 211)),
    "azure-code": (LogNormal(1469, 2048), LogNormal(13, 28)),
}


@dataclass(frozen=True, slots=True)
class PlannedRequest:
    """Request ``seq`` of the schedule, due ``due_ns`` after the load's start.

    ``prefix``: what the prompt begins with, as (text number, tokens) pieces that requests share where they are equal;
    ``prompt_tokens`` counts them too.  ``cancel_after``: tokens after which the client cancels (0: it does not).
    """

    seq: int
    due_ns: int
    prompt_tokens: int
    output_tokens: int
    prefix: tuple[tuple[int, int], ...] = ()
    cancel_after: int = 0


def plan_requests(settings: LoadSettings, seed: int, trace: Sequence[TraceRow] = ()) -> list[PlannedRequest]:
    """The whole schedule; equal settings, seed and trace give an equal one."""
    # Two generators, so that other lengths do not move the arrivals.
    times, sizes = Random(f"arrivals {seed}"), Random(f"lengths {seed}")
    if settings.arrivals == "staggered":
        due = arrivals.staggered(settings.streams, settings.ramp_s)
    elif settings.arrivals == "constant":
        due = arrivals.constant(settings.request_rate)
    elif settings.arrivals == "poisson":
        due = arrivals.poisson(settings.request_rate, times)
    else:
        due = arrivals.replay((row.stamp_ns for row in trace), settings.speed)
    last_s = 0.0 if settings.arrivals == "staggered" else settings.duration_s
    all_due = arrivals.capped(due, last_s, settings.limit)
    lengths = _lengths(settings, sizes, trace)
    return [PlannedRequest(seq, due_ns, *lengths(seq)) for seq, due_ns in enumerate(all_due)]


def iter_requests(settings: LoadSettings, seed: int, trace: Sequence[TraceRow] = ()) -> Iterator[PlannedRequest]:
    """The schedule, one request after the other; of a closed loop, which may have no end, every ``due_ns`` is 0."""
    if settings.arrivals != "closed":
        yield from plan_requests(settings, seed, trace)
        return
    lengths = _lengths(settings, Random(f"lengths {seed}"), trace)
    for seq in count() if not settings.limit else range(settings.limit):
        yield PlannedRequest(seq, 0, *lengths(seq))


def _lengths(settings: LoadSettings, rng: Random, trace: Sequence[TraceRow]) -> Callable[[int], tuple[int, int]]:
    """From request number to (prompt, reply) tokens; to be asked in ascending order."""
    if settings.arrivals == "trace":
        return lambda seq: (trace[seq].prompt_tokens, trace[seq].output_tokens)
    if settings.lengths == "fixed":
        fixed = (settings.prompt_tokens, settings.output_tokens)
        return lambda _: fixed
    prompt, reply = PRESETS[settings.lengths]
    return lambda _: (prompt.draw(rng), reply.draw(rng))


class Prompts:
    """Makes prompts: English-looking ASCII, `BYTES_PER_TOKEN` bytes a token, led by the request's number.

    One text is made from the seed and each prompt is a run of it: a prompt of 40,000 tokens must not cost
    the load more than a copy.
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

    def make(self, seq: int, tokens: int) -> str:
        """The prompt of request ``seq``: exactly ``tokens`` tokens; unlike any other's where it has room to be."""
        size = tokens * BYTES_PER_TOKEN
        start = (seq * 977) % _TEXT_BYTES
        head = f"{seq} "
        repeats = -(-(start + size) // _TEXT_BYTES)
        return (head + (self._text * repeats)[start : start + size])[:size]


def request_bytes(target: Target, settings: LoadSettings, prompt: str, output_tokens: int) -> bytes:
    """The whole HTTP/1.1 request."""
    body: dict[str, object] = {"model": MODEL}
    if settings.endpoint == "chat":
        body["messages"] = [{"role": "user", "content": prompt}]
    else:
        body["prompt"] = prompt
    body["max_tokens"] = output_tokens
    if settings.stream:
        body["stream"] = True
        if settings.include_usage:
            body["stream_options"] = {"include_usage": True}
    payload = json.dumps(body, separators=(",", ":")).encode()
    host = f"[{target.host}]" if ":" in target.host else target.host
    accept = "text/event-stream" if settings.stream else "application/json"
    head = (
        f"POST {target.path}{_PATHS[settings.endpoint]} HTTP/1.1\r\n"
        f"Host: {host}:{target.port}\r\n"
        f"Content-Type: application/json\r\n"
        f"Accept: {accept}\r\n"
        f"Content-Length: {len(payload)}\r\n\r\n"
    )
    return head.encode("ascii") + payload
