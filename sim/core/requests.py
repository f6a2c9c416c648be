"""Client requests: what of an OpenAI body the servers look at, and the refusal of what cannot be served.

Fields that are not known here pass through untouched: a relay has no business refusing them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sim.core.bodies import JsonObject
from sim.core.settings import GenSettings, SettingError, from_mapping
from sim.core.tokens import prompt_tokens_of

__all__ = ["ClientRequest", "RequestError", "Script", "openai_error", "read_client_request"]

DEFAULT_MAX_TOKENS = 128
MAX_TOKENS_LIMIT = 10_000_000
_SCRIPT_SETTINGS = (
    "usage", "usage_key", "finish", "dialect", "newline", "chunk_bytes", "tokens_per_chunk", "events_per_write",
    "split_at", "glue_done", "extras", "apply_ctx_usage", "stamp_sent", "itl_ms",
)  # fmt: skip


class RequestError(ValueError):
    """A request that cannot be served (HTTP 400); ``param`` names the field, as OpenAI's errors do."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


@dataclass(frozen=True, slots=True)
class Script:
    """One request's own answer: the body's ``disagg_sim`` object, for tests and for the equality gate.

    ``texts`` are the reply's tokens; ``cached_tokens`` is what ctx's cache holds; ``prompt_tokens`` is what gen
    reports of the prompt, all of it cached, in place of the real count, so that a rewrite which corrects only one
    of the two shows; the other keys override the gen server's settings of the same name for this reply.  A reply
    with an ``itl_ms`` of its own is paced by itself, out of step with the others, whatever the server's ``tok_s``.
    """

    texts: tuple[str, ...] | None
    cached_tokens: int | None
    prompt_tokens: int | None
    overrides: Mapping[str, object]

    def apply(self, settings: GenSettings) -> GenSettings:
        """The settings of this stream.  SettingError if an override is not allowed."""
        checked = from_mapping(GenSettings, self.overrides, "disagg_sim")
        changes = {name: getattr(checked, name) for name in self.overrides}
        if self.paces:
            changes["tok_s"] = 0.0  # the other way of saying the same
        return dataclasses.replace(settings, **changes)

    @property
    def paces(self) -> bool:
        """Whether the reply has an inter-token latency of its own."""
        return "itl_ms" in self.overrides


@dataclass(frozen=True, slots=True)
class ClientRequest:
    """The parts of a body that the servers act on; ``max_tokens`` is the reply's exact length here."""

    endpoint: str
    stream: bool
    include_usage: bool
    continuous_usage: bool
    max_tokens: int
    model: str
    prompt_tokens: int
    script: Script | None


def openai_error(
    message: str, type: str = "invalid_request_error", param: str | None = None, code: str | int | None = None
) -> dict[str, Any]:
    """The error body that OpenAI's clients understand."""
    return {"error": {"message": message, "type": type, "param": param, "code": code}}


def read_client_request(
    body: object, endpoint: str, dialect: str = "trtllm", *, count_prompt: bool = True
) -> ClientRequest:
    """Read a body of ``endpoint`` ("chat" or "completions"), decoded or cut.  RequestError says what is wrong.

    ``stream_options: {}`` asks for usage in TensorRT-LLM's dialect and not in OpenAI's.  A relay has no use for
    ``prompt_tokens`` and spares their counting: they are 0 without ``count_prompt``.
    """
    if not isinstance(body, Mapping):
        raise RequestError("the body must be a JSON object")
    _check_prompt(body, endpoint)
    stream = _boolean(body, "stream")
    options = body.get("stream_options")
    if options is not None and not isinstance(options, Mapping):
        raise RequestError("stream_options must be an object", "stream_options")
    if options is not None and not stream:
        raise RequestError("stream_options is only allowed when stream is true", "stream_options")
    model = body.get("model", "sim")
    if not isinstance(model, str):
        raise RequestError("model must be a string", "model")
    n = body.get("n")
    if n is not None and (type(n) is not int or n != 1):
        raise RequestError("n must be 1", "n")
    script = _read_script(body.get("disagg_sim"))
    max_tokens = _max_tokens(body)
    return ClientRequest(
        endpoint=endpoint,
        stream=stream,
        include_usage=options is not None and _boolean(options, "include_usage", default=dialect == "trtllm"),
        continuous_usage=options is not None and _boolean(options, "continuous_usage_stats"),
        max_tokens=max_tokens if script is None or script.texts is None else len(script.texts),
        model=model,
        prompt_tokens=prompt_tokens_of(body) if count_prompt else 0,
        script=script,
    )


