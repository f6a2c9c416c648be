"""What a load client of the bench has counted: so far in a small file, and in one line at the end."""

from __future__ import annotations

import json
import time
from pathlib import Path

__all__ = ["BODY", "PATH", "PROGRESS_EVERY_S", "Tally"]

PATH = "/v1/chat/completions"
BODY = {
    "model": "sim",
    "messages": [{"role": "user", "content": "Hello"}],
    "stream": True,
    "max_tokens": 1_000_000,  # longer than any load lasts: a stream lives until it is stopped
}
PROGRESS_EVERY_S = 0.2


class Tally:
    """Count into it: ``tokens`` (data events that are not [DONE]), ``streams`` opened, ``failed`` and ``live`` ones."""

    def __init__(self, directory: str) -> None:
        self.tokens = self.streams = self.failed = self.live = 0
        self._path = Path(directory) / "progress.json"
        self._draft = self._path.with_suffix(".tmp")

    def write(self) -> None:
        """Rewrite ``progress.json``; a reader never sees half of it."""
        told = {"t_ns": time.monotonic_ns(), "tokens": self.tokens, "live": self.live}
        self._draft.write_text(json.dumps(told))
        self._draft.replace(self._path)

    def to_json(self) -> str:
        """The line for the end."""
        return json.dumps({"tokens": self.tokens, "streams": self.streams, "failed": self.failed})
