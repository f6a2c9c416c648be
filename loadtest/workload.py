"""What each request holds: when it is due, how long it is, its HTTP bytes.

The schedule is made from `arrivals` or `replay`, and `lengths`; what a prompt says is in `prompts`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from loadtest import arrivals, replay
from loadtest.lengths import Lengths, plain_lengths
from loadtest.load_settings import LoadSettings
from loadtest.plan import Target
from loadtest.prompts import PromptPlan
from loadtest.traces.mooncake import BLOCK_TOKENS
from loadtest.traces.rows import TraceRow

__all__ = ["PlannedRequest", "iter_requests", "plan_requests", "request_bytes"]

MODEL = "sim"
_PATHS = {"chat": "/v1/chat/completions", "completions": "/v1/completions"}


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


def plan_requests(
    settings: LoadSettings, seed: int, trace: Sequence[TraceRow] = (), lengths: Lengths | None = None
) -> list[PlannedRequest]:
    """The whole schedule, as `iter_requests` makes it.  ValueError for one without an end."""
    if settings.arrivals == "closed" and not settings.limit:
        raise ValueError("closed arrivals without a limit have no end")
    return list(iter_requests(settings, seed, trace, lengths))


def iter_requests(
    settings: LoadSettings, seed: int, trace: Sequence[TraceRow] = (), lengths: Lengths | None = None
) -> Iterator[PlannedRequest]:
    """The schedule, request by request; equal settings, seed and files give an equal one.

    ``trace`` are the rows to replay; ``lengths`` are needed where a file holds them.  Closed arrivals are all due at
    0 and, without a limit, have no end.
    """
    if settings.arrivals == "trace":
        requests = _replayed(settings, trace)
    else:
        requests = _drawn(settings, seed, lengths or plain_lengths(settings))
    return map(PromptPlan(settings, seed).completed, requests)


def _drawn(settings: LoadSettings, seed: int, lengths: Lengths) -> Iterator[PlannedRequest]:
    # Two generators, so that other lengths do not move the arrivals.
    times, sizes = Random(f"arrivals {seed}"), Random(f"lengths {seed}")
    last_s = 0.0 if settings.arrivals in ("staggered", "closed") else settings.duration_s
    for seq, due_ns in enumerate(arrivals.capped(_due(settings, times), last_s, settings.limit)):
        yield PlannedRequest(seq, due_ns, *lengths.draw(sizes))


def _due(settings: LoadSettings, rng: Random) -> Iterator[int]:
    rate = settings.request_rate
    match settings.arrivals:
        case "staggered":
            return arrivals.staggered(settings.streams, settings.ramp_s)
        case "constant":
            return arrivals.constant(rate)
        case "poisson":
            return arrivals.poisson(rate, rng)
        case "gamma":
            return arrivals.gamma(rate, settings.burstiness, rng)
        case "ramp":
            return arrivals.ramp(rate, settings.end_request_rate, settings.duration_s)
        case "steps":
            return arrivals.steps(settings.rates_of_steps(), settings.step_s)
        case "bursts":
            return arrivals.bursts(settings.burst_size, settings.burst_every_s)
        case _:
            return arrivals.closed()


def _replayed(settings: LoadSettings, trace: Sequence[TraceRow]) -> Iterator[PlannedRequest]:
    stamps_ns = [row.stamp_ns for row in trace]
    if settings.spread:
        stamps_ns = list(replay.spread(stamps_ns))
    places = replay.window(stamps_ns, settings.window_from_s, settings.window_s)
    due = replay.due_times(stamps_ns, places, settings.window_from_s, settings.speed)
    # What takes long for a long recording is done by now, before the load's time begins.
    return (
        PlannedRequest(seq, due_ns, trace[place].prompt_tokens, trace[place].output_tokens, _blocks(trace[place]))
        for seq, (due_ns, place) in enumerate(
            zip(arrivals.capped(due, settings.duration_s, settings.limit), places, strict=False)
        )
    )


def _blocks(row: TraceRow) -> tuple[tuple[int, int], ...]:
    """The prompt's beginning in pieces that other requests share: one for each id, the last perhaps not full."""
    left = range(row.prompt_tokens, 0, -BLOCK_TOKENS)
    return tuple((block, min(BLOCK_TOKENS, tokens)) for block, tokens in zip(row.hash_ids, left, strict=False))


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
