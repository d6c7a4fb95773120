"""Whether a thread runs Python, native code, or nothing, by clocks of which one is its own."""

import hashlib
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lightning_gpuprof.capture.call_sites import CallSiteSampler, UserCode
from lightning_gpuprof.capture.thread_state import NATIVE, OFF_CPU, PYTHON, ThreadClocks, ThreadState, with_one_more
from lightning_gpuprof.model.journal import CallSites

PATIENCE_S = 60
US = 1_000
MS = 1_000_000


def state(cpu: tuple[int, int, int], *, is_ready: bool = False) -> int | None:
    """After three readings of the thread's clock: a millisecond before the look, at it, a tenth of one after it."""
    of_thread, now = iter(cpu), iter((0, MS, MS + 100 * US))
    clocks = ThreadClocks(
        cpu_ns=of_thread.__next__, note=lambda: None, is_ready=lambda: is_ready, hold=lambda: None, now_ns=now.__next__
    )
    found = ThreadState(clocks)
    found.begin()
    return found.look()


@pytest.mark.parametrize(
    ("cpu", "expected"),
    [
        ((0, 950 * US, 950 * US), PYTHON),
        ((0, 950 * US, 960 * US), PYTHON),  # it asks for the interpreter now and then
        ((0, 990 * US, 1_080 * US), NATIVE),
        ((0, 0, 80 * US), NATIVE),  # it has just woken up
        ((0, 0, 0), OFF_CPU),
        ((0, 300 * US, 300 * US), OFF_CPU),  # it ran, and fell asleep before the look
    ],
)
def test_the_clock_of_a_thread_says_what_it_does(cpu: tuple[int, int, int], expected: int) -> None:
    assert state(cpu) == expected


def test_of_a_thread_that_waits_for_a_cpu_nothing_is_known() -> None:
    assert state((0, 950 * US, 950 * US), is_ready=True) is None
    assert state((0, 0, 0), is_ready=True) is None
    assert state((0, 990 * US, 1_080 * US), is_ready=True) == NATIVE


def test_without_clocks_of_the_thread_nothing_is_known() -> None:
    def ended() -> int:
        raise OSError("no such thread")

    gone = ThreadClocks(cpu_ns=ended, note=lambda: None, is_ready=lambda: False, hold=lambda: None)
    for clocks in (None, gone):
        found = ThreadState(clocks)
        found.begin()
        assert found.look() is None
    assert ThreadClocks.of(-1) is None


def test_a_look_counts_once() -> None:
    assert [with_one_more((1, 1, 1), one) for one in (PYTHON, NATIVE, OFF_CPU)] == [(2, 1, 1), (1, 2, 1), (1, 1, 2)]


SOURCE = """
def loop(done):
    total = 0
    while not done():
        for number in range(100_000):
            total += number * number

def native(done):
    while not done():
        digest(DATA)

def sleep(done):
    while not done():
        pause(0.05)
"""


def looked(function: str, folder: Path) -> tuple[int, int, int]:
    """How often the thread that runs a function was seen in Python, in native code, off the CPU: thirty looks."""
    names: dict[str, object] = {"digest": hashlib.sha256, "DATA": bytes(16_000_000), "pause": time.sleep}
    path = folder / "train.py"
    path.write_text(SOURCE)
    exec(compile(SOURCE, str(path), "exec"), names)
    over = threading.Event()
    run: Callable[[Callable[[], bool]], None] = names[function]  # type: ignore[assignment]
    thread = threading.Thread(target=run, args=(over.is_set,))
    thread.start()
    library = str(Path(threading.__file__).parent)
    sampler = CallSiteSampler(thread.ident, lambda: 5, user_code=UserCode(cwd=str(folder), library_roots=[library]))
    sampler.open()
    records: list[CallSites] = []
    try:
        for second in range(0, 60, 2):  # in the first second it looks every other time
            records += sampler.sample(second * 1_000 * MS)
    finally:
        over.set()
        thread.join(PATIENCE_S)
    records += sampler.close()
    rows = [row for record in records for row in record.states.get(5, {}).values()]
    return sum(row[0] for row in rows), sum(row[1] for row in rows), sum(row[2] for row in rows)


@pytest.mark.skipif(
    ThreadClocks.of(threading.get_ident()) is None, reason="the system has no clock of another thread's CPU time"
)
def test_python_native_code_and_sleep_are_told_apart(tmp_path: Path) -> None:
    python, native, _ = looked("loop", tmp_path)  # where others have the CPU, nothing is known
    assert python >= 3 * native
    python, native, _ = looked("native", tmp_path)
    assert native >= 3 * python
    python, native, off_cpu = looked("sleep", tmp_path)
    assert off_cpu > 3 * (python + native)
