import gc
import textwrap
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from fake_machine import OWN, FakeMachine, FakeProcess
from python_process import run_python

from lightning_gpuprof.capture.host.children import WORKER_NAME
from lightning_gpuprof.capture.host.gc_pauses import GcSampler
from lightning_gpuprof.capture.host.sampler import HostSampler
from lightning_gpuprof.capture.recorder import Reading, Recorder, SourceUnavailableError
from lightning_gpuprof.model.journal import Conditions, Notice, Sample

SECOND = 1_000_000_000


def sampler_of(machine: FakeMachine, **clocks: Callable[[], Any]) -> HostSampler:
    sampler = HostSampler(
        roots=machine.roots,
        environ={},
        cpus=clocks.pop("cpus", lambda: None),
        named_threads=dict,
        thread_cpu_s=clocks.pop("thread_cpu_s", lambda: 0.0),
        boot_s=lambda: 1000.0,
    )
    sampler.open()
    return sampler


def values(readings: Sequence[Reading]) -> dict[str, dict[str, float | None]]:
    return {each.subject: each.values for each in readings if isinstance(each, Sample)}


def notices(readings: Sequence[Reading]) -> list[str]:
    return [each.message for each in readings if isinstance(each, Notice)]


def test_the_first_sample_has_levels_facts_and_no_rates(tmp_path: Path) -> None:
    readings = sampler_of(FakeMachine(tmp_path)).sample(0)
    found = values(readings)
    assert found.keys() == {"process", "workers", "children", "host", "thread.main"}
    rates = [
        n for of in found.values() for n in of if n.endswith(("_cpus", "_per_s")) or "pressure" in n or "busy" in n
    ]
    assert rates == []
    assert found["process"]["rss_bytes"] == 0
    assert found["host"]["load"] == 1.5
    facts = [each.values for each in readings if isinstance(each, Conditions)]
    assert facts[0]["host.memory_total_bytes"] == 1000 * 1024
    assert notices(readings) == []


def test_facts_are_reported_once(tmp_path: Path) -> None:
    sampler = sampler_of(FakeMachine(tmp_path))
    sampler.sample(0)
    assert not [each for each in sampler.sample(SECOND) if isinstance(each, Conditions)]


def test_pages_are_not_counted_in_the_first_ten_seconds(machine: FakeMachine) -> None:
    """It takes milliseconds, which a run of a few steps does not have."""
    (machine.proc / str(OWN) / "smaps_rollup").write_text("0-1 ---p 0 00:00 0 [rollup]\nPss: 30 kB\n")
    sampler = sampler_of(machine)
    read = [values(sampler.sample(second * SECOND))["process"] for second in (0, 9, 10, 11)]
    assert ["pss_bytes" in process for process in read] == [False, False, True, False]


def test_others_are_what_is_busy_without_us_and_our_children(machine: FakeMachine) -> None:
    machine.children(OWN, 11)
    machine.process(11, FakeProcess(name=WORKER_NAME))
    sampler = sampler_of(machine)
    sampler.sample(0)
    machine.process(OWN).user_s = 1.0
    machine.processes[11].user_s = 0.5
    for pid in (OWN, 11):
        machine.process(pid)
    machine.cpus(1.5, 1.0, idle_s=0.5, steal_s=0.25)
    found = values(sampler.sample(2 * SECOND))
    assert found["process"]["cpu_cpus"] == 0.5
    assert found["workers"]["cpu_cpus"] == 0.25
    assert found["host"]["cpu_others_cpus"] == 0.5  # (2.5 - 1.0 - 0.5) s in 2 s
    assert found["host"]["cpu_steal_cpus"] == 0.25
    assert found["host"]["cpu_busy_ratio"] == 0.75  # (2.5 + 0.5) of 4.0


def test_the_machine_s_time_is_in_programs_in_the_kernel_or_idle_for_a_disk(machine: FakeMachine) -> None:
    sampler = sampler_of(machine)
    sampler.sample(0)
    machine.cpus(1.0, 0.5, system_s=0.25, irq_s=0.25, idle_s=0.25, io_wait_s=0.25, steal_s=0.25)
    found = values(sampler.sample(SECOND))["host"]
    assert (found["cpu_user_ratio"], found["cpu_system_ratio"], found["cpu_io_wait_ratio"]) == (0.375, 0.25, 0.125)
    assert found["cpu_busy_ratio"] == 0.75  # with 0.5 of 4.0 s that the hypervisor took


