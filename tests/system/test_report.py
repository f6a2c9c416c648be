"""The report in a real browser: it draws every figure, in light and dark, and asks nothing of any network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Page

from loadtest.experiment.capacity_report import write_capacity_report
from loadtest.experiment.capacity_result import fold_capacity
from loadtest.experiment.report import write_report
from loadtest.experiment.result import analyze
from tests import capacity_runs
from tests.pure.test_result import GOODPUT, capped_run
from tests.synthetic_run import Files, compare_run, histogram, load_run, write

pytestmark = [pytest.mark.system, pytest.mark.timeout(180)]

DRAWN_TIMEOUT_MS = 60_000
SHARED = {"ttft", "itl", "e2e", "lateness_tails", "processes_over_time"}
COMPARE = SHARED | {
    "differences_forest",
    "paired_differences",
    "cost_by_arm",
    "cost_over_time",
    "lag_by_arm",
    "events_per_read",
    "rate_over_time",
}
CAPACITY = {"lag_by_rate", "cpu_by_rate", "events_per_read_by_rate", "itl_by_rate", "scaling"}
RUN = SHARED | {"ttft_over_time", "load_over_time", "lengths", "orchestrator_lag"}


class Opened:
    """A report on a page, with whatever the browser complained of or asked for."""

    def __init__(self, browser: Browser, report: Path, *, scheme: Any = "light", width: int = 1280) -> None:
        self.page: Page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(report.as_uri())
        self.wait_until_drawn(scheme)

    def wait_until_drawn(self, scheme: str) -> None:
        self.page.wait_for_selector(f"html[data-drawn={scheme}]", timeout=DRAWN_TIMEOUT_MS, state="attached")

    def points(self) -> dict[str, int]:
        """Points really drawn as SVG (line vertices count by path), by figure."""
        found: dict[str, int] = self.page.evaluate(
            """() => {
                const lengths = (paths) => [...paths].reduce((sum, path) => sum + path.getAttribute("d").length, 0);
                const drawn = (plot) =>
                    plot.querySelectorAll(".point").length + lengths(plot.querySelectorAll("path.js-line"));
                return Object.fromEntries([...document.querySelectorAll(".plot")].map((p) => [p.id, drawn(p)]));
            }"""
        )
        return found


def report_of(tmp_path: Path, files: Files) -> Path:
    path = write(files, tmp_path / "run")
    return write_report(path, analyze(path))


def capacity_report_of(tmp_path: Path) -> Path:
    """Two policies with limits, one of them on two workers, one place where the generator gives out."""
    records: list[dict[str, Any]] = []
    for workers in (1, 2):
        systems = {f"policy-{n}": capacity_runs.by_limit(n * 9_000 * workers) for n in (1, 2)}
        if workers == 2:
            systems["policy-2"] = lambda rate, _rng: capacity_runs.probe(rate, gen_due_share=float(rate < 30_000))
        one, _ = capacity_runs.search(systems, np.random.default_rng(workers))
        records += [{**record, "workers": workers} for record in one]
    head = capacity_runs.manifest(["policy-1", "policy-2"], workers=[1, 2])
    path = capacity_runs.write(tmp_path / "capacity", records, head)
    return write_capacity_report(path, head, fold_capacity(path, head))


def capped() -> Files:
    """A run with a cap that held requests back, four tokens a chunk, and limits of goodput."""
    files = capped_run(goodput=GOODPUT)
    files["client.json"]["chunks"] //= 4
    files["client.json"]["inter_chunk"] = histogram([260_000_000] * 50)
    return files


def doubted() -> Files:
    """A run with something in every part of the page: voids, a reason, a mismatch, requests in blocks."""
    files = compare_run(("filter-off", "filter-on", "parse-orjson"))
    for number, block in enumerate(files["blocks.jsonl"]):
        block["requests"] = number % 7
    files["blocks.jsonl"][5]["chunks"] //= 2
    files["client.json"]["usage_events"] -= 1
    files["equality.json"]["dead_path"] = ["filter-on"]
    return files


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 400)])
@pytest.mark.parametrize(
    ("files", "figures"),
    [(compare_run, COMPARE), (doubted, COMPARE), (load_run, RUN), (capped, RUN), (None, CAPACITY)],
    ids=["compare", "doubted", "run", "capped", "capacity"],
)
def test_every_figure_is_drawn_without_error_or_request(
    browser: Browser, tmp_path: Path, files: Any, figures: set[str], width: int, scheme: str
) -> None:
    report = capacity_report_of(tmp_path) if files is None else report_of(tmp_path, files())
    opened = Opened(browser, report, scheme=scheme, width=width)
    page = opened.page

    drawn = opened.points()
    assert set(drawn) == figures
    assert min(drawn.values()) > 0, drawn
    assert opened.complaints == []
    assert opened.requests == [report.as_uri()]
    assert page.locator(".nothing").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    page.close()


def test_figures_are_what_the_charting_library_calls_valid(browser: Browser, tmp_path: Path) -> None:
    reports = [report_of(tmp_path / name, files) for name, files in {"compare": doubted(), "run": load_run()}.items()]
    for report in (*reports, capacity_report_of(tmp_path)):
        opened = Opened(browser, report)
        complaints = opened.page.evaluate(
            """() => [...document.querySelectorAll(".plot")].flatMap((plot) => {
                // The library's own check fails on any legend; "unused" is a default that a figure has no use for.
                const { legend, ...layout } = plot.layout;
                const faults = Plotly.validate(plot.data, layout) || [];
                return faults.filter(({ code }) => code !== "unused").map(({ msg }) => `${plot.id}: ${msg}`);
            })"""
        )

        assert complaints == []
        opened.page.close()


def test_a_page_that_is_open_follows_light_and_dark(browser: Browser, tmp_path: Path) -> None:
    opened = Opened(browser, report_of(tmp_path, compare_run()))
    ink = """() => [getComputedStyle(document.body).color,
        document.querySelector("#cost_over_time .xtitle").style.fill,
        document.querySelector("#cost_over_time path.js-line").style.stroke]"""
    light = opened.page.evaluate(ink)

    opened.page.emulate_media(color_scheme="dark")
    opened.wait_until_drawn("dark")
    dark = opened.page.evaluate(ink)

    assert all(before != after for before, after in zip(light, dark, strict=True)), (light, dark)
    assert opened.requests == [opened.page.url]
    opened.page.close()


def test_nothing_moves_when_the_figures_come(browser: Browser, tmp_path: Path) -> None:
    """Every figure's place is kept from the start, so the page is as tall before the library runs as after."""
    report = report_of(tmp_path, compare_run())
    page = browser.new_page(viewport={"width": 1280, "height": 800}, java_script_enabled=False)
    page.goto(report.as_uri())
    undrawn = page.locator("main").bounding_box()
    page.close()
    opened = Opened(browser, report)

    assert opened.page.locator("main").bounding_box() == undrawn
    opened.page.close()


