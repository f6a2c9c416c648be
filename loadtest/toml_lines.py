"""On which line of a TOML file each table and key stands; `tomllib` reads values and forgets their places.

No second grammar of TOML: a file is cut into the shortest runs of lines that `tomllib` reads on their own, and what
a run holds stands where the run begins.  An unfinished string, array or table is never read, so a cut falls between
two statements and nowhere else.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["error_line", "key_lines"]

_LINE = re.compile(r"at line (\d+)")


def key_lines(text: str) -> dict[tuple[str, ...], int]:
    """Path of each table and key, such as ("load", "seed"), to the line where it is first given, from 1.

    ``text`` is a whole TOML document that `tomllib` reads.
    """
    lines: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    for number, is_header, content in _statements(text):
        paths = list(_paths(content))
        if is_header:
            table = max(paths, key=len)
        for path in paths:
            lines.setdefault(path if is_header else (*table, *path), number)
    return lines


def error_line(error: ValueError, raw: bytes) -> int:
    """The line at which ``raw`` stopped being TOML: of a `tomllib.TOMLDecodeError` or a UnicodeDecodeError."""
    if isinstance(error, UnicodeDecodeError):
        return raw.count(b"\n", 0, error.start) + 1
    found = _LINE.search(str(error))
    # What is missing at the end is missing after the last line that says anything.
    return int(found[1]) if found else raw.rstrip().count(b"\n") + 1


def _statements(text: str) -> Iterator[tuple[int, bool, Mapping[str, Any]]]:
    """(First line, whether it heads a table, what it says) of every run of lines that says anything."""
    unread, begins = "", 0
    for number, line in enumerate(text.split("\n"), 1):
        begins = begins if unread else number
        unread += line.rstrip("\r") + "\n"
        try:
            content = tomllib.loads(unread)
        except tomllib.TOMLDecodeError:
            continue
        if content:
            yield begins, unread.lstrip().startswith("["), content
        unread = ""


def _paths(content: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    for key, value in content.items():
        yield (key,)
        inner = value[-1] if isinstance(value, list) and value else value
        if isinstance(inner, Mapping):
            yield from ((key, *path) for path in _paths(inner))
