"""Every program that the bench measures beside ours, by kind: relays, fakes (gens) and load clients."""

from __future__ import annotations

from bench.candidate import Candidate
from bench.candidates.clients import CLIENTS
from bench.candidates.gens import GENS
from bench.candidates.relays import RELAYS

__all__ = ["clients", "gens", "relays"]


def relays() -> tuple[Candidate, ...]:
    """What stands between client and gen, one hop each."""
    return RELAYS


def gens() -> tuple[Candidate, ...]:
    """What streams tokens."""
    return GENS


def clients() -> tuple[Candidate, ...]:
    """What loads a server and counts the tokens that arrive."""
    return CLIENTS
