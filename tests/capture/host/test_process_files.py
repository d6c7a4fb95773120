import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fake_machine import OWN, FakeMachine, FakeProcess

from lightning_gpuprof.capture.host.process_files import RunDelay, has_io_wait_times, proportional_bytes, read_process


def test_a_process_is_read_whole(machine: FakeMachine) -> None:
    machine.process(
        7,
        FakeProcess(
            name="a (b) c",
            state="D",
            user_s=1.5,
            system_s=0.25,
            started_s=90,
            minor_faults=10,
            major_faults=3,
            threads=4,
            rss_bytes=40960,
            shared_bytes=8192,
            io_wait_s=2.0,
            delay_s=0.125,
            main_thread_s=1.25,
            disk_read_bytes=512,
            call_read_bytes=4096,
            voluntary=20,
            involuntary=5,
        ),
    )
    found = read_process(f"{machine.proc}/7", io_wait=True)
    assert (found.name, found.state, found.started_s, found.ended) == ("a (b) c", "D", 90, False)
    assert found.counters == {
        "cpu_user_cpus": 1.5,
        "cpu_system_cpus": 0.25,
        "minor_faults_per_s": 10,
        "major_faults_per_s": 3,
        "io_wait_ratio": 2.0,
        "read_call_bytes_per_s": 4096,
        "write_call_bytes_per_s": 0,
        "read_bytes_per_s": 512,
        "voluntary_switches_per_s": 20,
        "involuntary_switches_per_s": 5,
        "main_thread_cpus": 1.25,
        "run_delay_ratio": 0.125,
    }
    assert found.levels == {
        "rss_bytes": 40960,
        "shared_bytes": 8192,
        "threads_count": 4,
        "disk_sleep_ratio": 1,
    }


def test_waiting_for_disks_is_absent_where_the_kernel_does_not_keep_it(machine: FakeMachine) -> None:
    assert "io_wait_ratio" not in read_process(f"{machine.proc}/{OWN}").counters
    assert not has_io_wait_times(str(machine.proc))
    machine.put("proc/sys/kernel/task_delayacct", "1\n")
    assert has_io_wait_times(str(machine.proc))


@pytest.mark.parametrize("name", ["io", "statm", "status", "schedstat"])
def test_a_file_that_may_not_be_read_takes_only_its_own_values(machine: FakeMachine, name: str) -> None:
    folder = machine.proc / str(OWN)
    whole = read_process(str(folder))
    (folder / name).unlink()
    found = read_process(str(folder))
    gone = (whole.counters.keys() | whole.levels.keys()) - (found.counters.keys() | found.levels.keys())
    assert gone
    assert "cpu_user_cpus" not in gone
    assert "rss_bytes" not in gone


@pytest.mark.parametrize("state", "ZXx")
def test_one_that_nobody_has_waited_for_has_ended(machine: FakeMachine, state: str) -> None:
    machine.process(7, FakeProcess(state=state))
    assert read_process(f"{machine.proc}/7").ended


def test_what_is_no_stat_raises(machine: FakeMachine) -> None:
    machine.put("proc/7/stat", "7 (python) S 1 2\n")
    with pytest.raises(ValueError, match="too few fields"):
        read_process(f"{machine.proc}/7")
    with pytest.raises(FileNotFoundError):
        read_process(f"{machine.proc}/8")


def test_shared_pages_are_divided(machine: FakeMachine) -> None:
    machine.put(
        "proc/7/smaps_rollup", "0-1 ---p 0 00:00 0 [rollup]\nPss: 30 kB\nPrivate_Clean: 4 kB\nPrivate_Dirty: 6 kB\n"
    )
    folder = f"{machine.proc}/7"
    assert proportional_bytes(folder, 4e9) == {"pss_bytes": 30 * 1024, "uss_bytes": 10 * 1024}
    assert proportional_bytes(folder, 40e9) == {}  # walking its pages would take long


def test_a_thread_that_competes_for_its_cpu_waits_and_one_that_sleeps_does_not() -> None:
    delay = RunDelay.of_this_thread()
    if delay is None:
        pytest.skip("this kernel does not tell run delays")
    cpus = os.sched_getaffinity(0)
    rival = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        os.sched_setaffinity(0, {min(cpus)})
        os.sched_setaffinity(rival.pid, {min(cpus)})
        begin, cpu = delay.read_ns(), time.thread_time_ns()
        wall = time.perf_counter_ns()
        while time.thread_time_ns() - cpu < 60_000_000:
            pass
        waited = delay.read_ns() - begin
        wall = time.perf_counter_ns() - wall
        missing = wall - 60_000_000
        assert waited == pytest.approx(missing, rel=0.3, abs=10_000_000)
        assert waited > 10_000_000
    finally:
        rival.kill()
        rival.wait()
        os.sched_setaffinity(0, cpus)
    wall, begin = time.perf_counter_ns(), delay.read_ns()
    time.sleep(0.05)
    waited = delay.read_ns() - begin
    assert waited <= time.perf_counter_ns() - wall - 50_000_000  # all but the sleep, where the machine wakes it late
    delay.close()


def test_a_kernel_that_does_not_tell_is_no_error(tmp_path: Path) -> None:
    assert RunDelay.of_this_thread(tmp_path) is None
