"""``python -m sim.orchestrator.chunk_timer --policy NAME``: what one policy costs per chunk, in this process alone.

Chunks are a gen server's own, of several streams with a callable each, and are handed over in turn, so that no
single object's cache line or code path is all that is timed.  The clock is the thread's CPU time; collections of
garbage are left on, as in the orchestrator.  One JSON line on stdout, one figure per size.

A loop over events that are warm is the best case there is; how figures of several processes are put together is
the experiment's business.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Sequence
from statistics import fmean, median
from typing import Any

from sim.core.chunks import ChunkShape, StreamWriter
from sim.core.settings import GenSettings
from sim.core.usage import Usage
from sim.orchestrator.arms import Arms, NeedsGenError, UnknownPolicyError, build_arms
from sim.orchestrator.policies import BUILTIN, Policy
from sim.service.proc import ThreadCpu

__all__ = ["USAGES", "main", "measure", "streams_of"]

USAGES = ("absent", "null", "final", "continuous")
"""No usage; null on every chunk; the one closing event that holds it; a whole one on every chunk."""

STREAMS = 16
CHUNKS_PER_STREAM = 8
FIRST_TOKEN = 100  # texts of four bytes, as tokens are on average
SIZE_TOLERANCE = 0.15
_CTX = Usage(prompt_tokens=1234, cached_tokens=512)
_GEN = Usage(prompt_tokens=1234, cached_tokens=1234)

Streams = list[tuple[Policy, list[bytes]]]


def streams_of(arms: Arms, usage: str, size_bytes: int) -> Streams:
    """Each stream's callable and the events to time; a stream's callable has seen that stream's chunks before.

    Empty when no chunk of that usage can be made as small as ``size_bytes``; a closing event has the size it has.
    """
    make = arms.factory_of(arms.policy)
    streams = []
    for number in range(STREAMS):
        writer = _writer(usage, size_bytes, number)
        policy = make(_CTX, arms.counters[arms.active])
        chunks = [writer.content_event(FIRST_TOKEN + n, 1, last=False) for n in range(CHUNKS_PER_STREAM)]
        for event in (writer.role_event(), *chunks):
            if event is not None:
                policy(event)
        streams.append((policy, [writer.closing_events(FIRST_TOKEN)[-2]] if usage == "final" else chunks))
    fits = usage == "final" or abs(_mean_bytes(streams) / size_bytes - 1) <= SIZE_TOLERANCE
    return streams if fits else []


def measure(streams: Streams, seconds: float) -> dict[str, Any]:
    """CPU microseconds per chunk: the median over passes that fill ``seconds``, after one to warm up."""
    passes = _passes_of(2e-3, _timed_pass(streams, 1))
    thread = ThreadCpu()
    cpu_before, wait_before = thread.read()
    figures = [_timed_pass(streams, passes)]
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        figures.append(_timed_pass(streams, passes))
    cpu_after, wait_after = thread.read()
    thread.close()
    wait = wait_after - wait_before
    events = sum(len(events) for _, events in streams)
    return {
        "chunk_bytes": round(_mean_bytes(streams)),
        "us_per_chunk": median(figures) * 1e6 / passes / events,
        "changed_share": fmean(policy(event) != event for policy, events in streams for event in events),
        "run_queue_wait_share": wait / max(1, wait + cpu_after - cpu_before),
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; 2 when a policy is not known."""
    options = _parser().parse_args(argv)
    try:
        arms = build_arms(options.policies, options.policies[0], usage_by_gen=True)
    except (UnknownPolicyError, NeedsGenError) as error:
        print(f"chunk_timer: {error}", file=sys.stderr)
        return 2
    if options.check:
        print(json.dumps({"policies": list(arms.names)}))
        return 0
    sizes = list(options.sizes)
    random.Random(options.seed).shuffle(sizes)
    figures = []
    for size_bytes in sizes:
        streams = streams_of(arms, options.usage, size_bytes)
        if streams:
            figures.append({"size": size_bytes, **measure(streams, options.seconds)})
    print(json.dumps({"figures": figures}))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m sim.orchestrator.chunk_timer")
    parser.add_argument("policies", nargs="*", default=list(BUILTIN), metavar="POLICY", help="the first is timed")
    parser.add_argument("--check", action="store_true", help="only say whether the policies (default: all) are known")
    parser.add_argument("--usage", choices=USAGES, default="absent")
    parser.add_argument("--sizes", type=int, nargs="+", default=[258], metavar="BYTES")
    parser.add_argument("--seconds", type=float, default=0.05, metavar="S", help="time for each size")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the order of sizes")
    return parser


def _writer(usage: str, size_bytes: int, number: int) -> StreamWriter:
    """A stream of chunks of ``size_bytes``; without padding where that is what comes nearest."""
    for chunk_bytes in (size_bytes, 0):
        writer = StreamWriter(
            ChunkShape.from_settings(GenSettings(usage=usage, chunk_bytes=chunk_bytes)),
            endpoint="chat",
            id=f"chatcmpl-{number:010d}",
            created=1_750_000_000,
            model="sim",
            usage=_GEN,
            include_usage=True,
        )
        if len(writer.content_event(FIRST_TOKEN, 1, last=False)) <= size_bytes:
            break
    return writer


def _timed_pass(streams: Streams, passes: int) -> float:
    """CPU seconds of ``passes`` passes over every stream's events."""
    before_ns = time.thread_time_ns()
    for _ in range(passes):
        for policy, events in streams:
            for event in events:
                policy(event)
    return (time.thread_time_ns() - before_ns) / 1e9


def _passes_of(at_least_s: float, one_pass_s: float) -> int:
    """So many that a clock's grain and its reading do not show."""
    return max(1, round(at_least_s / max(one_pass_s, 1e-6)))


def _mean_bytes(streams: Streams) -> float:
    return fmean(len(event) for _, events in streams for event in events)


if __name__ == "__main__":
    sys.exit(main())
