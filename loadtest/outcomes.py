"""How a stream can end: the words that client.json counts failures by, and what each says.

Every stream ends in exactly one of them; the first fault seen is the one that counts.
"""

from __future__ import annotations

__all__ = ["ABORTED", "CANCELLED", "FAULTS", "OK", "http_status"]

OK = "ok"
ABORTED = "aborted"
"""Closed by the load itself, because the run was over or was interrupted."""
CANCELLED = "cancelled"
"""Closed by the load itself after as many tokens as its plan says: a client that has read enough."""

FAULTS = {
    "refused_connect": "no connection: refused, unreachable, or no descriptor left",
    "http_<status>": "an HTTP status other than 200",
    "not_sse": "the answer to a stream request is not text/event-stream",
    "bad_http": "the response breaks HTTP's framing, or does not end",
    "bad_event": "an event that is not JSON, or too long",
    "cut": "the connection ended before [DONE] (or, not streamed, before the answer was whole)",
    "error_event": "an error object in the stream, or in place of the answer",
    "wrong_order": "a token other than the next one, a second role event, or a token after finish_reason or usage",
    "wrong_count": "more tokens than asked; or fewer, unless streams may end early and this one's usage says so",
    "no_finish": "no finish_reason came",
    "after_done": "an event after [DONE], or a second [DONE]",
    "missing_usage": "usage was asked for and did not come",
    "unexpected_usage": "usage came and was not asked for, or came twice",
    "wrong_usage": "usage, on a chunk or at the end, differs from what ctx knows, or from the tokens received",
    "bytes_differ": "an event that is not, byte for byte, what a gen server writes",
    "timeout": "silence longer than timeout_s",
    "client_error": "a fault of the load's own; its log has the details",
}


def http_status(status: int) -> str:
    """The outcome of an answer with another status than 200."""
    return f"http_{status}"
