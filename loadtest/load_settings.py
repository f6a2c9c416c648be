"""What can be set of the load (a scenario's ``[load]`` table): arrivals, lengths, prompts, limits, checks.

Every key is here, and so is every rule that holds between keys; what they mean in numbers is in `arrivals`,
`workload` and `sender`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from sim.core.settings import SettingError, setting

__all__ = ["LoadSettings"]

MAX_TOKENS = 10_000_000
ARRIVALS = ("staggered", "constant", "poisson", "gamma", "ramp", "steps", "bursts", "closed", "trace")
RATED = ("constant", "poisson", "gamma")
"""Arrivals that ``request_rate`` alone sets the rate of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSettings:
    """The load of one Locust user: when requests are due, how long prompts and replies are, what is checked.

    ``trace`` beats ``arrivals`` and ``lengths``: a replay has its own times and lengths.
    """

    endpoint: str = setting("chat", "which API to call", choices=("chat", "completions"))
    stream: bool = setting(True, "ask for a token stream; false: one whole answer")
    include_usage: bool = setting(True, "ask for the usage event at the end of a stream")
    arrivals: str = setting(
        "staggered",
        "staggered: `streams` requests over `ramp_s`; constant, poisson, gamma: `request_rate`; ramp: from "
        "`request_rate` to `end_request_rate`; steps: `step_rates`; bursts: `burst_size` at once; closed: "
        "`max_concurrency` at any time; trace: as recorded",
        choices=ARRIVALS,
    )
    request_rate: float = setting(
        0.0, "requests per second (constant, poisson, gamma; ramp: at its start)", minimum=0, maximum=1e5
    )
    burstiness: float = setting(
        1.0, "shape of gamma gaps: 1 is Poisson, below 1 burstier, above 1 more even", minimum=0.01, maximum=1e4
    )
    end_request_rate: float = setting(0.0, "requests per second at the end of a ramp", minimum=0, maximum=1e5)
    step_rates: str = setting("", "requests per second of each step, such as 10,20,40")
    step_s: float = setting(10.0, "length of a step, s", minimum=1e-3, maximum=86_400)
    burst_size: int = setting(1000, "requests due in one instant", minimum=1, maximum=1_000_000)
    burst_every_s: float = setting(
        0.0, "from one burst to the next, s (0: there is one only)", minimum=0, maximum=86_400
    )
    max_concurrency: int = setting(
        0, "requests under way at a time, of a copy; others wait and keep their planned time (0: no cap)", minimum=0
    )
    streams: int = setting(20, "requests of a staggered load", minimum=1, maximum=1_000_000)
    ramp_s: float = setting(1.0, "time over which a staggered load starts, s", minimum=0, maximum=86_400)
    trace: str = setting("", "recording to replay: Azure CSV, Mooncake JSONL or BurstGPT CSV")
    trace_format: str = setting(
        "auto", "format of the recording (auto: by its first line)", choices=("auto", "azure", "mooncake", "burstgpt")
    )
    speed: float = setting(1.0, "speed of a replay (2: twice the recorded request rate)", minimum=1e-3, maximum=1e4)
    window_from_s: float = setting(0.0, "replay from this time of the recording on, s", minimum=0, maximum=1e9)
    window_s: float = setting(0.0, "length of the part that is replayed, s of the recording (0: all)", minimum=0)
    spread: bool = setting(
        True, "spread requests that a coarse clock recorded at one instant evenly over the clock's step (Mooncake: 3 s)"
    )
    skip_bad_rows: bool = setting(False, "leave out broken rows of a recording, and count them, instead of refusing it")
    limit: int = setting(0, "greatest number of requests (0: no limit)", minimum=0)
    lengths: str = setting(
        "fixed",
        "fixed: `prompt_tokens` and `output_tokens`; range: evenly from these to the _max ones; azure-*: drawn from "
        "that trace's distribution; file: drawn from `lengths_file`",
        choices=("fixed", "range", "azure-conv", "azure-code", "file"),
    )
    prompt_tokens: int = setting(64, "prompt length (fixed; range: the least), tokens", minimum=1, maximum=MAX_TOKENS)
    output_tokens: int = setting(30, "reply length (fixed; range: the least), tokens", minimum=1, maximum=MAX_TOKENS)
    prompt_tokens_max: int = setting(0, "greatest prompt length (range), tokens", minimum=0, maximum=MAX_TOKENS)
    output_tokens_max: int = setting(0, "greatest reply length (range), tokens", minimum=0, maximum=MAX_TOKENS)
    lengths_file: str = setting("", "quantile table (JSON) or recording to draw lengths from")
    shared_prefix_tokens: int = setting(
        0, "tokens that all prompts of a prefix group begin with, beside their own", minimum=0, maximum=MAX_TOKENS
    )
    prefix_groups: int = setting(1, "number of different shared prefixes", minimum=1, maximum=1_000_000)
    turns: int = setting(
        1, "turns of a session: each repeats what was said before, so its body grows", minimum=1, maximum=10_000
    )
    sessions: int = setting(1, "sessions under way side by side (with turns)", minimum=1, maximum=1_000_000)
    cancel_share: float = setting(0.0, "share of the streams that the client cancels", minimum=0, maximum=1)
    cancel_after_tokens: int = setting(1, "tokens after which it cancels them", minimum=1, maximum=MAX_TOKENS)
    duration_s: float = setting(
        0.0,
        "requests are due before this time, s; staggered: what streams get after the ramp (0: no end of its own)",
        minimum=0,
        maximum=1e7,
    )
    goodput_ttft_ms: float = setting(0.0, "goodput: longest time to first token, ms (0: any)", minimum=0)
    goodput_itl_ms: float = setting(0.0, "goodput: longest mean inter-token latency, ms (0: any)", minimum=0)
    goodput_e2e_ms: float = setting(0.0, "goodput: longest duration of a stream, ms (0: any)", minimum=0)
    seed: int = setting(1, "seed of arrivals, lengths and prompts", minimum=0)
    sample_every: int = setting(10, "one stream in so many is compared byte for byte (0: none)", minimum=0)
    timeout_s: float = setting(200.0, "longest silence on a stream, s", minimum=0.1, maximum=86_400)
    stop_timeout_s: float = setting(30.0, "time that streams get to finish after that, s", minimum=0, maximum=86_400)

    def __post_init__(self) -> None:
        if self.trace:
            object.__setattr__(self, "arrivals", "trace")
        faults = [*self._rate_faults(), *self._length_faults(), *self._prompt_faults(), *self._end_faults()]
        if faults:
            raise SettingError("\n".join(faults))

    def _rate_faults(self) -> Iterator[str]:
        if self.arrivals == "trace" and not self.trace:
            yield "trace: arrivals are 'trace', but no file is given"
        if self.arrivals in RATED and self.request_rate <= 0:
            yield f"request_rate: {self.arrivals} arrivals need a rate above 0"
        if self.arrivals != "gamma" and self.burstiness != 1.0:
            yield f"burstiness: {self.arrivals} arrivals have none; it is for gamma"
        if self.arrivals != "ramp" and self.end_request_rate:
            yield f"end_request_rate: {self.arrivals} arrivals have none; it is for ramp"
        if self.arrivals == "ramp" and self.request_rate == self.end_request_rate == 0:
            yield "end_request_rate: a ramp needs a rate above 0 at one of its ends"
        if self.arrivals != "steps" and self.step_rates:
            yield f"step_rates: {self.arrivals} arrivals have none; it is for steps"
        if self.arrivals == "steps":
            try:
                rates = self.rates_of_steps()
            except SettingError as error:
                yield str(error)
            else:
                if not any(rates):
                    yield "step_rates: steps need at least one rate above 0, such as 10,20,40"
        if self.arrivals == "closed" and not self.max_concurrency:
            yield "max_concurrency: closed arrivals need the number of requests under way, 1 or more"

    def _length_faults(self) -> Iterator[str]:
        for name in ("prompt_tokens", "output_tokens"):
            least, most = getattr(self, name), getattr(self, f"{name}_max")
            if self.lengths == "range" and most < least:
                yield f"{name}_max: {most} is below {name}, {least}"
            if self.lengths != "range" and most:
                yield f"{name}_max: lengths are {self.lengths!r}; it is for range"
        if (self.lengths == "file") != bool(self.lengths_file):
            yield "lengths_file: goes with lengths = 'file', and that with it"

    def _prompt_faults(self) -> Iterator[str]:
        if self.turns > 1 and self.arrivals == "trace":
            yield "turns: a replay has its own prompts"
        if not self.stream:
            for name in ("cancel_share", "goodput_ttft_ms", "goodput_itl_ms"):
                if getattr(self, name):
                    yield f"{name}: it is for streams, and stream is false"

    def _end_faults(self) -> Iterator[str]:
        if self.duration_s > 0:
            return
        if self.arrivals == "ramp":
            yield "duration_s: a ramp needs its length"
        elif self.arrivals in (*RATED, "closed") and self.limit <= 0:
            yield f"duration_s: {self.arrivals} arrivals need an end: set duration_s or limit"
        elif self.arrivals == "bursts" and self.burst_every_s and self.limit <= 0:
            yield "duration_s: repeated bursts need an end: set duration_s or limit"

    def rates_of_steps(self) -> list[float]:
        """``step_rates`` as numbers, requests per second.  SettingError for what is none."""
        rates = []
        for part in self.step_rates.split(",") if self.step_rates else ():
            try:
                rate = float(part)
            except ValueError:
                rate = -1.0
            if not 0 <= rate <= 1e5 or not math.isfinite(rate):
                raise SettingError(f"step_rates: {part.strip()!r} is not a number from 0 to 100000")
            rates.append(rate)
        return rates

    @property
    def streams_at_once(self) -> int:
        """Streams that are live at the same time, as far as that is known beforehand; else 0."""
        at_once = {"staggered": self.streams, "bursts": self.burst_size}.get(self.arrivals, self.max_concurrency)
        return min(at_once, self.max_concurrency or at_once)

    @property
    def end_s(self) -> float | None:
        """When the load is to be over, counted from its start, s; None when the schedule alone ends it."""
        if self.arrivals == "steps":
            steps_s = self.step_s * len(self.rates_of_steps())
            return min(self.duration_s or steps_s, steps_s)
        if self.duration_s <= 0:
            return None
        return self.duration_s + (self.ramp_s if self.arrivals == "staggered" else 0.0)
