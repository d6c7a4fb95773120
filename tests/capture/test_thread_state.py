"""Whether a thread runs Python, native code, or nothing."""

import hashlib
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lightning_gpuprof.capture.call_sites import CallSiteSampler, UserCode
from lightning_gpuprof.capture.thread_state import (
    NATIVE,
    OFF_CPU,
    PYTHON,
    KeptFile,
    ThreadSources,
    ThreadState,
    with_one_more,
)

PATIENCE_S = 60
LOOKS = 12
MS = 1_000_000


def sources(cpu_ns: Callable[[], int], hold: Callable[[], None], call: bytes = b"running\n") -> ThreadSources:
    """Of a scripted thread that is in a call of the kernel."""
    return ThreadSources(
        cpu_ns=cpu_ns,
        hold=hold,
        note=lambda: len(call),
        close=lambda: None,
        noted=lambda: call,
        runtime=range(0x7F00_0000, 0x7F10_0000),
    )


def state(ran_us: int, call: bytes) -> int | None:
    """Of a thread whose CPU clock went on by so much, and that is then in a call of the kernel."""
    cpu_ns = iter((5_000_000, 5_000_000 + 1_000 * ran_us))
    return ThreadState(sources(cpu_ns.__next__, lambda: None, call)).look()


@pytest.mark.parametrize(
    ("ran_us", "call", "expected"),
    [
        (4, b"202 0x7f0001b0 0x189 0x0 0x7f1 0x0 0xffffffff 0x7ffe 0x7f2\n", PYTHON),
        (60, b"running\n", NATIVE),
        (3, b"running\n", None),  # others have its CPU
        (0, b"202 0x7f2001b0 0x189 0x0 0x7f1 0x0 0xffffffff 0x7ffe 0x7f2\n", OFF_CPU),  # another lock
        (0, b"230 0x1 0x1 0x7ffd 0x0 0x0 0x0 0x7ffe 0x7f2\n", OFF_CPU),  # asleep
        (0, b"-1 0x7ffe 0x7f2\n", OFF_CPU),  # a page is read
        (0, b"", None),
        (0, b"nonsense\n", None),
    ],
)
def test_what_the_kernel_says_of_a_thread_is_what_it_does(ran_us: int, call: bytes, expected: int | None) -> None:
    assert state(ran_us, call) == expected


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (b"running\n", False),
        (b"202 0x7f0001b0 0x189 0x0 0x7f1 0x0 0xffffffff 0x7ffe 0x7f2\n", False),  # the interpreter
        (b"202 0x7f2001b0 0x189 0x0 0x7f1 0x0 0xffffffff 0x7ffe 0x7f2\n", True),
        (b"230 0x1 0x1 0x7ffd 0x0 0x0 0x0 0x7ffe 0x7f2\n", True),
        (b"-1 0x7ffe 0x7f2\n", True),
        (b"", None),
        (b"nonsense\n", None),
    ],
)
def test_off_the_cpu_is_not_waiting_for_a_cpu_or_the_interpreter(call: bytes, expected: bool | None) -> None:
    found = ThreadState(sources(lambda: 0, lambda: None, call))
    assert found.is_off_cpu() is expected
    assert (found.is_off_cpu(), ThreadState(None).is_off_cpu()) == (expected, None)


def test_looks_that_keep_the_interpreter_for_long_end_after_the_third() -> None:
    asked = 0

    def slow() -> None:
        nonlocal asked
        asked += 1
        time.sleep(0.002)

    late = ThreadSources(
        cpu_ns=lambda: 0, hold=slow, note=lambda: 7, close=lambda: None, noted=lambda: b"running", runtime=range(9)
    )
    found = ThreadState(late)
    assert [found.look() for _ in range(5)] == [None] * 5
    assert asked == 3


def test_of_a_thread_that_is_gone_nothing_is_known() -> None:
    def gone() -> int:
        raise OSError("no such thread")

    ended = ThreadSources(
        cpu_ns=gone, hold=lambda: None, note=lambda: 7, close=lambda: None, noted=lambda: b"running", runtime=range(9)
    )
    assert ThreadState(ended).look() is None
    assert ThreadState(None).look() is None
    assert ThreadSources.of(-1) is None
    with pytest.raises(OSError, match="syscall"):
        KeptFile("/proc/self/task/0/syscall")


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
    """How often the thread that runs a function was seen in Python, in native code, off the CPU: a dozen times or more.

    Where other programs have the CPUs, little is known of each look, and a sampler soon gives up: another takes over.
    """
    names: dict[str, object] = {"digest": hashlib.sha256, "DATA": bytes(16_000_000), "pause": time.sleep}
    path = folder / "train.py"
    path.write_text(SOURCE)
    exec(compile(SOURCE, str(path), "exec"), names)
    over = threading.Event()
    run: Callable[[Callable[[], bool]], None] = names[function]  # type: ignore[assignment]
    thread = threading.Thread(target=run, args=(over.is_set,))
    thread.start()
    library = str(Path(threading.__file__).parent)
    user_code = UserCode(cwd=str(folder), library_roots=[library])
    counts = (0, 0, 0)
    until = time.monotonic() + PATIENCE_S
    try:
        while sum(counts) < LOOKS and time.monotonic() < until:
            sampler = CallSiteSampler(thread.ident, lambda: 5, user_code=user_code)
            sampler.open()
            for second in range(0, 1_200, 20):  # hands over each time, and soon asks less often, which takes long
                for record in sampler.sample(second * 1_000 * MS):
                    for row in record.states.get(5, {}).values():
                        counts = counts[0] + row[PYTHON], counts[1] + row[NATIVE], counts[2] + row[OFF_CPU]
                if sum(counts) >= LOOKS:
                    break
            sampler.close()
    finally:
        over.set()
        thread.join(PATIENCE_S)
    assert sum(counts) >= LOOKS
    return counts


@pytest.mark.skipif(
    ThreadSources.of(threading.get_ident()) is None, reason="this system does not say what a thread does"
)
def test_python_native_code_and_sleep_are_told_apart(tmp_path: Path) -> None:
    python, native, _ = looked("loop", tmp_path)  # where others have the CPU, nothing is known
    assert python >= 3 * native
    python, native, _ = looked("native", tmp_path)
    assert native >= 3 * python
    python, native, off_cpu = looked("sleep", tmp_path)
    assert off_cpu > 3 * (python + native)
