"""The fakes' tokens: prompt length, cached part, the counting reply."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.core.tokens import BYTES_PER_TOKEN, cached_tokens_of, prompt_tokens_of, token_text


@pytest.mark.parametrize(
    ("body", "tokens"),
    [
        ({"prompt": ""}, 1),
        ({"prompt": "abc"}, 1),
        ({"prompt": "abcd"}, 1),
        ({"prompt": "abcde"}, 2),
        ({"prompt": "\u00e9\u00e9\u00e9"}, 2),
        ({"prompt": "\U0001f600"}, 1),
        ({"prompt": "\ud83d\ud83d"}, 2),
        ({"prompt": ["abcde"]}, 2),
        ({"prompt": ["abcd", "efgh"]}, 2),
        ({"prompt": [5]}, 1),
        ({"prompt": list(range(1000))}, 1000),
        ({"prompt": [], "messages": []}, 1),
        ({"prompt": "abcdefgh", "prompt_token_ids": [1, 2, 3, 4, 5]}, 5),
        ({"messages": [{"role": "user", "content": "abcdefgh"}]}, 2),
        ({"messages": [{"role": "system", "content": "abc"}, {"role": "user", "content": "de"}]}, 2),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "abcdefghi"}, {"image": 1}]}]}, 3),
        ({"messages": [{"role": "user", "content": "abcdefgh"}], "prompt_token_ids": [1, 2, 3]}, 3),
        ({"messages": [{"role": "assistant", "content": None}, "x", {"role": "user"}]}, 1),
        ({"messages": "abcdefgh"}, 1),
        ({}, 1),
    ],
    ids=lambda value: repr(value)[:60],
)
def test_four_utf8_bytes_are_a_token_and_token_ids_count_themselves(body, tokens):
    assert prompt_tokens_of(body) == tokens


@given(st.text())
def test_a_prompt_has_the_tokens_its_bytes_fill_in_either_endpoint(text):
    tokens = prompt_tokens_of({"prompt": text})
    assert tokens == prompt_tokens_of({"messages": [{"role": "user", "content": text}]})
    size_bytes = len(text.encode())
    assert tokens == 1 or (tokens - 1) * BYTES_PER_TOKEN < size_bytes <= tokens * BYTES_PER_TOKEN


@pytest.mark.parametrize(
    ("prompt_tokens", "hit_ratio", "cached"),
    [
        (100, 0.0, 0),
        (100, 0.25, 25),
        (10, 0.25, 2),
        (3, 0.25, 0),
        (100, 0.999, 99),
        (100, 1.0, 99),
        (1, 1.0, 0),
        (0, 1.0, 0),
        (40_000, 0.75, 30_000),
    ],
)
def test_cached_is_the_floor_of_the_ratio_and_the_last_token_is_always_computed(prompt_tokens, hit_ratio, cached):
    assert cached_tokens_of(prompt_tokens, hit_ratio) == cached


@given(st.integers(1, 10**7), st.floats(0, 1))
def test_some_of_a_prompt_is_always_left_to_compute(prompt_tokens, hit_ratio):
    assert 0 <= cached_tokens_of(prompt_tokens, hit_ratio) < prompt_tokens


def test_the_reply_counts_from_zero():
    assert "".join(map(token_text, range(12))) == " 0 1 2 3 4 5 6 7 8 9 10 11"
