"""The load's /metrics: listed on docs/metrics.md, there at zero, and right in value; and its operations port."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path

from prometheus_client import CollectorRegistry

from loadtest.client_metrics import LoadCollector
from loadtest.client_ops import ops_app
from loadtest.goodput import MISSES, GoodputLimits
from loadtest.outcomes import FAULTS
from loadtest.recorder import Recorder
from sim.service.health import GcPauses, LoopHealth
from sim.service.proc import ProcFacts
from tests.pure.replies import MS, events_of, read, reads_of
from tests.pure.test_recorder import record

PAGE = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
SECTION = PAGE.split("\n## The load\n", 1)[1].split("\n## ", 1)[0]
ROW = re.compile(r"^\| `(disagg_\w+)` \| (\w+) \| (.*?) ?\| (.+) \|$", re.MULTILINE)


class Shown:
    """A load, with the readers of its live streams."""

    def __init__(self, recorder=None, live=()):
        self.recorder = recorder or Recorder()
        self.live = lambda: len(live)
        self.totals = lambda: self.recorder.totals(live)


def values(collector):
    return {(sample.name, *sample.labels.values()): sample.value for f in collector.collect() for sample in f.samples}


def test_the_page_lists_exactly_what_is_served():
    served = {}
    for family in LoadCollector(Shown()).collect():
        labels = set(itertools.chain(*(sample.labels for sample in family.samples))) - {"le"}
        served[f"{family.name}_total" if family.type == "counter" else family.name] = (family.type, labels)

    listed = {name: (kind, set(re.findall(r"`(\w+)`", labels))) for name, kind, labels, _ in ROW.findall(SECTION)}
    assert served == listed


def test_series_exist_at_zero_and_their_label_values_are_on_the_page():
    for family in LoadCollector(Shown()).collect():
        for sample in family.samples:
            assert sample.value == 0
            assert all(f"`{value}`" in SECTION for label, value in sample.labels.items() if label != "le")


def test_every_outcome_is_explained_on_the_page():
    for outcome in FAULTS:
        assert f"`{outcome}`" in SECTION


def test_values_hold_ended_and_live_streams():
    recorder = Recorder()
    recorder.start(0, 0, 2 * MS)
    recorder.start(0, 4 * MS, 11 * MS)
    recorder.first_token(0, 2 * MS, 30 * MS)
    recorder.gaps.record_ns(5 * MS, 3)
    done = read(reads_of(events_of(13)))
    recorder.end(record(), done)
    recorder.end(record("http_503"), read([]))
    recorder.end(record("http_429"), read([]))
    live = read(reads_of(events_of(20)[:8], end=b""))
    found = values(LoadCollector(Shown(recorder, [live])))

    assert found["disagg_client_streams_started_total",] == 2
    assert found["disagg_client_streams_live",] == 1
    assert found["disagg_client_streams_ended_total", "ok"] == 1
    assert found["disagg_client_streams_ended_total", "http_status"] == 2
    assert found["disagg_client_tokens_total",] == 20
    assert found["disagg_client_events_total", "content"] == 20
    assert found["disagg_client_events_total", "role"] == 2
    assert found["disagg_client_events_total", "done"] == 1
    assert found["disagg_client_event_bytes_total",] == done.event_bytes + live.event_bytes
    assert found["disagg_client_send_lateness_seconds_sum",] == 0.009
    assert found["disagg_client_ttft_seconds_sum", "planned"] == 0.03
    assert found["disagg_client_ttft_seconds_sum", "sent"] == 0.028
    assert found["disagg_client_e2e_seconds_sum", "planned"] == 0.1
    assert found["disagg_client_itl_seconds_sum",] == 0.015
    assert found["disagg_client_itl_seconds_count",] == 3


def test_the_cap_and_the_slo_have_series_of_their_own():
    recorder = Recorder(None, GoodputLimits(itl_ms=6.6))
    recorder.start(0, 4 * MS, 5 * MS)
    recorder.leave_unsent()
    recorder.chunk_gaps.record_ns(8 * MS)
    recorder.shared_gaps.record_ns(2 * MS, 4)
    for each in (record(), record("cut"), record(last_token_ns=199 * MS)):
        recorder.end(each, read([]))
    found = values(LoadCollector(Shown(recorder)))

    assert found["disagg_client_send_lateness_seconds_sum",] == 0.001
    assert found["disagg_client_held_back_seconds_sum",] == 0.004
    assert found["disagg_client_held_back_seconds_count",] == 1
    assert found["disagg_client_requests_unsent_total",] == 1
    assert found["disagg_client_itl_seconds_count",] == 4
    assert (found["disagg_client_inter_chunk_seconds_count",], found["disagg_client_inter_chunk_seconds_sum",]) == (
        1,
        0.008,
    )
    assert found["disagg_client_tpot_seconds_count",] == 2
    assert [found["disagg_client_goodput_streams_total", slo] for slo in ("within", "missed")] == [1, 3]
    missed = {what: found["disagg_client_goodput_missed_total", what] for what in MISSES}
    assert missed == {"ttft": 0, "itl": 1, "e2e": 0, "failed": 1, "unsent": 1}


def health():
    return LoopHealth(lambda: ProcFacts(0, 0, (0, 0), 0), GcPauses(lambda: 0), start_ns=0, cpu_ns=0, wait_ns=0)


def get(path, mount="", recorder=None, live=()):
    registry = CollectorRegistry()
    shown = Shown(recorder, live)
    registry.register(LoadCollector(shown))
    app = ops_app(registry, health(), shown)
    started = []
    environ = {"REQUEST_METHOD": "GET", "SCRIPT_NAME": mount, "PATH_INFO": path, "QUERY_STRING": ""}
    body = b"".join(app(environ, lambda status, headers: started.append((status, headers))))
    return started[0][0], dict(started[0][1])["Content-Type"], body


def test_the_operations_port_answers_as_every_servers_does():
    status, kind, body = get("/metrics")
    assert (status, kind.split(";")[0]) == ("200 OK", "text/plain")
    assert b"disagg_client_streams_live 0.0\n" in body

    assert get("/health")[0] == "200 OK"
    status, kind, body = get("/admin/samples")
    assert (status, kind) == ("200 OK", "application/json")
    assert json.loads(body) == health().to_json()

    status, _, body = get("/nope")
    assert status == "404 Not Found"
    assert json.loads(body)["error"]["code"] == "not_found"


def test_it_may_be_mounted_under_the_web_ui():
    assert get("", mount="/metrics")[2] == get("/metrics")[2]
    assert get("", mount="/admin/samples")[0] == "200 OK"


def test_its_counters_are_client_jsons_with_the_streams_in_progress():
    recorder = Recorder()
    recorder.end(record(), read(reads_of(events_of(13))))
    live = read(reads_of(events_of(20)[:8], end=b""))

    counters = json.loads(get("/admin/counters", recorder=recorder, live=[live])[2])

    assert counters.keys() == recorder.to_json().keys()
    assert (counters["tokens"], counters["chunks"], counters["done_events"]) == (20, 20, 1)
    assert (counters["streams"]["live"], counters["streams"]["ok"]) == (1, 1)
    assert counters["bytes"] == recorder.to_json()["bytes"] + live.event_bytes
