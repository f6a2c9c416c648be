"""A Locust ``HttpUser`` that reads streams with requests' ``iter_lines`` and stamps each token.

``chunk_size=None`` hands out what has arrived.
"""

from __future__ import annotations

import time

import gevent
from locust import HttpUser, task

from bench.candidates.programs.locust_run import RETRY_S, tally
from bench.candidates.programs.tally import BODY, PATH


class StreamUser(HttpUser):
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
                    for line in response.iter_lines(chunk_size=None):
                        if line == b"data: [DONE]":
                            done = True
                        elif line.startswith(b"data:"):
                            now_s = time.perf_counter()
                            self.itl_max_s = max(self.itl_max_s, now_s - last_s)
                            last_s = now_s
                            counts.tokens += 1
                except OSError:  # requests' errors are OSErrors
                    done = False
                finally:
                    counts.live -= 1
        if not done:
            counts.failed += 1
            gevent.sleep(RETRY_S)
