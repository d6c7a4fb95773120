import threading

import pytest
from fake_machine import OWN, FakeMachine, FakeProcess

from lightning_gpuprof.capture.host.thread_groups import ThreadGroups, python_threads, thread_kind


@pytest.mark.parametrize(
    ("thread", "name", "python_name", "kind"),
    [
        (OWN, "python", "MainThread", "main"),
        (2, "python", "gpuprof-host", "gpuprof"),
        (3, "python", "Thread-3 (_pin_memory_loop)", "pin_memory"),
        (4, "pt_data_pin", None, "pin_memory"),
        (5, "pt_autograd_0", None, "autograd"),
        (6, "pt_nccl_watchdg", None, "nccl"),
        (7, "cuda00001400006", None, "cuda"),
        (8, "python", "Thread-8", "python"),
        (9, "python", None, "native"),
    ],
)
def test_threads_are_separated(thread: int, name: str, python_name: str | None, kind: str) -> None:
    assert thread_kind(thread, OWN, name, python_name) == kind


def test_cpu_time_of_a_kind_is_the_sum_over_its_threads_and_waiting_the_mean(machine: FakeMachine) -> None:
    groups = ThreadGroups(str(machine.proc), OWN, lambda: {OWN: "MainThread"})

    def threads(*used_s: float) -> None:
        for number, cpu_s in enumerate(used_s):
            machine.thread(OWN, OWN + number, FakeProcess(user_s=cpu_s, delay_s=cpu_s / 2))

    threads(1.0, 1.0, 1.0)
    assert groups.sample(0) == {"thread.main": {"threads_count": 1}, "thread.native": {"threads_count": 2}}
    threads(2.0, 1.5, 2.5)
    found = groups.sample(10**9)
    assert found["thread.main"] == {"threads_count": 1, "cpu_cpus": 1.0, "run_delay_ratio": 0.5}
    assert found["thread.native"] == {"threads_count": 2, "cpu_cpus": 2.0, "run_delay_ratio": 0.5}


def test_a_thread_that_ends_meanwhile_is_left_out(machine: FakeMachine) -> None:
    (machine.proc / str(OWN) / "task" / "77").mkdir()
    assert ThreadGroups(str(machine.proc), OWN, dict).sample(0).keys() == {"thread.main"}


def test_python_names_its_own_threads() -> None:
    assert python_threads()[threading.get_native_id()] == threading.current_thread().name