def test_what_ended_workers_used_is_no_work_of_others(machine: FakeMachine) -> None:
    sampler = sampler_of(machine)
    sampler.sample(0)
    machine.processes[OWN].ended_children_s = 0.75
    machine.process(OWN)
    machine.cpus(1.0, 0.0, idle_s=0.5)
    assert values(sampler.sample(SECOND))["host"]["cpu_others_cpus"] == 0.25


def test_only_cpus_that_we_may_use_count(machine: FakeMachine) -> None:
    sampler = sampler_of(machine, cpus=lambda: {10**6, 1})
    sampler.sample(0)
    machine.cpus(1.0, 0.25, idle_s=0.75)
    found = values(sampler.sample(SECOND))
    assert found["host"]["cpu_others_cpus"] == 0.25


def test_rates_of_the_machine(machine: FakeMachine) -> None:
    sampler = sampler_of(machine)
    sampler.sample(0)
    machine.network(2000, 4000)
    machine.put("proc/vmstat", "a 1\npswpin 1\npswpout 2\n")
    machine.pressure("io", 500_000, 250_000)
    machine.pressure("cpu", 9_000_000, 0)  # read a moment after the clock
    found = values(sampler.sample(2 * SECOND))["host"]
    assert (found["network_received_bytes_per_s"], found["network_sent_bytes_per_s"]) == (1000, 2000)
    assert (found["swap_in_bytes_per_s"], found["swap_out_bytes_per_s"]) == (2048, 4096)
    assert (found["pressure_io_some_ratio"], found["pressure_io_full_ratio"]) == (0.25, 0.125)
    assert found["pressure_cpu_some_ratio"] == 1


def test_the_control_group_s_counts_are_those_since_the_sample_before(machine: FakeMachine) -> None:
    folder = machine.v2()
    machine.put(f"{folder}/cpu.max", "50000 100000")
    machine.put(f"{folder}/memory.max", "1000")
    machine.put(f"{folder}/memory.current", "900")
    machine.pressure("memory", 0, 0, folder, ".pressure")
    machine.pressure("cpu", 0, 0, folder, ".pressure")

    def at(periods: int, throttled: int, held_us: int, kills: int) -> None:
        stat = f"nr_periods {periods}\nnr_throttled {throttled}\nthrottled_usec {held_us}\n"
        machine.put(f"{folder}/cpu.stat", stat)
        machine.put(f"{folder}/memory.events", f"high 0\nmax 0\noom_kill {kills}\n")

    at(1000, 900, 10**9, 4)
    sampler = sampler_of(machine)
    assert values(sampler.sample(0))["cgroup"] == {"memory_used_bytes": 900, "memory_used_ratio": 0.9}
    at(1010, 905, 10**9 + 500_000, 5)
    machine.pressure("memory", 300_000, 100_000, folder, ".pressure")
    found = values(sampler.sample(SECOND))["cgroup"]
    assert [found[n] for n in ("cpu_periods_count", "cpu_throttled_count", "cpu_throttled_s")] == [10, 5, 0.5]
    assert (found["oom_kill_count"], found["memory_max_count"]) == (1, 0)
    assert (found["pressure_memory_some_ratio"], found["pressure_memory_full_ratio"]) == (0.3, 0.1)


def test_what_is_absent_from_the_machine_is_told_in_one_notice(machine: FakeMachine) -> None:
    for file in (machine.proc / "pressure").iterdir():
        file.unlink()
    (machine.proc / str(OWN) / "schedstat").unlink()
    sampler = sampler_of(machine)
    readings = [*sampler.sample(0), *sampler.sample(SECOND)]
    (message,) = notices(readings)
    assert message.startswith("not measured here: pressure (")
    assert "waiting for a CPU" in message
    assert not [name for name in values(readings)["host"] if "pressure" in name]


@pytest.mark.parametrize("name", ["stat", "meminfo", "loadavg"])
def test_a_file_that_goes_away_takes_only_its_own_values_and_is_reported_once(machine: FakeMachine, name: str) -> None:
    sampler = sampler_of(machine)
    before = values(sampler.sample(0))
    (machine.proc / name).unlink()
    readings = [*sampler.sample(SECOND), *sampler.sample(2 * SECOND)]
    assert len(notices(readings)) == 1
    assert values(readings)["process"].keys() >= before["process"].keys()


