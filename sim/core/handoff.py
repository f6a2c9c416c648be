"""The hand-off between ctx and gen, as TensorRT-LLM's disaggregated serving speaks it (JSON bodies).

Context-first: the ctx request is the client's body made non-streamed; ctx answers with its true usage and
`disaggregated_params`; the gen request is the client's body with those parameters.  In the newer era (C) it
also carries `ctx_usage`, and gen reports that; in the older one (B) it does not, and the orchestrator
rewrites.  Ids are integers of up to 64 bits and are echoed exactly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from msgspec import Raw

from sim.core.bodies import JsonObject, as_received
from sim.core.chunks import full_answer
from sim.core.requests import RequestError
from sim.core.usage import Usage

__all__ = [
    "Handoff",
    "HandoffError",
    "check_generation_only",
    "ctx_answer",
    "ctx_request",
    "ctx_usage_of",
    "gen_request",
    "is_generation_only",
    "read_ctx_answer",
]


class HandoffError(ValueError):
    """A ctx answer that gen cannot continue from; ``reason`` is a word to count it by."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Handoff:
    """What ctx answered: the parameters for gen, the true usage, and whether gen is needed at all."""

    params: Mapping[str, Any]
    usage: Usage
    prompt_token_ids: list[int] | Raw | None
    needs_gen: bool


def ctx_request(client_body: Mapping[str, Any], disagg_request_id: int) -> dict[str, Any]:
    """The body to send to ctx; max_tokens is not lowered, ctx stops after prefill by request_type."""
    return {
        **as_received(client_body),
        "stream": False,
        "stream_options": None,
        "disaggregated_params": {"request_type": "context_only", "disagg_request_id": disagg_request_id},
    }


def ctx_answer(
    endpoint: str,
    body: Mapping[str, Any],
    *,
    usage: Usage,
    id: str,
    created: int,
    model: str,
    ctx_request_id: int,
    first_token: int,
    first_text: str,
    finish_reason: str,
    prompt_token_ids: list[int] | Raw | None,
) -> dict[str, Any]:
    """The ctx server's answer to ``body``, with the hand-off when ``body`` asked for one."""
    answer = full_answer(
        endpoint, id=id, created=created, model=model, text=first_text, usage=usage, finish_reason=finish_reason
    )
    params = body.get("disaggregated_params")
    if isinstance(params, Mapping):
        answer["choices"][0]["disaggregated_params"] = {
            "request_type": "context_only",
            "first_gen_tokens": [first_token],
            "ctx_request_id": ctx_request_id,
            "disagg_request_id": params.get("disagg_request_id"),
        }
    if prompt_token_ids is not None:
        answer["prompt_token_ids"] = prompt_token_ids
    return answer


def read_ctx_answer(answer: object) -> Handoff:
    """Check a ctx answer as TensorRT-LLM's orchestrator does.  HandoffError names what is missing."""
    if not isinstance(answer, Mapping):
        raise HandoffError("bad_shape", "the context server's answer is not a JSON object")
    choices = answer.get("choices")
    if not isinstance(choices, list) or len(choices) != 1:
        count = len(choices) if isinstance(choices, list) else 0
        raise HandoffError("no_choices", f"the context server returned {count} choices, expected 1")
    if not isinstance(choices[0], Mapping):
        raise HandoffError("bad_shape", "the context server's choice is not a JSON object")
    params = choices[0].get("disaggregated_params")
    if not isinstance(params, Mapping):
        raise HandoffError("no_handoff", "the context server did not return disaggregated_params")
    for key in ("ctx_request_id", "disagg_request_id"):
        if type(params.get(key)) is not int:
            raise HandoffError(f"no_{key}", f"the context server's disaggregated_params has no {key}")
    try:
        usage = Usage.from_json(answer.get("usage"))
    except ValueError as error:
        raise HandoffError("no_usage", f"the context server's usage cannot be used: {error}") from None
    return Handoff(
        params=params,
        usage=usage,
        prompt_token_ids=_prompt_token_ids(answer),
        needs_gen=choices[0].get("finish_reason") in ("length", "not_finished"),
    )


def _prompt_token_ids(answer: Mapping[str, Any]) -> list[int] | Raw | None:
    if isinstance(answer, JsonObject):
        return answer.members["prompt_token_ids"] if answer.is_array("prompt_token_ids") else None
    ids = answer.get("prompt_token_ids")
    return ids if isinstance(ids, list) else None


def gen_request(
    client_body: Mapping[str, Any], handoff: Handoff, endpoint: str, *, with_ctx_usage: bool
) -> dict[str, Any]:
    """The body to send to gen; ``with_ctx_usage`` is the newer era, in which gen reports ctx's numbers."""
    params = {**handoff.params, "request_type": "generation_only"}
    if with_ctx_usage:
        params["ctx_usage"] = handoff.usage.to_json()
    body = {**as_received(client_body), "disaggregated_params": params}
    if handoff.prompt_token_ids is not None:
        body["prompt" if endpoint == "completions" else "prompt_token_ids"] = handoff.prompt_token_ids
    return body


def is_generation_only(body: Mapping[str, Any]) -> bool:
    """Whether this request comes with a hand-off."""
    params = body.get("disaggregated_params")
    return isinstance(params, Mapping) and params.get("request_type") == "generation_only"


def check_generation_only(body: Mapping[str, Any]) -> None:
    """Gen's side of the check: RequestError names what a generation_only request lacks."""
    params = body["disaggregated_params"]
    for key in ("ctx_request_id", "disagg_request_id"):
        if type(params.get(key)) is not int:
            raise RequestError(f"disaggregated_params.{key} must be a whole number", "disaggregated_params")
    tokens = params.get("first_gen_tokens")
    if not isinstance(tokens, list) or not tokens:
        raise RequestError("disaggregated_params.first_gen_tokens must be a non-empty array", "disaggregated_params")


def ctx_usage_of(body: Mapping[str, Any]) -> Usage | None:
    """The ctx_usage handed over, or None.  RequestError if it is there and cannot be used."""
    params = body.get("disaggregated_params")
    value = params.get("ctx_usage") if isinstance(params, Mapping) else None
    if value is None:
        return None
    try:
        return Usage.from_json(value)
    except ValueError as error:
        raise RequestError(f"disaggregated_params.ctx_usage: {error}", "disaggregated_params") from None
