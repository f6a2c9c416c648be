"""The fakes' tokens: how long a prompt is, what the prefix cache holds of it, what a reply says.

No tokenizer is needed: four UTF-8 bytes are a token, about right for English, and what matters to a relay is
the size of the body.  The reply counts (" 0 1 2 ..."), so a reader can tell order and loss from any event.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sim.core.bodies import JsonObject

__all__ = ["BYTES_PER_TOKEN", "cached_tokens_of", "prompt_ids", "prompt_texts", "prompt_tokens_of", "token_text"]

BYTES_PER_TOKEN = 4


def prompt_tokens_of(body: Mapping[str, object]) -> int:
    """Tokens of a request body's prompt, at least 1; token ids, where given, count themselves.

    A body with messages is a chat: a stray ``prompt`` in it does not count.
    """
    if isinstance(body, JsonObject) and (count := _id_count(body)):
        return count
    ids = prompt_ids(body)
    if ids is not None:
        return len(ids)
    size_bytes = sum(len(text.encode("utf-8", "surrogatepass")) for text in prompt_texts(body))
    return max(1, -(-size_bytes // BYTES_PER_TOKEN))


def prompt_ids(body: Mapping[str, object]) -> list[object] | None:
    """A prompt's token ids, where it was given as such."""
    ids = body.get("prompt_token_ids")
    if ids is None and "messages" not in body:
        ids = body.get("prompt")
    return ids if isinstance(ids, list) and ids and not isinstance(ids[0], str) else None


def cached_tokens_of(prompt_tokens: int, hit_ratio: float) -> int:
    """Prompt tokens that the ctx server's prefix cache holds; the last token is always computed."""
    return max(0, min(int(prompt_tokens * hit_ratio), prompt_tokens - 1))


def token_text(k: int) -> str:
    """Text of the reply's token ``k``, counted from 0."""
    return f" {k}"


def prompt_texts(body: Mapping[str, object]) -> Iterator[str]:
    """The texts of a prompt in order: of all messages, or the prompt itself."""
    messages = body.get("messages")
    if messages is None:
        prompt = body.get("prompt")
        yield from (part for part in (prompt if isinstance(prompt, list) else [prompt]) if isinstance(part, str))
        return
    for message in messages if isinstance(messages, list) else []:
        content = message.get("content") if isinstance(message, Mapping) else None
        if isinstance(content, str):
            yield content
        elif isinstance(content, list):
            for part in content:
                text = part.get("text") if isinstance(part, Mapping) else None
                if isinstance(text, str):
                    yield text


def _id_count(body: JsonObject) -> int:
    """The prompt's token ids, counted without decoding them; 0 if it is not just that."""
    if "prompt_token_ids" in body or "messages" in body:
        return body.id_count("prompt_token_ids")
    return body.id_count("prompt")
