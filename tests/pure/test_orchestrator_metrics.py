"""The orchestrator's page of metrics: what is listed is what there is, with its labels, from the start."""

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


def registry_of(counters=None, names=tuple(BUILTIN)):
    arms = build_arms(names, "prefilter", usage_by_gen=False)
    health = LoopHealth(lambda: ProcFacts(0, 0, (0, 0), 0), GcPauses(), start_ns=0, cpu_ns=0, wait_ns=0)
    credit = PolicyCredit(arms, health, lambda: BEFORE)
    upstreams = [Upstream("ctx", "http://c:1"), Upstream("gen", "unix:/g")]
    registry = CollectorRegistry()
    registry.register(OrchestratorCollector(counters or Counters(), arms, credit, upstreams))
    return registry


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
    counters.events, counters.role_events, counters.finish_events = 100, 7, 1
    counters.usage_events, counters.done_events = 4, 5
    counters.bytes_in, counters.bytes_out, counters.reads = 11, 12, 13
    counters.failures["gen_status"] = counters.retries["gen"] = 1
    value = registry_of(counters).get_sample_value
    assert value("disagg_orchestrator_requests_total") == 9
    assert value("disagg_orchestrator_answers_total") == 2
    assert value("disagg_orchestrator_streams_started_total") == 7
    assert value("disagg_orchestrator_streams_live") == 3
    assert value("disagg_orchestrator_reads_total") == 13
    assert value("disagg_orchestrator_failures_total", {"reason": "gen_status"}) == 1
    assert value("disagg_orchestrator_retries_total", {"role": "gen"}) == 1
    kinds = {"chunk": 83, "role": 7, "finish": 1, "usage": 4, "done": 5}
    assert {kind: value("disagg_orchestrator_events_total", {"kind": kind}) for kind in kinds} == kinds
    assert value("disagg_orchestrator_bytes_total", {"direction": "in"}) == 11
    assert value("disagg_orchestrator_bytes_total", {"direction": "out"}) == 12
