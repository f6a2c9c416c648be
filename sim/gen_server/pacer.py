"""Whose token is due now: each stream at its own phase, or one engine step for all.

The rule: token k is due at due(k-1) + gap, never at the wake-up + gap, so lateness does not add up; the gap is
drawn at the load of the moment.  A stream's token 0 is what the hand-off brought, due when its KV has come over.
What a token looks like on the wire is not here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from sim.core.latency import Jitter, step_s
from sim.core.settings import GenSettings
from sim.service.wheel import Due, TimerWheel

__all__ = ["Lockstep", "Paced", "Pacer", "TokenTaker", "make_pacer"]


class TokenTaker(Protocol):
    """What gets tokens: a stream, or an answer that is sent whole."""

    def token_due(self, due_ns: int, now_ns: int) -> bool:
        """One more token is due; False if it wants no further one."""


class Pacer(Protocol):
    """Gives every running stream its tokens when they are due."""

    def __len__(self) -> int:
        """Streams running, those whose KV is still on its way included: they hold a slot already."""

    def join(self, stream: TokenTaker, ready_ns: int) -> None:
        """Run ``stream``, whose KV is here at ``ready_ns``."""

    def leave(self, stream: TokenTaker) -> None:
        """Stop it at once; nothing happens if it has had its last token."""

    def change_pace(self, settings: GenSettings, now_ns: int) -> int:
        """Go on at the pace of ``settings``; how many streams had begun and go on at it.

        What is left of a gap that is under way shrinks or grows as the gaps do, so streams that were evenly spread stay
        so.  Tokens that are overdue, and the first one of a stream, keep their times.
        """


def make_pacer(settings: GenSettings, wheel: TimerWheel, clock: Callable[[], int]) -> Pacer:
    """The pacer that ``settings.emission`` names."""
    return Paced(settings, wheel) if settings.emission == "paced" else Lockstep(settings, wheel, clock)


class _Gaps:
    """Draws the time between two tokens, ns."""

    def __init__(self, settings: GenSettings) -> None:
        self._jitter = Jitter(settings.jitter, settings.seed)
        self.change(settings)

    def change(self, settings: GenSettings) -> None:
        """Draw by ``settings`` from now on; the jitter goes on where it was."""
        self._settings = settings
        constant = settings.jitter == 0 and settings.load_slope == 0
        self.fixed_ns = round(settings.itl_s * 1e9) if constant else None

    def rescaled_ns(self, due_ns: int, now_ns: int, settings: GenSettings) -> int:
        """When a token due at ``due_ns`` is due if the pace becomes that of ``settings`` at ``now_ns``."""
        return now_ns + round((due_ns - now_ns) * settings.itl_s / self._settings.itl_s)

    def draw_ns(self, running: int) -> int:
        if self.fixed_ns is not None:
            return self.fixed_ns
        return round(step_s(self._settings, running / self._settings.slots) * self._jitter.draw() * 1e9)


class Paced:
    """Every stream by itself, at the phase its arrival gave it."""

    def __init__(self, settings: GenSettings, wheel: TimerWheel) -> None:
        self._wheel = wheel
        self._gaps = _Gaps(settings)
        self.fixed_ns = self._gaps.fixed_ns
        self._phases: dict[TokenTaker, _Phase] = {}

    def __len__(self) -> int:
        return len(self._phases)

    def join(self, stream: TokenTaker, ready_ns: int) -> None:
        """Token 0 is due at ``ready_ns``."""
        phase = self._phases[stream] = _Phase(self, stream, ready_ns)
        self._wheel.schedule(ready_ns, phase.on_due)

    def leave(self, stream: TokenTaker) -> None:
        """Stop it at once."""
        phase = self._phases.pop(stream, None)
        if phase is not None:
            self._wheel.cancel(phase.due_ns, phase.on_due)

    def change_pace(self, settings: GenSettings, now_ns: int) -> int:
        """Every stream goes on at the pace of ``settings``, evenly spread as before.

        What is overdue is given out first, at the old pace: late streams would else all go on from about now.
        """
        begun = [phase for phase in self._phases.values() if phase.begun]
        for phase in begun:
            if not self._wheel.cancel(phase.due_ns, phase.on_due):
                continue
            due_ns: int | None = phase.due_ns
            while due_ns is not None and due_ns <= now_ns:
                due_ns = phase.on_due(due_ns, now_ns)
            if due_ns is not None:
                phase.due_ns = self._gaps.rescaled_ns(due_ns, now_ns, settings)
                self._wheel.schedule(phase.due_ns, phase.on_due)
        self._gaps.change(settings)
        self.fixed_ns = self._gaps.fixed_ns
        for phase in self._phases.values():
            phase.fixed_ns = self.fixed_ns
        return len(begun)

    def drop(self, stream: TokenTaker) -> None:
        """Forget a stream that wants no further token."""
        del self._phases[stream]

    def gap_ns(self) -> int:
        """Draw the time to a stream's next token."""
        return self._gaps.draw_ns(len(self._phases))


