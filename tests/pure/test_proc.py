"""Readers of /proc and of the control group, on files as kernels write them."""

from __future__ import annotations

from pathlib import Path

import pytest

from sim.service.proc import CpuThrottle, MachineCpu, ProcReader, ThreadCpu, steal_share

V2_STAT = "usage_usec 100\nuser_usec 60\nsystem_usec 40\nnr_periods 7\nnr_throttled 2\nthrottled_usec 12345\n"
V1_STAT = "nr_periods 7\nnr_throttled 2\nthrottled_time 12345678\n"


@pytest.mark.parametrize(
    ("membership", "stat_path", "stat", "throttled_us"),
    [
        pytest.param("0::/app.slice/x\n", "app.slice/x/cpu.stat", V2_STAT, 12345, id="v2"),
        pytest.param("0::/hidden/by/namespace\n", "cpu.stat", V2_STAT, 12345, id="v2, a container's own root"),
        pytest.param("4:memory:/a\n2:cpu,cpuacct:/a/b\n", "cpu,cpuacct/a/b/cpu.stat", V1_STAT, 12345, id="v1"),
        pytest.param("1:cpu:/\n", "cpu/cpu.stat", V1_STAT, 12345, id="v1, cpu alone"),
        pytest.param("0::/\n", "cpu.stat", "usage_usec 100\n", 0, id="no quota"),
        pytest.param("0::/\n", None, "", 0, id="no file"),
    ],
)
def test_throttling_is_found_where_the_group_keeps_it(tmp_path, membership, stat_path, stat, throttled_us):
    (tmp_path / "membership").write_text(membership)
    if stat_path:
        (tmp_path / "fs" / stat_path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "fs" / stat_path).write_text(stat)
    throttle = CpuThrottle(tmp_path / "fs", tmp_path / "membership")

    assert throttle.read_us() == throttled_us
    throttle.close()
    assert throttle.read_us() == 0


def test_a_throttle_reads_the_file_anew(tmp_path):
    (tmp_path / "membership").write_text("0::/\n")
    (tmp_path / "cpu.stat").write_text(V2_STAT)
    throttle = CpuThrottle(tmp_path, tmp_path / "membership")
    with (tmp_path / "cpu.stat").open("w") as stat:
        stat.write(V2_STAT.replace("12345", "99999"))

    assert throttle.read_us() == 99999
    throttle.close()


def test_machine_ticks_leave_out_guest_time(tmp_path):
    """Guest time is inside user time already."""
    (tmp_path / "stat").write_text("cpu  100 1 50 800 20 0 4 25 70 7\ncpu0 1 2 3 4 5 6 7 8 9 10\n")
    machine = MachineCpu(tmp_path / "stat")

    assert machine.read() == (25, 1000)
    machine.close()
    assert machine.read() == (0, 0)


def test_steal_share_is_of_the_time_between_two_readings():
    assert steal_share((10, 1000), (35, 1100)) == 0.25
    assert steal_share((10, 1000), (10, 1000)) == 0.0


def test_thread_cpu_follows_the_calling_thread():
    thread = ThreadCpu()
    before_ns, _ = thread.read()
    sum(range(300_000))
    after_ns, wait_ns = thread.read()
    thread.close()

    assert after_ns > before_ns
    assert wait_ns >= 0


def test_thread_cpu_without_schedstat_still_gives_cpu_time():
    thread = ThreadCpu(tid=0)

    cpu_ns, wait_ns = thread.read()

    assert cpu_ns > 0
    assert wait_ns == 0


def test_process_facts_are_plausible_and_files_are_let_go():
    before = len(list(Path("/proc/self/fd").iterdir()))
    reader = ProcReader()
    facts = reader.read()
    reader.close()

    assert facts.process_cpu_ns > 0
    assert facts.rss_bytes > 1_000_000
    assert facts.machine_ticks[1] > 0
    assert len(list(Path("/proc/self/fd").iterdir())) == before
