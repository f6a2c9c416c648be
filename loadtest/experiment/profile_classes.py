"""Which part of the work a sampled stack belongs to: recv, framing, policy, send, loop or rest.

One table of frames, read from a stack's leaf to its root: the first frame that a row fits gives the class, so a
system call belongs to whoever made it and a C function that no row names to the one that called it.
A frame is ``function (file)``, as py-spy writes it; files of C code come from uvloop's and aiohttp's debug
information, libraries without any are called by their own name (``libc.so.6``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import translate
from functools import lru_cache

__all__ = ["CLASSES", "RULES", "Rule", "class_of_frame", "classify"]

CLASSES = {
    "recv": "read from gen's socket, up to whoever looks for the chunk",
    "framing": "find where HTTP chunks and events begin and end",
    "policy": "the policy, and what it costs to call it",
    "send": "to the client's transport and its socket",
    "loop": "event loop: timers, waking tasks, their await chain, its own health",
    "rest": "the relay's own code, and all that no row names",
}


@dataclass(frozen=True, slots=True)
class Rule:
    """Frames of one class: a file and functions in it, both with ``*`` for any text."""

    kind: str
    file: str
    functions: tuple[str, ...] = ("*",)


_LIBC = ("lib[cp][.t-]*", "ld-musl*")  # libc.so.6, libc-2.31.so, libpthread-2.31.so; musl's is its linker
_SYSTEM_CALLS = {
    "recv": ("*read", "*readv", "*recv", "*recvfrom", "*recvmsg"),
    "send": ("*write", "*writev", "*send", "*sendto", "*sendmsg"),
    "loop": ("epoll_*",),  # what `profile_stacks.awake` leaves of it
}

RULES = (
    # The kernel's part shows as the C library's call.
    *(Rule(kind, library, calls) for kind, calls in _SYSTEM_CALLS.items() for library in _LIBC),
    # A collection strikes whoever allocates next.
    Rule("rest", "*", ("gc_collect*", "gc_alloc*")),
    # Policies; a plug-in's frames are nobody's and come to `arms`, which calls it.
    Rule("policy", "sim/orchestrator/policies.py"),
    Rule("policy", "sim/orchestrator/arms.py"),
    Rule("policy", "sim/core/usage.py"),
    # Framing: events by us; HTTP chunks by aiohttp's parser (engine stream) or by us (splice).
    Rule("framing", "sim/core/sse.py", ("SseDecoder.*",)),  # its functions are a policy's, too
    Rule("framing", "_http_parser.c"),
    Rule("framing", "llhttp.c"),
    Rule("framing", "sim/core/http_body.py"),
    Rule("framing", "sim/orchestrator/event_path.py", ("*.take", "*.pass_whole", "*.at_event")),
    Rule("send", "sim/orchestrator/engine_splice.py", ("*._send*",)),
    Rule("framing", "sim/orchestrator/engine_splice.py", ("*.data_received", "*._take", "*._learn")),
    # From the loop's read to the reader: uvloop's C code, aiohttp's protocol and its queue of bytes.
    Rule("recv", "stream.c", ("uv__read", "uv__stream_io", "uv_read_*")),
    Rule("recv", "loop.c", ("*uv_stream_on_read*", "*uv_stream_buffered_*", "*pause_reading", "*resume_reading")),
    Rule("recv", "loop.c", ("*is_reading",)),
    Rule("recv", "sim/orchestrator/inside_aiohttp.py", ("TakenOver.*", "TakeoverHandler.*")),
    Rule("recv", "aiohttp/client_proto.py"),
    Rule("recv", "aiohttp/base_protocol.py", ("*pause_*reading", "*resume_*reading")),
    Rule("recv", "aiohttp/streams.py"),
    Rule("recv", "aiohttp/helpers.py", ("set_result",)),
    # From the write to the socket.
    Rule("send", "sim/orchestrator/client_side.py"),
    Rule("send", "aiohttp/http_writer.py"),
    Rule("send", "aiohttp/web_response.py", ("StreamResponse.write",)),
    Rule("send", "aiohttp/base_protocol.py", ("*._drain_helper",)),
    Rule("send", "loop.c", ("write", "writelines", "is_closing", "UVStream*write*", "*get_write_buffer_size")),
    Rule("send", "stream.c", ("uv__write*", "uv_try_write*", "uv__try_write*", "uv_write*")),
    # The loop itself, and what runs on its timers.
    Rule("loop", "linux.c", ("uv__*",)),
    Rule("loop", "core.c", ("uv_*",)),
    Rule("loop", "timer.c", ("uv_*",)),
    Rule("loop", "loop-watcher.c", ("uv_*",)),
    Rule("loop", "loop.c", ("Loop_*", "Handle__run", "loop_cb_*", "*call_soon*", "run_forever", "*TimerHandle*")),
    Rule("loop", "_asynciomodule.c"),
    Rule("loop", "asyncio/*"),
    Rule("loop", "sim/service/health.py"),
    Rule("loop", "sim/service/ticker.py"),
    Rule("loop", "sim/service/proc.py"),
    Rule("loop", "sim/service/wheel.py"),
    Rule("loop", "sim/orchestrator/watch.py"),
    Rule("loop", "sim/service/server.py"),
    # The await chain: what a task passes through, each time it is woken, on the way to the coroutine that waits.
    Rule("loop", "aiohttp/web_protocol.py", ("RequestHandler._handle_request",)),
    Rule("loop", "aiohttp/web_app.py", ("Application._handle",)),
    Rule("loop", "aiohttp/web_middlewares.py"),
    Rule("loop", "sim/service/http_json.py", ("error_middleware",)),
    Rule("loop", "sim/service/openai_app.py", ("data_app.*",)),
    Rule("loop", "sim/orchestrator/app.py", ("Orchestrator.complete",)),
    Rule("loop", "sim/orchestrator/relay.py", ("StreamRelay.run", "StreamRelay._deliver", "StreamRelay._relay")),
    # Python code of ours and aiohttp's that no row above names; what is in sim/core belongs to its caller.
    Rule("rest", "sim/orchestrator/*"),
    Rule("rest", "sim/service/*"),
    Rule("rest", "aiohttp/*"),
)

_COMPILED = tuple(
    (rule.kind, re.compile(translate(rule.file)), re.compile("|".join(map(translate, rule.functions))))
    for rule in RULES
)


@lru_cache(maxsize=8192)
def class_of_frame(frame: str) -> str | None:
    """The class of the first row that fits, None for a frame that no row names."""
    function, _, file = frame.rpartition(" (")
    file = file.removesuffix(")")
    for kind, files, functions in _COMPILED:
        if files.match(file) and functions.match(function):
            return kind
    return None


def classify(frames: Sequence[str]) -> tuple[str, str]:
    """(class, the frame that decided it) of a stack given from its root to its leaf; rest if no frame does."""
    for frame in reversed(frames):
        kind = class_of_frame(frame)
        if kind is not None:
            return kind, frame
    return "rest", frames[-1] if frames else ""
