"""The orchestrator's page of metrics: what is listed is what there is, with its labels, from the start."""

import dataclasses
import re
from pathlib import Path

from prometheus_client import CollectorRegistry

from sim.orchestrator.arms import build_arms
from sim.orchestrator.counters import FAILURES, STREAM_ENDS, Counters
from sim.orchestrator.credit import PolicyCredit
from sim.orchestrator.metrics import OrchestratorCollector
from sim.orchestrator.policies import BUILTIN
from sim.orchestrator.upstream import Upstream
from sim.service.health import GcPauses, LoopHealth
from sim.service.proc import ProcFacts
from tests.pure.test_blocks import BEFORE

PAGE = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()


class Page:
    """What an orchestrator's series are read from, and ``value`` to read them; ``reading`` is what its meter says."""

    def __init__(self, counters=None):
        self.reading = BEFORE
        self.arms = build_arms(BUILTIN, "prefilter", usage_by_gen=False)
        facts = ProcFacts(0, 0, (0, 0), 0)
        self.health = LoopHealth(lambda: facts, GcPauses(), start_ns=0, cpu_ns=0, wait_ns=0)
        self.credit = PolicyCredit(self.arms, self.health, lambda: self.reading)
        self.ctx, self.gen = Upstream("ctx", "http://c:1"), Upstream("gen", "unix:/g")
        self.registry = CollectorRegistry()
        self.registry.register(
            OrchestratorCollector(counters or Counters(), self.arms, self.credit, [self.ctx, self.gen])
        )
        self.value = self.registry.get_sample_value


def registry_of(counters=None):
    return Page(counters).registry


def test_the_page_lists_every_series_with_its_type_and_labels_and_no_other():
    listed = {}
    for name, kind, labels in re.findall(
        r"^\| `(disagg_(?:orchestrator|policy)_\w+)` \| (\w+) \| ([^|]*)\|", PAGE, re.MULTILINE
    ):
        listed[name] = (kind, frozenset(re.findall(r"`(\w+)`", labels)))
    found = {}
    for family in registry_of().collect():
        name = family.name + ("_total" if family.type == "counter" else "")
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        found[name] = (family.type, frozenset(labels))
    assert found == listed


def test_the_page_explains_every_reason():
    assert [reason for reason in {*FAILURES, *STREAM_ENDS} if f"`{reason}`" not in PAGE] == []


def test_every_series_exists_before_anything_happened():
    value = registry_of().get_sample_value
    for reason in FAILURES:
        assert value("disagg_orchestrator_failures_total", {"reason": reason}) == 0
    for reason in STREAM_ENDS:
        assert value("disagg_orchestrator_streams_ended_total", {"reason": reason}) == 0
    for policy in BUILTIN:
        assert value("disagg_policy_cpu_seconds_total", {"policy": policy}) == 0
        assert value("disagg_policy_active", {"policy": policy}) == (policy == "prefilter")
    assert value("disagg_orchestrator_upstream_ready", {"role": "gen", "url": "unix:/g"}) == 0


def test_what_is_counted_is_what_is_shown():
    counters = Counters()
    counters.requests, counters.answers, counters.started, counters.live = 9, 2, 7, 3
    counters.cut_events, counters.role_events, counters.finish_events, counters.held_events = 100, 7, 1, 9
    counters.usage_events, counters.done_events = 4, 5
    counters.cut_bytes_in, counters.cut_bytes_out, counters.cut_reads = 11, 12, 13
    counters.failures["gen_status"] = counters.retries["gen"] = 1
    value = registry_of(counters).get_sample_value
    assert value("disagg_orchestrator_requests_total") == 9
    assert value("disagg_orchestrator_answers_total") == 2
    assert value("disagg_orchestrator_streams_started_total") == 7
    assert value("disagg_orchestrator_streams_live") == 3
    assert value("disagg_orchestrator_reads_total") == 13
    assert value("disagg_orchestrator_failures_total", {"reason": "gen_status"}) == 1
    assert value("disagg_orchestrator_retries_total", {"role": "gen"}) == 1
    kinds = {"chunk": 74, "role": 7, "finish": 1, "usage": 4, "done": 5}
    assert {kind: value("disagg_orchestrator_events_total", {"kind": kind}) for kind in kinds} == kinds
    assert value("disagg_orchestrator_bytes_total", {"direction": "in"}) == 11
    assert value("disagg_orchestrator_bytes_total", {"direction": "out"}) == 12


def test_each_server_shows_whether_it_is_ready_and_what_it_owes():
    page = Page()
    page.ctx.ready, page.ctx.outstanding, page.gen.outstanding = True, 3, 5
    shown = [
        (
            page.value("disagg_orchestrator_upstream_ready", {"role": role, "url": url}),
            page.value("disagg_orchestrator_upstream_outstanding", {"role": role, "url": url}),
        )
        for role, url in (("ctx", "http://c:1"), ("gen", "unix:/g"))
    ]
    assert shown == [(1, 3), (0, 5)]


def test_a_scrape_shows_what_the_active_policy_cost_until_then_and_the_others_nothing():
    page = Page()
    parse, prefilter = (page.arms.counters[page.arms.names.index(name)] for name in ("parse", "prefilter"))
    parse.cut = parse.parsed = 8
    prefilter.cut, prefilter.changed, prefilter.failed, prefilter.parsed = 10, 2, 1, 4
    page.health.tick(0, 6_000_000, 0, 0)  # one canary, 6 ms late
    page.reading = dataclasses.replace(
        BEFORE, cpu_ns=BEFORE.cpu_ns + 1_500_000_000, t_ns=BEFORE.t_ns + 4_000_000_000, chunks=BEFORE.chunks + 30
    )
    shown = {
        policy: {
            name: page.value(f"disagg_policy_{name}", {"policy": policy})
            for name in (
                "active", "cpu_seconds_total", "wall_seconds_total", "chunks_total", "blocks_total",
                "events_unchanged_total", "events_changed_total", "events_failed_total", "events_parsed_total",
                "loop_lag_seconds_count", "loop_lag_seconds_sum",
            )
        }
        for policy in ("prefilter", "parse")
    }  # fmt: skip
    assert list(shown["prefilter"].values()) == [1, 1.5, 4, 30, 0, 7, 2, 1, 4, 1, 0.006]
    assert list(shown["parse"].values()) == [0, 0, 0, 0, 0, 8, 0, 0, 8, 0, 0]
