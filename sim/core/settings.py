"""What can be set on each server: names, units, defaults, allowed values.

Declared once here, so that a scenario file, a command-line flag and the documents agree; the servers read
them as flags, the scenarios as TOML tables.  Addresses, ports and logging are a process's own business and
live with the process.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

__all__ = [
    "CtxSettings",
    "GenSettings",
    "OrchestratorSettings",
    "SettingError",
    "SettingInfo",
    "describe",
    "from_mapping",
    "setting",
]

MIB = 1 << 20
DEFAULT_ITL_MS = 65.0
_BOOLEANS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}

T = TypeVar("T")


class SettingError(ValueError):
    """A setting that cannot be used: says which one, its value, and what is allowed."""


@dataclass(frozen=True, slots=True)
class SettingInfo:
    """One row of a settings table, as ``--help`` and the documents show it."""

    name: str
    type_name: str
    default: Any
    allowed: str
    description: str


def setting(
    default: Any,
    description: str,
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    choices: tuple[str, ...] = (),
) -> Any:
    """A dataclass field that carries its own description and bounds (both inclusive)."""
    return field(
        default=default,
        metadata={"description": description, "minimum": minimum, "maximum": maximum, "choices": choices},
    )


def from_mapping(cls: type[T], mapping: Mapping[str, object], where: str) -> T:
    """Build the settings dataclass ``cls`` from ``mapping``; strings are converted to the field's type.

    ``where`` names the place in errors ("gen" gives "gen.usage: ...").  Raises SettingError for an unknown
    key, a wrong type, a value out of range, or combinations that the class itself refuses (one a line).
    """
    known = {f.name: f for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
    types = typing.get_type_hints(cls)
    values: dict[str, object] = {}
    for name, raw in mapping.items():
        if name not in known:
            raise SettingError(f"{where}.{name}: unknown setting; known: {', '.join(sorted(known))}")
        label = f"{where}.{name}"
        value = _convert(raw, types[name], label)
        _check_allowed(value, known[name].metadata, label)
        values[name] = value
    try:
        return cls(**values)
    except SettingError as error:
        raise SettingError("\n".join(f"{where}.{fault}" for fault in str(error).split("\n"))) from None


def describe(cls: type) -> list[SettingInfo]:
    """The rows of ``cls``, in order of declaration."""
    types = typing.get_type_hints(cls)
    return [
        SettingInfo(f.name, types[f.name].__name__, f.default, _allowed_text(f.metadata), f.metadata["description"])
        for f in dataclasses.fields(cls)
    ]


def _convert(raw: object, target: type, label: str) -> object:
    if target is bool:
        if isinstance(raw, bool):
            return raw
        if isinstance(raw, str) and raw.lower() in _BOOLEANS:
            return _BOOLEANS[raw.lower()]
        raise SettingError(f"{label}: {raw!r} is not a boolean (true or false)")
    if target is str:
        if isinstance(raw, str):
            return raw
        raise SettingError(f"{label}: {raw!r} is not a string")
    if isinstance(raw, bool) or not isinstance(raw, (int, float, str)):
        raise SettingError(f"{label}: {raw!r} is not a number")
    if target is int and not isinstance(raw, float):
        with contextlib.suppress(ValueError):
            return int(raw)  # not by way of a float, which would round a seed past 2**53
    try:
        number = float(raw)
        whole = int(number) if target is int else 0
    except (ValueError, OverflowError):
        raise SettingError(f"{label}: {raw!r} is not a number") from None
    if not math.isfinite(number) or (target is int and whole != number):
        raise SettingError(f"{label}: {raw!r} is not a {'whole' if target is int else 'finite'} number")
    return whole if target is int else number


def _check_allowed(value: object, metadata: Mapping[str, Any], label: str) -> None:
    choices = metadata["choices"]
    if choices and value not in choices:
        raise SettingError(f"{label}: {value!r} is not one of {', '.join(choices)}")
    low, high = metadata["minimum"], metadata["maximum"]
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return
    if (low is not None and value < low) or (high is not None and value > high):
        raise SettingError(f"{label}: {value!r} is out of range; allowed: {_allowed_text(metadata)}")


def _allowed_text(metadata: Mapping[str, Any]) -> str:
    if metadata["choices"]:
        return ", ".join(metadata["choices"])
    low, high = metadata["minimum"], metadata["maximum"]
    if low is not None and high is not None:
        return f"{low:.15g} to {high:.15g}"
    if low is not None:
        return f">= {low:.15g}"
    return f"<= {high:.15g}" if high is not None else "any"


@dataclass(frozen=True, slots=True, kw_only=True)
class CtxSettings:
    """A context server: how many prefills at once, how long one takes, what its cache already holds."""

    slots: int = setting(64, "prefills computed at the same time", minimum=1, maximum=100_000)
    queue_limit: int = setting(100_000, "requests that may wait for a slot; one more gets 429", minimum=0)
    overhead_ms: float = setting(2.0, "time of a prefill of no tokens, ms", minimum=0, maximum=600_000)
    prefill_us_per_token: float = setting(20.0, "time per uncached prompt token, us", minimum=0, maximum=1e6)
    load_slope: float = setting(
        0.0, "growth of the time with every slot busy (1 = twice as long)", minimum=0, maximum=100
    )
    jitter: float = setting(0.0, "coefficient of variation of the time, lognormal", minimum=0, maximum=3)
    prefix_cache: str = setting(
        "ratio",
        "what of a prompt is cached; ratio: cache_hit_ratio of it; blocks: its leading blocks, as far as an earlier "
        "prompt had them too",
        choices=("ratio", "blocks"),
    )
    cache_hit_ratio: float = setting(0.25, "share of prompt tokens found in the cache (ratio)", minimum=0, maximum=1)
    cache_block_tokens: int = setting(512, "size of a block, tokens (blocks)", minimum=1, maximum=1_000_000)
    cache_capacity_tokens: int = setting(
        0, "tokens that the cache holds, least recently used out (blocks; 0: no limit)", minimum=0
    )
    prompt_token_ids: bool = setting(True, "answer the prompt's token ids, as TensorRT-LLM does")
    seed: int = setting(1, "seed of the jitter", minimum=0)

    def __post_init__(self) -> None:
        capacity = self.cache_capacity_tokens
        if capacity and self.prefix_cache != "blocks":
            raise SettingError(f"cache_capacity_tokens: prefix_cache is {self.prefix_cache!r}; it is for blocks")
        if 0 < capacity < self.cache_block_tokens:
            raise SettingError(f"cache_capacity_tokens: {capacity} hold no block of {self.cache_block_tokens}")


@dataclass(frozen=True, slots=True, kw_only=True)
class GenSettings:
    """A generation server: when tokens come, and what the bytes that carry them look like."""

    slots: int = setting(20_000, "streams running at the same time; one more gets 429", minimum=1, maximum=1_000_000)
    transfer_base_ms: float = setting(1.0, "KV-transfer time of no tokens, ms", minimum=0, maximum=600_000)
    transfer_gb_per_s: float = setting(50.0, "KV-transfer bandwidth, GB/s", minimum=1e-6, maximum=1e6)
    kv_kb_per_token: float = setting(128.0, "KV-cache size of one prompt token, kB", minimum=0, maximum=1e6)
    emission: str = setting(
        "paced", "paced: each stream at its own phase; lockstep: one step emits for all", choices=("paced", "lockstep")
    )
    itl_ms: float = setting(
        0.0, "inter-token latency of a stream, ms (0: from tok_s, or 65)", minimum=0, maximum=600_000
    )
    tok_s: float = setting(0.0, "tokens per second of a stream (0: from itl_ms)", minimum=0, maximum=10_000)
    load_slope: float = setting(
        0.0, "growth of the step time with every slot busy (1 = twice as long)", minimum=0, maximum=100
    )
    jitter: float = setting(0.0, "coefficient of variation of the step time, lognormal", minimum=0, maximum=3)
    tokens_per_chunk: int = setting(1, "tokens in one content event", minimum=1, maximum=1024)
    dialect: str = setting(
        "trtllm",
        "whose fields chunks have; OpenAI's own streams also need finish own and usage null",
        choices=("trtllm", "openai"),
    )
    usage: str = setting(
        "final",
        "absent: never; final: own event if asked; null: also null on each chunk; continuous: also full on each chunk",
        choices=("absent", "null", "final", "continuous"),
    )
    usage_key: str = setting(
        "plain",
        'escaped: spell the key "us\\u0061ge", legal JSON that a byte test misses',
        choices=("plain", "escaped"),
    )
    finish: str = setting("last", "finish_reason on the last content event, or on its own", choices=("last", "own"))
    chunk_bytes: int = setting(0, "pad content events to this size, bytes (0: no padding)", minimum=0, maximum=16 * MIB)
    events_per_write: int = setting(1, "events written to the socket at once", minimum=1, maximum=1024)
    split_at: int = setting(0, "cut each write in two at this offset, bytes (0: do not)", minimum=0, maximum=16 * MIB)
    glue_done: bool = setting(True, "write the usage event and [DONE] in one piece, as real servers do")
    newline: str = setting("lf", "line ending of the stream", choices=("lf", "crlf", "cr"))
    extras: str = setting(
        "none",
        "for the equality gate, what relays must leave alone; nested: a usage object inside each choice; sse: event "
        "and id lines on content events, before the first a comment event, which a relay's counts take for a chunk",
        choices=("none", "sse", "nested"),
    )
    stamp_sent: bool = setting(False, "put the time of the write, CLOCK_MONOTONIC ns, on content events as sent_ns")
    apply_ctx_usage: bool = setting(True, "report the ctx_usage that came with the hand-off, if any did")
    seed: int = setting(1, "seed of the jitter", minimum=0)

    def __post_init__(self) -> None:
        if self.itl_ms > 0 and self.tok_s > 0:
            raise SettingError(f"itl_ms: {self.itl_ms:g} and tok_s {self.tok_s:g} are both set; give one of the two")

    @property
    def itl_s(self) -> float:
        """Inter-token latency of one stream on an idle server, seconds."""
        if self.tok_s > 0:
            return 1.0 / self.tok_s
        return (self.itl_ms or DEFAULT_ITL_MS) / 1e3


@dataclass(frozen=True, slots=True, kw_only=True)
class OrchestratorSettings:
    """The orchestrator: which relay engine and policy, who fixes usage, when it gives up."""

    engine: str = setting(
        "splice",
        "how bytes are relayed: splice, from gen's connection straight to the client's; stream, by a coroutine that "
        "awaits each read and each write",
        choices=("splice", "stream"),
    )
    policy: str = setting("prefilter", "per-chunk policy active at start, by name")
    usage_by: str = setting("orchestrator", "who rewrites usage", choices=("orchestrator", "gen"))
    routing: str = setting("round_robin", "how a server is chosen", choices=("round_robin", "least_outstanding"))
    retries: int = setting(1, "further tries of ctx or gen before the client's first byte", minimum=0, maximum=10)
    first_byte_timeout_s: float = setting(
        180.0, "longest wait for an upstream's answer, s", minimum=0.001, maximum=86_400
    )
    stall_timeout_s: float = setting(60.0, "longest silence inside a stream, s", minimum=0.001, maximum=86_400)
    gc: str = setting(
        "full",
        "garbage collections of what is old; full: when CPython sees fit, a pause that grows with every live stream; "
        "young: only while no stream is live, or every 10 minutes",
        choices=("full", "young"),
    )
    max_body_bytes: int = setting(16 * MIB, "largest request body, bytes", minimum=1024, maximum=1 << 31)
    max_event_bytes: int = setting(8 * MIB, "largest unfinished event, bytes", minimum=1024, maximum=1 << 31)
