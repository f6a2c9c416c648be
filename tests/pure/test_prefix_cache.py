"""The prefix cache: keys of blocks, what is found, what goes first; and a recording's hits, counted twice."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from loadtest.load_settings import LoadSettings
from loadtest.plan import Target
from loadtest.prompts import Prompts
from loadtest.workload import request_bytes
from sim.core.bodies import read_body
from sim.core.prefix_cache import PrefixCache, block_keys
from sim.core.settings import CtxSettings, SettingError

TRACES = Path(__file__).parents[3] / "shared" / "traces"
MOONCAKE_BLOCK_TOKENS = 512
TARGET = Target("127.0.0.1", 80, "")
NO_TRACES = pytest.mark.skipif(not TRACES.is_dir(), reason="the recordings are not part of the project")


def keys_of(text: str, block_tokens: int = 2) -> list[bytes]:
    return block_keys({"prompt": text}, block_tokens)


def test_there_is_a_key_for_every_full_block_and_none_for_the_rest():
    assert [len(keys_of("x" * size)) for size in (0, 7, 8, 9, 15, 16, 80)] == [0, 0, 1, 1, 1, 2, 10]


def test_a_key_says_all_that_stands_before_its_end():
    one, other, shifted = keys_of("aaaaaaaabbbbbbbb"), keys_of("xaaaaaaabbbbbbbb"), keys_of("bbbbbbbbaaaaaaaa")

    assert one[0] == keys_of("aaaaaaaa")[0]
    assert not set(one) & set(other)
    assert not set(one) & set(shifted)
    assert len(set(keys_of("aaaaaaaa" * 50))) == 50


def test_a_chats_texts_are_one_text_and_bytes_are_what_counts():
    parts = {"role": "user", "content": [{"type": "text", "text": "éé"}, {"type": "image_url"}]}
    chat = {"messages": [{"role": "system", "content": "abcd"}, parts, {"role": "assistant", "content": None}]}

    assert block_keys(chat, 2) == keys_of("abcdéé") != []


def test_token_ids_are_no_text_and_are_cut_by_number():
    ids = {"prompt": [7, 2**70, 9, 1]}

    assert block_keys(ids, 2) == block_keys({"prompt": "x", "prompt_token_ids": [7, 2**70, 9, 1, 5]}, 2)
    assert block_keys({"prompt": [7, 2**70, 9, 2]}, 2)[0] == block_keys(ids, 2)[0]
    assert block_keys({"prompt": [7, 2**70, 9, 2]}, 2)[1] != block_keys(ids, 2)[1]
    assert block_keys({"prompt": [1, 2]}, 2) != keys_of("[1,2]   ")


@pytest.mark.parametrize("body", [{"prompt": 'a"b\u00e9' * 9}, {"messages": [{"role": "user", "content": "abcd" * 9}]}])
def test_a_cut_body_has_the_keys_of_the_decoded_one(body):
    raw = json.dumps(body).encode()

    assert block_keys(read_body(raw), 2) == block_keys(json.loads(raw), 2) != []


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"cache_capacity_tokens": 1024}, "cache_capacity_tokens: prefix_cache is 'ratio'; it is for blocks"),
        ({"prefix_cache": "blocks", "cache_capacity_tokens": 511}, "cache_capacity_tokens: 511 hold no block of 512"),
    ],
)
def test_a_capacity_that_makes_no_sense_is_refused(values, message):
    with pytest.raises(SettingError, match=message):
        CtxSettings(**values)


def test_what_is_held_is_found_up_to_the_first_block_that_is_not():
    cache = PrefixCache(2)
    text = "abcdefgh" * 2 + "ijklmnop" * 2
    cache.hold(keys_of(text))

    assert cache.cached_tokens(keys_of(text + "more"), 9) == 8
    assert cache.cached_tokens(keys_of(text[:24] + "another!"), 8) == 6
    assert cache.cached_tokens(keys_of("?" + text), 8) == 0
    assert cache.cached_tokens([], 1) == 0
    assert (cache.blocks, cache.evicted) == (4, 0)


@pytest.mark.parametrize(("tokens", "cached"), [(1, 0), (2, 0), (3, 2), (4, 2), (5, 4), (6, 4), (7, 6)])
def test_the_whole_prompt_is_never_at_hand(tokens, cached):
    cache = PrefixCache(2)
    text = "abcd" * 3 + "wxyz" * 4
    cache.hold(keys_of(text))

    assert cache.cached_tokens(keys_of(text[: 4 * tokens]), tokens) == cached


def test_the_least_recently_used_goes_first_and_of_one_prompt_its_end():
    cache = PrefixCache(1, capacity_tokens=4)
    old, new = keys_of("aaaabbbbcccc", 1), keys_of("xxxxyyyy", 1)
    cache.hold(old)
    cache.hold(new)

    assert (cache.blocks, cache.evicted) == (4, 1)
    assert cache.cached_tokens(old, 4) == 2
    cache.hold(keys_of("aaaa", 1))  # used again
    cache.hold(keys_of("zzzz", 1))
    assert (cache.cached_tokens(old, 4), cache.cached_tokens(new, 3)) == (1, 2)
    assert (cache.blocks, cache.evicted) == (4, 2)


def test_a_prompt_larger_than_the_cache_leaves_its_beginning():
    cache = PrefixCache(1, capacity_tokens=3)
    text = "".join(f"{number:04}" for number in range(10))
    cache.hold(keys_of(text, 1))

    assert (cache.blocks, cache.evicted) == (3, 7)
    assert cache.cached_tokens(keys_of(text, 1), 10) == 3


@NO_TRACES
def test_a_recordings_hits_are_those_of_an_infinite_cache_of_its_own_hashes():
    """Two countings that share nothing: hash ids of the recording, and hashes of the bodies made from them."""
    recorded = (TRACES / "mooncake_fast25_conversation_head240.jsonl").read_text().splitlines()
    with (TRACES / "mooncake_fast25_conversation_lengths_20min.csv").open() as file:
        derived = list(csv.DictReader(file))
    prompts, cache, seen = Prompts(1), PrefixCache(MOONCAKE_BLOCK_TOKENS), set()
    found, expected = [], []
    for number, line in enumerate(recorded):
        row = json.loads(line)
        tokens, ids = row["input_length"], row["hash_ids"]
        whole, rest = divmod(tokens, MOONCAKE_BLOCK_TOKENS)
        prefix = [(one, MOONCAKE_BLOCK_TOKENS) for one in ids[:whole]] + [(one, rest) for one in ids[whole:]]
        raw = request_bytes(TARGET, LoadSettings(), prompts.make(number, tokens, tuple(prefix)), 1)
        keys = block_keys(read_body(raw.partition(b"\r\n\r\n")[2]), MOONCAKE_BLOCK_TOKENS)
        found.append(cache.cached_tokens(keys, tokens) // MOONCAKE_BLOCK_TOKENS)
        cache.hold(keys)

        shared = next((at for at, one in enumerate(ids) if one not in seen), len(ids))
        seen.update(ids)
        expected.append(min(shared, (tokens - 1) // MOONCAKE_BLOCK_TOKENS))
        assert int(derived[number]["input_length"]) == tokens
        assert int(derived[number]["prefix_blocks_seen"]) == shared

    assert found == expected
    assert sum(found) == 421  # so that the equality is of more than zeros