def test_verdict_and_answers_come_first_and_are_in_words(browser: Browser, tmp_path: Path) -> None:
    opened = Opened(browser, report_of(tmp_path, doubted()))
    text = opened.page.locator("main").inner_text().replace("\xa0", " ")

    assert "Suspect: read the reasons before the figures" in text
    order = [
        "counters are not equal: usage events (gen 1,000, orchestrator 1,000, client 999)",
        "sits on a dead path",
        "filter-off costs",
        "Differences in CPU per chunk",
    ]
    places = [text.index(words) for words in order]
    assert places == sorted(places)
    assert "29 of 30 rounds count (void: missed rate 1)" in text
    assert "within one process start" in text
    assert "disagg-sim compare filter-off filter-on parse-orjson" in text
    assert "uvloop 0.23.0" in text
    opened.page.close()


def test_a_run_without_a_single_block_still_has_a_report(browser: Browser, tmp_path: Path) -> None:
    manifest = {**compare_run()["manifest.json"], "failure": "gen0 was killed by SIGKILL"}
    opened = Opened(browser, report_of(tmp_path, {"manifest.json": manifest}))

    assert "gen0 was killed by SIGKILL" in opened.page.locator("#verdict").inner_text()
    assert opened.page.locator(".plot").count() == 0
    assert opened.page.locator(".nothing").count() == len(COMPARE)
    assert opened.complaints == []
    opened.page.close()


def test_a_name_from_the_command_line_cannot_write_into_the_page(browser: Browser, tmp_path: Path) -> None:
    name = "evil:<img src=x onerror=console.log(1)></script><script>console.log(2)</script>"
    files = compare_run(("filter-off", name), costs_us={name: 40.0})
    opened = Opened(browser, report_of(tmp_path, files))

    assert opened.complaints == []
    assert name in opened.page.locator("main").inner_text().replace("\xa0", " ")
    opened.page.close()


def main_text(opened: Opened) -> str:
    text: str = opened.page.locator("main").inner_text()
    return text.replace("\xa0", " ")


def test_a_note_stands_in_the_verdict_and_a_claim_in_doubt_is_qualified(browser: Browser, tmp_path: Path) -> None:
    note = "stepped down from 1,000 to 700 streams (10,780 tok/s): this machine relayed 91 % of the asked rate"
    files = doubted()
    files["manifest.json"]["notes"] = [note]
    opened = Opened(browser, report_of(tmp_path, files))
    text = main_text(opened)

    assert note in opened.page.locator("#verdict li").last.inner_text().replace("\xa0", " ")
    assert "read the reasons first: filter-off costs" in text
    assert "these are over the whole run, ramp included" in text
    assert "All of it is over the whole run" in text
    opened.page.close()


def test_a_capped_run_says_what_was_held_back_and_how_much_was_good(browser: Browser, tmp_path: Path) -> None:
    opened = Opened(browser, report_of(tmp_path, capped()))
    text = main_text(opened)

    assert "10 requests/s, constant · 10 at a time" in text
    assert "held back by the cap\t300.0 ms" in text
    assert "The cap of 10 requests under way held 100 of 400 back" in text
    assert text.count("Goodput: 75.0 %") == 1
    assert "or its cap on concurrency: the table tells them apart" in text
    assert "but for what the cap on concurrency held back" in text
    opened.page.close()


@pytest.mark.parametrize("rounds", [1, 2, 3, 4])
def test_a_run_of_few_rounds_says_so_instead_of_an_interval(browser: Browser, tmp_path: Path, rounds: int) -> None:
    opened = Opened(browser, report_of(tmp_path, compare_run(rounds=rounds)))
    text = main_text(opened)

    assert "too few rounds for an interval" in text  # of 4 rounds, the A/A's 99.9 % one
    assert ("not to be used: filter-off minus filter-on is" in text) == (rounds < 4)
    assert opened.complaints == []
    opened.page.close()


def test_a_report_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(load_run(requests=3), tmp_path / "run")
    result = analyze(path)
    report = write_report(path, result)
    before = report.read_text()
    monkeypatch.setattr("pathlib.Path.replace", _no_space)

    with pytest.raises(OSError, match="no space"):
        write_report(path, {**result, "measured_s": 1.0})

    assert report.read_text() == before


def _no_space(*_: object) -> None:
    raise OSError("no space")
