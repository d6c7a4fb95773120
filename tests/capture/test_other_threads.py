"""What is seen of the program's other threads."""

import threading
import time
from pathlib import Path

import pytest

from lightning_gpuprof.capture.call_sites import CallSiteSampler, UserCode
from lightning_gpuprof.capture.other_threads import OtherThreads

SECOND = 1_000_000_000


class Named:
    """A thread as the list of threads has it."""

    def __init__(self, name: str, number: int) -> None:
        self.name, self.ident, self.native_id = name, number, number


def cpu(folder: Path, thread: int, ms: int) -> None:
    (folder / str(thread)).mkdir(exist_ok=True)
    (folder / str(thread) / "schedstat").write_text(f"{ms * 1_000_000} 5 7\n")


def test_cpu_time_is_read_once_a_second_and_at_the_end(tmp_path: Path) -> None:
    threads = [Named("main", 1), Named("metrics", 2), Named("gpuprof host", 3), Named("gone", 4)]
    found = OtherThreads(1, lambda frame: None, str(tmp_path), lambda: threads)  # type: ignore[arg-type, return-value]
    for t_s, ms in ((0.0, 100), (0.5, 150), (1.0, 400), (1.2, 450)):
        for thread in (1, 2, 3):
            cpu(tmp_path, thread, ms)
        found.look(int(t_s * SECOND), {}, last=t_s == 1.2)
    taken, elapsed_ns = found.take()
    assert {name: one.cpu_ns for name, one in taken.items()} == {"metrics": 350_000_000}
    assert elapsed_ns == 1.2 * SECOND
    assert found.take() == ({}, 0)


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="the kernel tells CPU times of threads in /proc")
def test_a_thread_in_python_is_seen_with_its_line_and_makes_the_interpreter_late() -> None:
    over: list[bool] = []  # no event: its methods are Python of another place

    def count() -> None:
        number = 0
        while not over:
            for step in range(1000):
                number += step

    thread = threading.Thread(target=count, name="metrics")
    sampler = CallSiteSampler(threading.get_ident(), lambda: 2, user_code=UserCode(cwd="", library_roots=[]))
    sampler.open()
    thread.start()
    try:
        begin_ns = time.perf_counter_ns()
        for _ in range(8):
            sampler.sample(begin_ns)
        (record,) = sampler.close()
    finally:
        over.append(True)
        thread.join()
    seen = record.threads["metrics"]
    assert seen.cpu_ns > 0
    assert all(place.endswith(" count") for place in seen.sites)
    asked, late = record.lock[2]
    # fewer where this machine gave us no CPU; a wait for a CPU of our own thread is none for the interpreter
    assert 1 <= late <= asked <= 8
