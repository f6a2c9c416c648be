"""A profile from recorded stacks to table, verdict, picture: known samples in, their classes and costs out."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

from loadtest.experiment import profile
from loadtest.experiment.profile_classes import CLASSES, RULES, classify
from loadtest.experiment.profile_flame import draw_flame
from loadtest.experiment.profile_result import fold_profile, read_stacks
from loadtest.experiment.profile_sampler import HOW_TO_GET, SamplerLog, find_sampler, read_log
from loadtest.experiment.profile_stacks import FoldedError, Stack, awake, class_rows, parse_folded
from loadtest.experiment.profile_text import render_profile
from loadtest.experiment.text import WIDTH
from sim.core.settings import SettingError
from tests.synthetic_run import block, compare_run, write

RECORDED = Path(__file__).parent / "recorded"
FILES = sorted(RECORDED.glob("*.folded"))
POLICY = ("orchestrator/policies.py", "orchestrator/arms.py", "core/usage.py")
SENDING = ("http_writer.py", "StreamResponse.write ", "UVStream_write (loop.c)", "SpliceEngine._send")
FRAMING = ("SseDecoder.", "_http_parser.c", "llhttp.c", "http_body.py", "engine_splice.py", "event_path.py")
RELAY = "StreamEngine.relay (sim/orchestrator/engine_stream.py)"
LOOP = ["uv_run (core.c)", "uv__run_idle (loop-watcher.c)", "Handle__run (loop.c)", "task_step (_asynciomodule.c)"]
READ = ["uv_run (core.c)", "uv__io_poll (linux.c)", "uv__stream_io (stream.c)", "uv__read (stream.c)"]


@pytest.mark.parametrize(
    ("frames", "kind"),
    [
        ([*READ, "read (libc.so.6)"], "recv"),
        ([*READ, "__libc_recvmsg (ld-musl-x86_64.so.1)"], "recv"),
        ([*READ, "loop___uv_stream_on_read_impl (loop.c)", "PyObject_Malloc (libpython3.11.so.1.0)"], "recv"),
        ([*READ, "ResponseHandler.data_received (aiohttp/client_proto.py)"], "recv"),
        ([*LOOP, RELAY, "StreamReader.readany (aiohttp/streams.py)"], "recv"),
        ([*READ, "ResponseHandler.data_received (aiohttp/client_proto.py)", "feed_data (_http_parser.c)"], "framing"),
        ([*READ, "SpliceEngine.data_received (sim/orchestrator/engine_splice.py)"], "framing"),
        ([*READ, "SpliceEngine._take (sim/orchestrator/engine_splice.py)"], "framing"),
        ([*READ, "HttpBody.feed (sim/core/http_body.py)"], "framing"),
        ([*READ, "SpliceEngine._send (sim/orchestrator/engine_splice.py)"], "send"),
        ([*READ, "SpliceEngine._relay (sim/orchestrator/engine_splice.py)"], "rest"),
        ([*LOOP, RELAY, "SseDecoder.feed (sim/core/sse.py)", "0x7fd576f8b90d (libc.so.6)"], "framing"),
        ([*LOOP, RELAY, "StreamPolicies.apply (sim/orchestrator/arms.py)"], "policy"),
        ([*LOOP, RELAY, "StreamPolicies.apply (sim/orchestrator/arms.py)", "policy (mine/own.py)"], "policy"),
        ([*LOOP, "parse.<locals>.loads (sim/orchestrator/policies.py)", "scanstring_unicode (_json.c)"], "policy"),
        ([*LOOP, RELAY, "StreamResponse.write (aiohttp/web_response.py)", "write (loop.c)"], "send"),
        ([*LOOP, RELAY, "UVStream__try_write (loop.c)", "write (libc.so.6)"], "send"),
        ([*LOOP, "Py_DECREF (object.h)"], "loop"),
        ([*LOOP, "LoopHealth.tick (sim/service/health.py)", "LogHistogram.record_ns (sim/core/histogram.py)"], "loop"),
        ([*LOOP, "LoopHealth.tick (sim/service/health.py)", "os_pread (libpython3.11.so.1.0)"], "loop"),
        ([*LOOP, "Application._handle (aiohttp/web_app.py)", "StreamRelay._relay (sim/orchestrator/relay.py)"], "loop"),
        ([*LOOP, RELAY], "rest"),
        ([*LOOP, RELAY, "gc_collect_main (libpython3.11.so.1.0)"], "rest"),
        (["nobody (knows.c)"], "rest"),
        ([], "rest"),
    ],
)  # fmt: skip
def test_a_stack_belongs_to_the_class_of_its_leafmost_known_frame(frames, kind):
    assert classify(frames)[0] == kind


def test_every_row_of_the_table_is_of_a_known_class():
    assert {rule.kind for rule in RULES} == set(CLASSES)


def shares(name):
    rows = class_rows(awake(parse_folded((RECORDED / f"{name}.folded").read_text())), 40.0)
    return {row["class"]: row["share"] for row in rows}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_little_of_what_was_recorded_is_in_no_class(path):
    found = shares(path.stem)

    assert sum(found.values()) == pytest.approx(1)
    assert found["rest"] < 0.15
    assert min(share for kind, share in found.items() if kind != "rest") > 0.01


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_recorded_policies_and_writes_are_where_their_files_say(path):
    stacks = awake(parse_folded(path.read_text()))
    total = sum(stack.count for stack in stacks)

    def share_with(*parts):
        return sum(s.count for s in stacks if any(part in f for f in s.frames for part in parts)) / total

    found = shares(path.stem)
    assert found["policy"] == pytest.approx(share_with(*POLICY), abs=0.005)
    assert found["send"] == pytest.approx(share_with(*SENDING), abs=0.02)
    # The parser calls back into the reader's queue, which is receiving.
    assert share_with("SseDecoder.") <= found["framing"] <= share_with(*FRAMING)


def test_parsing_every_event_shows_as_policy_and_nowhere_else():
    for engine in ("stream", "splice"):
        parse, prefilter = shares(f"{engine}-parse"), shares(f"{engine}-prefilter")

        assert parse["policy"] > 3 * prefilter["policy"]


def test_waiting_for_events_is_no_work():
    stacks = [
        Stack(("uv__io_poll (linux.c)", f"{name} (libc.so.6)"), 1)
        for name in ("epoll_pwait", "epoll_wait", "epoll_ctl")
    ]

    assert [stack.frames[-1] for stack in awake(stacks)] == ["epoll_ctl (libc.so.6)"]


def test_rows_share_out_the_cost_of_a_chunk():
    stacks = [Stack((RELAY,), 30), Stack(("SseDecoder.feed (sim/core/sse.py)",), 10)]
    rows = {row["class"]: row for row in class_rows(stacks, 20.0)}

    assert rows["rest"]["cpu_us_per_chunk"] == pytest.approx(15.0)
    assert rows["framing"]["share"] == pytest.approx(0.25)
    assert rows["framing"]["share_half_width_95"] == pytest.approx(1.96 * (0.25 * 0.75 / 40) ** 0.5)
    assert rows["framing"]["frames"] == [{"frame": "SseDecoder.feed (sim/core/sse.py)", "share": 0.25}]
    assert rows["send"] == {
        "class": "send", "samples": 0, "share": 0.0, "share_half_width_95": 0.0, "cpu_us_per_chunk": 0.0, "frames": [],
    }  # fmt: skip


def test_no_samples_have_no_shares():
    assert {row["share"] for row in class_rows([], 20.0)} == {None}


@pytest.mark.parametrize("line", ["no count", "a;b", "a;b -3", " 3"])
def test_a_line_that_is_no_stack_is_refused(line):
    with pytest.raises(FoldedError, match="line 2"):
        parse_folded(f"a;b 1\n{line}\n")


def test_frames_may_hold_spaces():
    assert parse_folded("main (a b.py);f (x) 12\n\n") == [Stack(("main (a b.py)", "f (x)"), 12)]


SPY_WORDS = (
    "py-spy> Sampling process 100 times a second.\n\npy-spy> Wrote raw flamegraph data. Samples: 514 Errors: 7\n"
)


def test_what_the_sampler_says_of_itself_is_read():
    behind = "py-spy> 1.00s behind in sampling, results may be inaccurate.\npy-spy> 1.84s behind in sampling, ...\n"

    assert read_log(SPY_WORDS) == SamplerLog(7, 0.0)
    assert read_log(behind + SPY_WORDS) == SamplerLog(7, 1.84)
    assert read_log("") == SamplerLog(0, 0.0)


def test_without_a_sampler_it_is_said_how_to_get_one(monkeypatch):
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)

    with pytest.raises(SettingError) as refused:
        find_sampler()
    assert str(refused.value) == HOW_TO_GET
    assert "pip install" in HOW_TO_GET


def profile_run(tmp_path, *, stacks=None, log=SPY_WORDS, change=None):
    """A run directory of a profile: two blocks of 40 us a chunk, the second one sampled."""
    files = compare_run(rounds=4)
    rng = np.random.default_rng(1)
    manifest = files["manifest.json"]
    manifest["kind"], manifest["policy"] = "profile", "parse"
    manifest["sampler"] = {"version": "0.4.3", "hz": 100, "duration_s": 20.0, "native": True}
    blocks = [block(0, slot, arm, "parse", 10**12, 40.0, rng) for slot, arm in enumerate(("unsampled", "sampled"))]
    if change:
        change(manifest, blocks)
    path = write({"manifest.json": manifest, "blocks.jsonl": blocks}, tmp_path / "run")
    (path / "logs").mkdir()
    (path / "logs" / "py-spy.log").write_text(log)
    (path / "stacks.folded").write_text(
        (RECORDED / "stream-parse.folded").read_text() * 3 if stacks is None else stacks
    )
    return path


def test_a_good_profile_is_valid_and_its_parts_add_up(tmp_path):
    path = profile_run(tmp_path)
    result = profile.write_profile(path)

    assert result["verdict"] == {"state": "valid", "reasons": []}
    assert result["cpu_us_per_chunk"] == pytest.approx(40.0, rel=1e-3)
    assert sum(row["cpu_us_per_chunk"] for row in result["classes"]) == pytest.approx(result["cpu_us_per_chunk"])
    assert result["sampler"]["samples"] + result["sampler"]["waiting"] == sum(
        stack.count for stack in read_stacks(path)
    )
    assert json.loads((path / "profile.json").read_text()) == json.loads(json.dumps(result))
    assert "Orchestrator under parse" in (path / "flamegraph.svg").read_text()


def set_wait(share):
    return lambda _, blocks: blocks[0].update(run_queue_wait_ns=round(blocks[0]["wall_ns"] * share))


DOUBTS = {
    "few samples": ({"stacks": "SseDecoder.feed (sim/core/sse.py) 60\n"}, "few_samples", "suspect"),
    "hardly any": ({"stacks": "SseDecoder.feed (sim/core/sse.py) 9\n"}, "few_samples", "void"),
    "none": ({"stacks": ""}, "few_samples", "void"),
    "a large rest": ({"stacks": f"{RELAY} 100\nSseDecoder.feed (sim/core/sse.py) 400\n"}, "large_rest", "suspect"),
    "sampler behind": ({"log": "1.84s behind in sampling\n" + SPY_WORDS}, "sampler_behind", "void"),
    "starved": ({"change": set_wait(0.1)}, "cpu_starved", "suspect"),
    "badly starved": ({"change": set_wait(0.3)}, "cpu_starved", "void"),
    "merged reads": ({"change": lambda _, b: b[1].update(reads=b[1]["reads"] // 2)}, "batching", "suspect"),
    "disturbed": ({"change": lambda _, b: b[1].update(cpu_ns=b[1]["cpu_ns"] * 2)}, "disturbed", "suspect"),
    "no sampled block": ({"change": lambda _, b: b.pop()}, "no_block", "suspect"),
    "interrupted": ({"change": lambda m, _: m.update(interrupted=True)}, "interrupted", "suspect"),
    "failed": ({"change": lambda m, _: m.update(failure="gen0 was killed")}, "failure", "void"),
}  # fmt: skip


@pytest.mark.parametrize(("how", "code", "state"), DOUBTS.values(), ids=DOUBTS)
def test_what_makes_a_profile_doubtful_is_said(tmp_path, how, code, state):
    path = profile_run(tmp_path, **how)
    verdict = fold_profile(path)["verdict"]

    assert code in [reason["code"] for reason in verdict["reasons"] if reason["state"] == state]
    assert verdict["state"] == state
    text = render_profile(fold_profile(path), path)
    assert text.startswith(f"VERDICT: {state.upper()}")


def test_without_c_frames_it_is_said_what_that_hides(tmp_path):
    def change(manifest, _):
        manifest["sampler"]["native"] = False

    verdict = fold_profile(profile_run(tmp_path, change=change))["verdict"]
    assert [(reason["code"], reason["state"]) for reason in verdict["reasons"]] == [("no_native_frames", "note")]


def test_the_text_is_a_terminal_wide_and_names_every_class(tmp_path):
    path = profile_run(tmp_path)
    lines = render_profile(fold_profile(path), Path("runs/profile-1")).splitlines()

    assert max(map(len, lines)) <= WIDTH
    assert [line.split()[0] for line in lines if line.startswith(tuple(CLASSES))] == list(CLASSES)
    assert "Where a chunk's 40.0 us of CPU goes under parse, engine None, at 15,400 chunks/s:" in lines


SVG = "{http://www.w3.org/2000/svg}"


def boxes(svg):
    """(tooltip, width, fill) of each frame drawn, the key left out."""
    root = ET.fromstring(svg)
    groups = [group for group in root.iter(f"{SVG}g") if group.find(f"{SVG}rect").get("width") != "12"]
    return [
        (g.find(f"{SVG}title").text, float(g.find(f"{SVG}rect").get("width")), g.find(f"{SVG}rect").get("fill"))
        for g in groups
    ]


def test_the_flame_graph_draws_shares_in_the_colour_of_their_class():
    stacks = [
        Stack(("main (m.py)", "uv_run (core.c)", "SseDecoder.feed (sim/core/sse.py)"), 30),
        Stack(("main (m.py)", "uv_run (core.c)", "read (libc.so.6)"), 10),
    ]
    drawn = boxes(draw_flame(stacks, "title", "subtitle"))

    assert [(title, fill) for title, _, fill in drawn] == [
        ("uv_run (core.c): 40 samples, 100.0%, loop", "var(--loop)"),
        ("SseDecoder.feed (sim/core/sse.py): 30 samples, 75.0%, framing", "var(--framing)"),
        ("read (libc.so.6): 10 samples, 25.0%, recv", "var(--recv)"),
    ]
    assert drawn[1][1] == pytest.approx(0.75 * drawn[0][1], abs=0.02)


def test_what_was_recorded_is_drawn_and_needs_nothing_from_outside():
    svg = draw_flame(parse_folded((RECORDED / "stream-parse.folded").read_text()), "t", "s")

    assert len(boxes(svg)) > 100
    assert "://" not in svg.replace("http://www.w3.org/2000/svg", "")
    assert "href" not in svg
    assert "url(" not in svg


def test_names_cannot_write_into_the_picture_and_no_samples_are_a_picture_too():
    root = ET.fromstring(draw_flame([Stack(("<script>&",), 1)], "<b>", "&"))

    assert [element.tag for element in root.iter() if "script" in element.tag or element.tag.endswith("}b")] == []
    assert "no samples" in draw_flame([], "t", "s")