def test_a_process_table_that_hides_us_is_a_source_that_is_not_there(machine: FakeMachine) -> None:
    (machine.proc / str(OWN) / "stat").unlink()
    with pytest.raises(SourceUnavailableError, match="cannot be read"):
        sampler_of(machine)


def test_a_costly_file_is_read_limited_and_its_rate_is_of_the_whole_time(machine: FakeMachine) -> None:
    clock_s = 0.0

    def costly() -> float:
        nonlocal clock_s
        clock_s += 0.001  # of CPU time at each look at the clock
        return clock_s

    sampler = sampler_of(machine, thread_cpu_s=costly)
    sampler.sample(0)
    busy = []
    for second in range(1, 9):
        machine.cpus(0.5 * second, 0.5 * second, idle_s=0.5 * second)
        found = values(sampler.sample(second * SECOND))["host"]
        if "cpu_busy_ratio" in found:
            busy.append((second, found["cpu_busy_ratio"]))
    assert busy == [(2, 0.5), (4, 0.5), (6, 0.5), (8, 0.5)]


def test_samples_of_a_long_run_become_rarer(tmp_path: Path) -> None:
    sampler = sampler_of(FakeMachine(tmp_path))
    for hours, interval_s in ((0, 1.0), (1, 1.0), (2, 1.0), (24, 12.0)):
        sampler.sample(round(hours * 3600 * SECOND))
        assert sampler.interval_s == pytest.approx(interval_s if hours else 0.05)


def test_the_memory_of_a_young_run_is_looked_at_more_often_and_everything_else_not(tmp_path: Path) -> None:
    sampler = sampler_of(FakeMachine(tmp_path))
    t_ns, subjects = 0, []
    while t_ns < 60 * SECOND:
        subjects.append((t_ns, list(values(sampler.sample(t_ns)))))
        t_ns += round(sampler.interval_s * SECOND)
    alone = [t for t, found in subjects if found == ["process_memory"]]
    whole = [t for t, found in subjects if "process" in found]
    assert len(alone) + len(whole) == len(subjects)
    assert len([t for t in alone if t < 2 * SECOND]) >= 36
    assert 58 <= len(whole) <= 61
    assert not [t for t in alone if t > 45 * SECOND]
    assert whole[1] == pytest.approx(0.4 * SECOND, abs=0.05 * SECOND), "what others use of a run of a second is known"
    assert sampler.interval_s == 1.0


def test_this_machine_is_read() -> None:
    sampler = HostSampler()
    sampler.open()
    sampler.sample(0)
    before_s = time.process_time()
    while time.process_time() < before_s + 0.1:
        pass
    found = values(sampler.sample(SECOND))
    used = found["process"]["cpu_cpus"]
    assert 0.05 < used < 10
    busy = found["host"].get("cpu_busy_ratio", 0.5)
    assert 0 <= busy <= 1


def test_both_samplers_leave_nothing_behind() -> None:
    before = list(gc.callbacks)
    taken: list[Reading] = []
    recorder = Recorder([HostSampler(0.05), GcSampler(0.05)], taken.append)
    recorder.start()
    while not [each for each in taken if isinstance(each, Sample) and each.subject == "gc"]:
        time.sleep(0.01)
    assert len(gc.callbacks) == len(before) + 2
    recorder.stop()
    assert gc.callbacks == before
    assert notices(taken) == []


def test_the_interpreter_ends_while_a_sample_is_under_way(tmp_path: Path) -> None:
    pipe = tmp_path / "loadavg"
    program = f"""
    import os, pathlib, time
    from lightning_gpuprof.capture.host import sampler, sources
    from lightning_gpuprof.capture.host.gc_pauses import GcSampler
    from lightning_gpuprof.capture.recorder import Recorder
    root = pathlib.Path({str(tmp_path)!r})
    for name in os.listdir("/proc"):
        if not (root / name).exists():
            (root / name).symlink_to("/proc/" + name)
    os.mkfifo({str(pipe)!r} + ".fifo")
    pathlib.Path({str(pipe)!r}).unlink()
    pathlib.Path({str(pipe)!r}).symlink_to({str(pipe)!r} + ".fifo")  # reading hangs: nobody writes
    recorder = Recorder([sampler.HostSampler(0.05, roots=sources.Roots(proc=root)), GcSampler(0.05)], print)
    recorder.start()
    time.sleep(0.3)
    """
    assert run_python("-c", textwrap.dedent(program)).stderr == ""