def _check_prompt(body: Mapping[str, Any], endpoint: str) -> None:
    if isinstance(body, JsonObject) and _has_usual_prompt(body, endpoint):
        return
    if endpoint == "chat":
        messages = body.get("messages")
        if not isinstance(messages, list) or not messages:
            raise RequestError("messages must be a non-empty array", "messages")
        for index, message in enumerate(messages):
            if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
                raise RequestError(f"messages[{index}] must be an object with a role", "messages")
            if not isinstance(message.get("content"), (str, list, type(None))):
                raise RequestError(f"messages[{index}].content must be a string or an array", "messages")
        return
    prompt = body.get("prompt")
    if isinstance(prompt, str):
        return
    if isinstance(prompt, list) and prompt:
        if len(prompt) == 1 and isinstance(prompt[0], str):
            return
        if all(type(token) is int for token in prompt):
            return
    raise RequestError("prompt must be a string, an array of one string, or an array of token ids", "prompt")


def _has_usual_prompt(body: JsonObject, endpoint: str) -> bool:
    """Whether the prompt is one that need not be decoded to be found right."""
    if endpoint == "chat":
        return body.holds_text_messages()
    return body.is_text("prompt") or body.id_count("prompt") > 0


def _boolean(holder: Mapping[str, Any], key: str, default: bool = False) -> bool:
    value = holder.get(key)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise RequestError(f"{key} must be a boolean", key)
    return value


def _max_tokens(body: Mapping[str, Any]) -> int:
    # A client's max_tokens reaches TensorRT-LLM's workers as max_completion_tokens, so both are read.
    for key in ("max_completion_tokens", "max_tokens"):
        value = body.get(key)
        if value is None:
            continue
        if type(value) is not int or not 1 <= value <= MAX_TOKENS_LIMIT:
            raise RequestError(f"{key} must be a whole number from 1 to {MAX_TOKENS_LIMIT}", key)
        return value
    return DEFAULT_MAX_TOKENS


def _read_script(value: object) -> Script | None:
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise RequestError("disagg_sim must be an object", "disagg_sim")
    rest = dict(value)
    texts, cached, prompt = (rest.pop(key, None) for key in ("texts", "cached_tokens", "prompt_tokens"))
    if texts is not None and not (isinstance(texts, list) and texts and all(isinstance(text, str) for text in texts)):
        raise RequestError("disagg_sim.texts must be a non-empty array of strings", "disagg_sim")
    if cached is not None and (type(cached) is not int or cached < 0):
        raise RequestError("disagg_sim.cached_tokens must be a whole number, 0 or more", "disagg_sim")
    if prompt is not None and (type(prompt) is not int or prompt < 1):
        raise RequestError("disagg_sim.prompt_tokens must be a whole number, 1 or more", "disagg_sim")
    unknown = sorted(set(rest) - set(_SCRIPT_SETTINGS))
    if unknown:
        known = ", ".join(("texts", "cached_tokens", "prompt_tokens", *_SCRIPT_SETTINGS))
        raise RequestError(f"disagg_sim.{unknown[0]}: unknown; known: {known}", "disagg_sim")
    script = Script(None if texts is None else tuple(texts), cached, prompt, rest)
    try:
        script.apply(GenSettings())
    except SettingError as error:
        raise RequestError(str(error), "disagg_sim") from None
    return script