class _Phase:
    """One stream's place in time."""

    __slots__ = ("_pacer", "_ready_ns", "_stream", "_token_due", "due_ns", "fixed_ns")

    def __init__(self, pacer: Paced, stream: TokenTaker, due_ns: int) -> None:
        self.due_ns = self._ready_ns = due_ns
        self._pacer = pacer
        self._stream = stream
        self._token_due = stream.token_due
        self.fixed_ns = pacer.fixed_ns

    @property
    def begun(self) -> bool:
        """Whether it has had its first token."""
        return self.due_ns != self._ready_ns

    def on_due(self, due_ns: int, now_ns: int) -> int | None:
        """Let the stream have its token; when the next one is due."""
        if self._token_due(due_ns, now_ns):
            self.due_ns = due_ns = due_ns + (self.fixed_ns or self._pacer.gap_ns())
            return due_ns
        self._pacer.drop(self._stream)
        return None


class Lockstep:
    """One engine: a step emits a token for every running stream, in one burst; who comes waits for the next.

    An engine with nothing to do has no phase: the first to come starts its steps.
    """

    def __init__(self, settings: GenSettings, wheel: TimerWheel, clock: Callable[[], int]) -> None:
        self._wheel = wheel
        self._clock = clock
        self._gaps = _Gaps(settings)
        self._arriving: dict[TokenTaker, tuple[int, Due]] = {}
        self._running: dict[TokenTaker, None] = {}
        self._step_due_ns: int | None = None  # None: no step is under way

    def __len__(self) -> int:
        return len(self._arriving) + len(self._running)

    def join(self, stream: TokenTaker, ready_ns: int) -> None:
        """Token 0 comes with the first step due at or after ``ready_ns``."""
        callback = partial(self._on_ready, stream)
        self._arriving[stream] = ready_ns, callback
        self._wheel.schedule(ready_ns, callback)

    def leave(self, stream: TokenTaker) -> None:
        """Stop it at once."""
        arrival = self._arriving.pop(stream, None)
        if arrival is not None:
            self._wheel.cancel(*arrival)
        self._running.pop(stream, None)

    def change_pace(self, settings: GenSettings, now_ns: int) -> int:
        """The engine goes on at the pace of ``settings``; the step under way takes its share of the new length."""
        due_ns = self._step_due_ns
        if due_ns is not None and due_ns > now_ns and self._running and self._wheel.cancel(due_ns, self._step):
            self._begin_step(self._gaps.rescaled_ns(due_ns, now_ns, settings))
        self._gaps.change(settings)
        return len(self._running)

    def _on_ready(self, stream: TokenTaker, ready_ns: int, _now_ns: int) -> None:
        arrival = self._arriving.get(stream)
        if arrival is None:
            return  # a step of the same wake-up has taken it in
        if self._step_due_ns is None:
            self._begin_step(ready_ns)
        elif self._step_due_ns < ready_ns:
            self._wheel.schedule(*arrival)  # that step is overdue and not this one's: ask again after it

    def _begin_step(self, due_ns: int) -> None:
        self._step_due_ns = due_ns
        self._wheel.schedule(due_ns, self._step)

    def _step(self, due_ns: int, _now_ns: int) -> None:
        # Due times say who takes part, not the order in which timers happened to fire.
        for stream in [stream for stream, (ready_ns, _) in self._arriving.items() if ready_ns <= due_ns]:
            del self._arriving[stream]
            self._running[stream] = None
        clock = self._clock
        done = [stream for stream in self._running if not stream.token_due(due_ns, clock())]
        for stream in done:
            self._running.pop(stream, None)
        self._step_due_ns = None
        if self._running:
            self._begin_step(due_ns + self._gaps.draw_ns(len(self)))
