"""A Locust ``FastHttpUser`` that reads streams event by event off ``response.stream`` and stamps each token.

Not by its ``iter_lines``: that reads blocks of 1,024 bytes and holds tokens back until one is full.
"""

from __future__ import annotations

import time
from http.client import HTTPException

import gevent
from locust import FastHttpUser, task

from bench.candidates.programs.locust_run import RETRY_S, tally
from bench.candidates.programs.tally import BODY, PATH


class StreamUser(FastHttpUser):
    """One stream after the other."""

    itl_max_s = 0.0

    @task
    def stream(self) -> None:
        """Read one reply to its end."""
        counts = tally()
        counts.streams += 1
        done = False
        last_s = time.perf_counter()
        with self.client.post(PATH, json=BODY, stream=True, catch_response=True) as response:
            if response.status_code == 200:
                counts.live += 1
                try:
                    while event := response.stream.readline(b"\n\n"):
                        if event.startswith(b"data: [DONE]"):
                            done = True
                        elif event.startswith(b"data:"):
                            now_s = time.perf_counter()
                            self.itl_max_s = max(self.itl_max_s, now_s - last_s)
                            last_s = now_s
                            counts.tokens += 1
                except (OSError, HTTPException):
                    done = False
                finally:
                    counts.live -= 1
        if not done:
            counts.failed += 1
            gevent.sleep(RETRY_S)
