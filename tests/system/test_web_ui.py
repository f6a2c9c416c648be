"""Locust's web UI in a real browser, with a master and two workers behind it: start, watch the rows, stop."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from loadtest.experiment.ports import free_ports
from tests.system.conftest import topology_up

pytestmark = [pytest.mark.system, pytest.mark.timeout(180)]

ROOT = Path(__file__).parents[2]
BOUND_S = 60
BOUND_MS = BOUND_S * 1000


@contextlib.contextmanager
def web_ui(url: str, log: Path, *arguments: str) -> Iterator[str]:
    """Locust with its web UI and two workers; the UI's address."""
    port, master_port = free_ports(2)
    argv = [sys.executable, "-m", "locust", "-f", str(ROOT / "loadtest" / "locustfile.py"), "--host", url]
    argv += ["--web-host", "127.0.0.1", "--web-port", str(port), "--processes", "2"]
    argv += ["--master-bind-host", "127.0.0.1", "--master-bind-port", str(master_port)]
    argv += ["--master-port", str(master_port), *arguments]
    with log.open("wb") as file:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
    try:
        yield f"http://127.0.0.1:{port}"
        process.send_signal(signal.SIGTERM)
        process.wait(BOUND_S)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # its workers too: it leads their group
        process.wait()


def asked(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.loads(answer.read())


def open_when_up(browser: Browser, url: str, workers: int) -> Page:
    deadline = time.monotonic() + BOUND_S
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            if len(asked(f"{url}/stats/requests").get("workers", [])) == workers:
                break
        time.sleep(0.2)
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(url)
    return page


def requests_of(page: Page, name: str) -> int:
    """The number in the row's column "# Requests", the third; 0 while there is no such row."""
    rows = page.evaluate(
        "() => [...document.querySelectorAll('tr')].map((row) => [...row.cells].map((cell) => cell.innerText))"
    )
    return next((int(cells[2]) for cells in rows if len(cells) > 2 and cells[1] == name), 0)


def wait_for_more(page: Page, name: str, than: int) -> int:
    deadline = time.monotonic() + BOUND_S
    while time.monotonic() < deadline:
        found = requests_of(page, name)
        if found > than:
            return found
        page.wait_for_timeout(200)
    raise AssertionError(f"row {name} did not grow beyond {than}: {page.locator('body').inner_text()}")


def test_a_test_is_started_watched_and_stopped_in_the_browser(browser: Browser, tmp_path: Path) -> None:
    load = ["--scenario", "smoke", "--set", "arrivals=constant", "--set", "request_rate=3", "--set", "duration_s=600"]
    with topology_up(tmp_path / "up") as up, web_ui(up.listen["orchestrator"], tmp_path / "locust.log", *load) as url:
        page = open_when_up(browser, url, workers=2)
        page.locator("input[name=userCount]").fill("2")
        page.locator("input[name=spawnRate]").fill("2")
        page.get_by_role("button", name="Start", exact=False).last.click()

        first = wait_for_more(page, "TTFT", 0)
        assert wait_for_more(page, "TTFT", first) > first
        wait_for_more(page, "E2E", 0)
        assert asked(f"{url}/stats/requests")["user_count"] == 2  # copies, not workers
        assert asked(f"{up.ops['orchestrator']}/admin/counters")["streams"]["live"] > 0

        page.get_by_role("button", name="Stop", exact=True).click()
        expect(page.get_by_text("stopped", exact=False).first).to_be_visible(timeout=BOUND_MS)
        deadline = time.monotonic() + BOUND_S
        while time.monotonic() < deadline and asked(f"{url}/stats/requests")["state"] != "stopped":
            time.sleep(0.2)
        assert asked(f"{url}/stats/requests")["state"] == "stopped"
        while time.monotonic() < deadline and asked(f"{up.ops['orchestrator']}/admin/counters")["streams"]["live"]:
            time.sleep(0.1)
        counters = asked(f"{up.ops['orchestrator']}/admin/counters")["streams"]
        page.close()

    assert counters["live"] == 0
    log = (tmp_path / "locust.log").read_text()
    assert "Traceback" not in log
