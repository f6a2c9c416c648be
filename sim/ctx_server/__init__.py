"""The fake context (prefill) server."""
