"""The real OpenAI SDK streams through the orchestrator and is told ctx's usage, under every policy."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from tests.system.conftest import Up, topology_up

pytestmark = pytest.mark.system

POLICIES = ["filter-off", "filter-on", "prefilter-find", "prefilter-nullaware", "parse-orjson", "parse-msgspec"]
PROMPT = "x" * 400  # 100 tokens, of which ctx's cache holds a quarter; gen would say that it holds all
TOKENS = 7


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with topology_up(Path(tmp_path_factory.mktemp("up")) / "run", "--set", "itl_ms=5") as running:
        yield running


@pytest.fixture(params=POLICIES)
def client(request: pytest.FixtureRequest, up: Up) -> Iterator[openai.OpenAI]:
    body = json.dumps({"policy": request.param}).encode()
    switch = urllib.request.Request(
        up.ops["orchestrator"] + "/admin/policy", body, {"Content-Type": "application/json"}, method="POST"
    )
    with urllib.request.urlopen(switch, timeout=10) as response:
        assert response.status == 200
    with openai.OpenAI(base_url=up.listen["orchestrator"] + "/v1", api_key="none", max_retries=0) as sdk:
        yield sdk


def assert_usage_is_ctx_s(usage: object) -> None:
    assert usage is not None
    details = usage.prompt_tokens_details  # type: ignore[attr-defined]
    numbers = (usage.prompt_tokens, details.cached_tokens, usage.completion_tokens, usage.total_tokens)  # type: ignore[attr-defined]

    assert numbers == (100, 25, TOKENS, 107)


@pytest.mark.parametrize("asked", [True, False], ids=["usage asked", "usage not asked"])
def test_streamed_chat_counts_and_ends_with_ctx_usage(client: openai.OpenAI, asked: bool) -> None:
    chunks = list(
        client.chat.completions.create(
            model="sim",
            messages=[{"role": "user", "content": PROMPT}],
            max_tokens=TOKENS,
            stream=True,
            stream_options={"include_usage": asked},
        )
    )
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)

    assert text == " 0 1 2 3 4 5 6"
    with_usage = [chunk for chunk in chunks if chunk.usage is not None]
    assert len(with_usage) == asked
    if asked:
        assert_usage_is_ctx_s(with_usage[0].usage)


def test_streamed_completions_end_with_ctx_usage(client: openai.OpenAI) -> None:
    chunks = list(
        client.completions.create(
            model="sim", prompt=PROMPT, max_tokens=TOKENS, stream=True, stream_options={"include_usage": True}
        )
    )

    assert "".join(chunk.choices[0].text for chunk in chunks if chunk.choices) == " 0 1 2 3 4 5 6"
    assert_usage_is_ctx_s(chunks[-1].usage)


def test_whole_chat_answer_has_ctx_usage(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model="sim", messages=[{"role": "user", "content": PROMPT}], max_tokens=TOKENS
    )

    assert answer.choices[0].message.content == " 0 1 2 3 4 5 6"
    assert_usage_is_ctx_s(answer.usage)


def test_whole_completions_answer_has_ctx_usage(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="sim", prompt=PROMPT, max_tokens=TOKENS)

    assert answer.choices[0].text == " 0 1 2 3 4 5 6"
    assert_usage_is_ctx_s(answer.usage)


def test_with_gen_rewriting_verbatim_is_told_ctx_usage_too(tmp_path: Path) -> None:
    settings = ("--set", "itl_ms=5", "--set", "usage_by=gen", "--set", "policy=verbatim")
    with (
        topology_up(tmp_path / "run", *settings) as gen_rewrites,
        openai.OpenAI(base_url=gen_rewrites.listen["orchestrator"] + "/v1", api_key="none", max_retries=0) as sdk,
    ):
        test_streamed_chat_counts_and_ends_with_ctx_usage(sdk, asked=True)
        test_streamed_chat_counts_and_ends_with_ctx_usage(sdk, asked=False)
        test_whole_chat_answer_has_ctx_usage(sdk)
        test_whole_completions_answer_has_ctx_usage(sdk)


def test_refusal_reaches_the_sdk_as_its_own_error(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="max_tokens must be a whole number"):
        client.completions.create(model="sim", prompt=PROMPT, max_tokens=0)
