"""Lines of tables and keys: every way that TOML has to write them, and where a file stops being TOML."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

import loadtest
from loadtest.scenario import scenario_names
from loadtest.toml_lines import error_line, key_lines

SCENARIOS = Path(loadtest.__path__[0]) / "scenarios"

ODD = '''\
# a comment with [load] and seed = 1
title = "top" # seed = 2

[scenario] # [gen]
name = """
[ctx]
slots = 3
"""
description = 'not = a key'
  [ gen ]
"tok_s"   =   15.4
'usage' = "a # b"
[load]
numbers = [ # over lines
  1,

  2, # ]
]
inline = { seed = 4, deep = { er = 5 } }
dotted.key."with.dot" = 6
literal = \'\'\'
limit = 7 \'\'\'
after = """one \\
   line"""
limit = 8
[orchestrator."quoted.name"]
x = 1
[[list]]
a = 1
[[list]]
a = 2
b = 3
'''


def test_every_way_to_write_a_key() -> None:
    assert key_lines(ODD) == {
        ("title",): 2,
        ("scenario",): 4,
        ("scenario", "name"): 5,
        ("scenario", "description"): 9,
        ("gen",): 10,
        ("gen", "tok_s"): 11,
        ("gen", "usage"): 12,
        ("load",): 13,
        ("load", "numbers"): 14,
        ("load", "inline"): 19,
        ("load", "inline", "seed"): 19,
        ("load", "inline", "deep"): 19,
        ("load", "inline", "deep", "er"): 19,
        ("load", "dotted"): 20,
        ("load", "dotted", "key"): 20,
        ("load", "dotted", "key", "with.dot"): 20,
        ("load", "literal"): 21,
        ("load", "after"): 23,
        ("load", "limit"): 25,
        ("orchestrator",): 26,
        ("orchestrator", "quoted.name"): 26,
        ("orchestrator", "quoted.name", "x"): 27,
        ("list",): 28,
        ("list", "a"): 29,
        ("list", "b"): 32,
    }


@pytest.mark.parametrize("text", ["", "\n\n", "# nothing\n", "\r\n# nothing"])
def test_a_document_without_keys(text: str) -> None:
    assert key_lines(text) == {}


def test_other_line_endings_and_no_last_one() -> None:
    assert key_lines(ODD.replace("\n", "\r\n")) == key_lines(ODD) == key_lines(ODD.rstrip("\n"))


def test_a_dotted_and_an_inline_table_at_the_top() -> None:
    assert key_lines("load.seed = 1\ngen = {tok_s = 2}\nload.limit = 3") == {
        ("load",): 1, ("load", "seed"): 1, ("gen",): 2, ("gen", "tok_s"): 2, ("load", "limit"): 3
    }  # fmt: skip


@pytest.mark.parametrize("name", scenario_names())
def test_every_key_of_a_scenario_is_found_and_is_written_on_its_line(name: str) -> None:
    text = (SCENARIOS / f"{name}.toml").read_text()
    lines = key_lines(text)
    content = tomllib.loads(text)

    assert set(lines) == {(table,) for table in content} | {(t, k) for t, keys in content.items() for k in keys}
    for path, line in lines.items():
        assert path[-1] in text.split("\n")[line - 1]


@pytest.mark.parametrize(
    ("raw", "line"),
    [
        (b"a = 1\nb = \n", 2),
        (b"a = 1\n[gen\nb = 1\n", 2),
        (b'a = 1\nb = """x\n\n', 2),
        (b"a = 1\na = 2\n", 2),
        (b"a = [1,\n2\n\n\n", 2),
        (b"a = 1\r\nb = 1\r\nc = nope\r\n", 3),
        (b"a = 1\n# \xff\n", 2),
        (b"\xff", 1),
        (b"a =", 1),
    ],
)
def test_the_line_at_which_a_file_stops_being_toml(raw: bytes, line: int) -> None:
    with pytest.raises((tomllib.TOMLDecodeError, UnicodeDecodeError)) as caught:
        tomllib.loads(raw.decode())

    assert error_line(caught.value, raw) == line
