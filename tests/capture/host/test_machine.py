from pathlib import Path

import pytest
from fake_machine import OWN, FakeMachine

from lightning_gpuprof.capture.host import machine as files


def text(machine: FakeMachine, name: str) -> bytes:
    return (machine.proc / name).read_bytes()


def test_cpu_time_is_that_of_the_cpus_that_we_may_use(machine: FakeMachine) -> None:
    machine.cpus(1.0, 2.0, 4.0, idle_s=10, io_wait_s=3, steal_s=0.5)
    whole = files.cpu_times(text(machine, "stat"))
    assert (whole.busy_s, whole.idle_s, whole.io_wait_s, whole.steal_s, whole.cpus) == (7.0, 39.0, 9.0, 1.5, 3)
    ours = files.cpu_times(text(machine, "stat"), {0, 2})
    assert (ours.busy_s, ours.idle_s, ours.cpus) == (5.0, 26.0, 2)


def test_a_file_without_cpus_raises() -> None:
    with pytest.raises(ValueError, match="no line for a CPU"):
        files.cpu_times(b"intr 1 2 3\n")


def test_memory_and_swap(tmp_path: Path) -> None:
    assert files.memory(text(FakeMachine(tmp_path), "meminfo")) == {
        "memory_total_bytes": 1000 * 1024,
        "memory_available_bytes": 600 * 1024,
        "swap_used_bytes": 10 * 1024,
    }
    assert files.memory(b"MemFree: 3 kB\n") == {}


def test_swap_traffic_is_in_bytes() -> None:
    assert files.paging(b"nr_free_pages 1\npswpin 2\npswpout 3\npgfault 9\n") == {
        "swap_in_bytes_per_s": 8192,
        "swap_out_bytes_per_s": 12288,
    }
    assert files.paging(b"nr_free_pages 1\n") == {}


def test_the_loopback_is_no_network(machine: FakeMachine) -> None:
    machine.network(700, 300)
    assert files.network(text(machine, f"{OWN}/net/dev")) == {
        "network_received_bytes_per_s": 700,
        "network_sent_bytes_per_s": 300,
    }
    assert files.network(b"a\nb\n    lo: 1 1 0 0 0 0 0 0 1 1\n") == {}


def test_pressure_is_stalled_time_without_the_machine_s_full_cpu(machine: FakeMachine) -> None:
    machine.pressure("cpu", 500_000, 7)
    machine.pressure("memory", 2_000_000, 1_000_000)
    assert files.pressure(str(machine.proc)) == {
        "pressure_cpu_some_ratio": 0.5,
        "pressure_memory_some_ratio": 2.0,
        "pressure_memory_full_ratio": 1.0,
        "pressure_io_some_ratio": 0.0,
        "pressure_io_full_ratio": 0.0,
    }


def test_without_pressure_there_is_nothing(tmp_path: Path) -> None:
    assert files.pressure(str(tmp_path)) == {}


def test_shared_memory_has_a_size(tmp_path: Path) -> None:
    found = files.shared_memory(str(tmp_path))
    assert 0 < found["shm_free_bytes"] <= found["shm_size_bytes"]
    assert 0 <= found["shm_used_ratio"] <= 1
    with pytest.raises(FileNotFoundError):
        files.shared_memory(str(tmp_path / "none"))
