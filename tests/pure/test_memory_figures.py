"""Memory of a run's processes: growth a stream, and growth that goes on."""

from __future__ import annotations

from types import SimpleNamespace

from loadtest.experiment.memory_figures import memory_figures, most_live
from loadtest.experiment.process_figures import Window

S = 1_000_000_000


def stream(sent_ns, end_ns):
    return {"sent_ns": sent_ns, "end_ns": end_ns}


def run(rss_bytes, streams):
    samples = [{"t_ns": (second + 1) * S, "wall_s": 1.0, "rss_bytes": rss} for second, rss in enumerate(rss_bytes)]
    return SimpleNamespace(streams=streams, samples={"orchestrator": {"samples": samples}}, client=None, counters={})


def test_streams_live_at_once_are_counted_at_their_peak():
    assert most_live([]) == 0
    assert most_live([stream(0, 10), stream(5, 15), stream(9, 12), stream(20, 30)]) == 3
    assert most_live([stream(0, 10), stream(10, 20), stream(20, 30)]) == 1
    assert most_live([stream(0, 10), stream(None, 10), stream(5, None)]) == 1


def test_growth_is_shared_out_among_the_streams_and_the_second_half_stands_alone():
    files = run([50e6, 60e6, 80e6, 82e6, 83e6, 81e6], [stream(1, 9 * S)] * 200)

    figures = memory_figures(files, Window(1 * S, 6 * S))

    assert figures == {
        "most_live_streams": 200,
        "processes": {
            "orchestrator": {
                "first_bytes": 50e6,
                "max_bytes": 83e6,
                "bytes_per_stream": 165_000,
                "second_half_growth_bytes": -1e6,
            }
        },
    }


def test_of_few_streams_nothing_is_said_per_stream():
    figures = memory_figures(run([50e6, 90e6], [stream(1, 9)] * 99), None)["processes"]["orchestrator"]

    assert figures["max_bytes"] == 90e6
    assert figures["bytes_per_stream"] is None


def test_a_process_without_a_sample_in_the_window_has_no_peak():
    figures = memory_figures(run([50e6], [stream(1, 9)] * 200), Window(5 * S, 6 * S))["processes"]["orchestrator"]

    assert figures == {
        "first_bytes": 50e6,
        "max_bytes": None,
        "bytes_per_stream": None,
        "second_half_growth_bytes": None,
    }


def test_of_several_orchestrators_each_has_the_streams_that_it_began():
    files = run([50e6, 60e6], [stream(1, 9 * S)] * 400)
    files.samples = {f"orchestrator{i}": files.samples["orchestrator"] for i in range(2)}
    files.counters = {f"orchestrator{i}": {"streams": {"started": count}} for i, count in enumerate((300, 100))}

    processes = memory_figures(files, None)["processes"]

    assert processes["orchestrator0"]["bytes_per_stream"] == 10e6 / 300
    assert processes["orchestrator1"]["bytes_per_stream"] == 10e6 / 100


def test_of_several_workers_of_the_load_each_has_the_streams_that_it_sent():
    files = run([50e6], [stream(1, 9 * S)] * 400)
    health = [{"t_ns": (second + 1) * S, "wall_s": 1.0, "rss_bytes": rss} for second, rss in enumerate((60e6, 70e6))]
    files.client = {"workers": [{"index": i, "started": count, "health": health} for i, count in enumerate((300, 100))]}

    processes = memory_figures(files, None)["processes"]

    assert processes["load0"]["bytes_per_stream"] == 10e6 / 300
    assert processes["load1"]["bytes_per_stream"] == 10e6 / 100
