"""A reply that is finished at ctx (a finish_reason other than "length"): its answer is the client's, gen is not asked.

TensorRT-LLM sends a stream client a bare ``[DONE]`` here and loses ctx's one token, the finish_reason and the
usage.  A client that asked for a stream is sent a proper one instead: the same content that a non-stream client
gets, which is also what the load generator's checks expect of every stream.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sim.core.bodies import as_received

__all__ = ["final_answer", "final_stream"]


def final_answer(answer: Mapping[str, Any]) -> dict[str, Any]:
    """The ctx answer (checked: it has one choice) without the hand-off that nobody needs any more."""
    choice = {key: value for key, value in answer["choices"][0].items() if key != "disaggregated_params"}
    return {**as_received(answer), "choices": [choice]}


def final_stream(answer: Mapping[str, Any], endpoint: str, *, include_usage: bool) -> bytes:
    """The same as a stream: one event with everything, a usage event if asked, ``[DONE]``."""
    choice = final_answer(answer)["choices"][0]
    if endpoint == "chat":
        choice = {"index": 0, "delta": _delta(choice.pop("message", None)), **choice}
    kind = "chat.completion.chunk" if endpoint == "chat" else "text_completion"
    head = {"id": answer.get("id"), "object": kind, "created": answer.get("created"), "model": answer.get("model")}
    events = [_event({**head, "choices": [choice]})]
    if include_usage:
        events.append(_event({**head, "choices": [], "usage": answer["usage"]}))
    return b"".join((*events, b"data: [DONE]\n\n"))


def _delta(message: object) -> dict[str, Any]:
    """A message as the only delta of its stream; tool calls are numbered there."""
    if not isinstance(message, Mapping):
        return {}
    delta = dict(message)
    if isinstance(calls := message.get("tool_calls"), list):
        delta["tool_calls"] = [{"index": i, **call} for i, call in enumerate(calls) if isinstance(call, Mapping)]
    return delta


def _event(body: Mapping[str, Any]) -> bytes:
    return b"data: %b\n\n" % json.dumps(body, separators=(",", ":")).encode()
