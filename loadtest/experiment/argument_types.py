"""Kinds of arguments on the command line: each takes the text and gives the value, or says what it should be."""

from __future__ import annotations

import argparse
import math

__all__ = ["MOST_WORKERS", "add_policies", "at_least_one", "positive", "whole", "worker_counts", "workers"]

MOST_WORKERS = 64


def positive(text: str) -> float:
    """An argument that is a number above 0."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return value


def whole(text: str) -> int:
    """A whole number, 0 or more."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number, 0 or more")
    return int(text)


def at_least_one(text: str) -> int:
    """A whole number, 1 or more."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number, 1 or more")
    return int(text)


def workers(text: str) -> int:
    """How many processes a part of the run is: so many that a slip of the finger cannot start hundreds."""
    if not text.isdecimal() or not 1 <= int(text) <= MOST_WORKERS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 to {MOST_WORKERS}")
    return int(text)


def worker_counts(text: str) -> list[int]:
    """Several such numbers, separated by commas."""
    counts = [workers(part) for part in text.split(",")]
    if len(set(counts)) < len(counts):
        raise argparse.ArgumentTypeError(f"{text!r} names a number twice")
    return counts


def add_policies(verb: argparse.ArgumentParser) -> None:
    """Add the policies that a verb holds against each other."""
    verb.add_argument(
        "policies",
        nargs="*",
        metavar="POLICY",
        default=["filter-off", "filter-on"],
        help="built-in name or package.module:callable; default: filter-off filter-on",
    )
