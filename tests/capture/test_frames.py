"""Looking at all threads neither stops the process, nor keeps anything alive, nor switches the garbage collector."""

import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest

from lightning_gpuprof.capture import frames
from lightning_gpuprof.capture.call_sites import CallSiteSampler, UserCode

PATIENCE_S = 60
TRAP = """
import gc, sys, threading, time, weakref
from lightning_gpuprof.capture.frames import current_frames

class Held:
    pass

end = threading.Event()
def inside():
    end.wait()
for _ in range(100):
    threading.Thread(target=inside, daemon=True).start()
time.sleep(0.3)  # each of them has to have a frame of which no object is made yet
gc.collect()
gc.disable()
held = Held()
held.itself, held.local = held, threading.local()
held.local.value = 1
alive = weakref.ref(held)
gc.collect(0)  # one generation up, so that only the second collection finds it
del held
seen = []
sys.addaudithook(lambda event, _: seen.append(alive() is not None) if event == "sys._current_frames" else None)
gc.set_threshold(40, 0, 100)  # more than all that is allocated before the look, less than half of its frames
gc.enable()
print(len(current_frames()), *seen, gc.isenabled())
"""


def test_a_threading_local_in_the_garbage_does_not_stop_the_process() -> None:
    """It did for good with ``sys._current_frames()`` of Python 3.11.7."""
    done = subprocess.run([sys.executable, "-c", TRAP], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["100", "True", "True"]


class Tensor:
    """Something that a frame holds."""


def look_once() -> None:
    found = frames.current_frames()
    assert threading.get_ident() not in found
    assert len(found) >= 1


def sample_once() -> None:
    code = UserCode(cwd=str(Path(__file__).parent), library_roots=())
    CallSiteSampler(threading.main_thread().ident or 0, lambda: 1, user_code=code).sample(0)


@pytest.mark.parametrize("look", [look_once, sample_once])
def test_what_frames_hold_is_let_go_without_the_collector(look: Callable[[], None]) -> None:
    ready, end, made = threading.Event(), threading.Event(), []

    def train() -> None:
        tensor = Tensor()
        made.append(weakref.ref(tensor))
        ready.set()
        end.wait(PATIENCE_S)

    thread = threading.Thread(target=train)
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        thread.start()
        assert ready.wait(PATIENCE_S)
        looking = threading.Thread(target=look)
        looking.start()
        looking.join(PATIENCE_S)
        end.set()
        thread.join(PATIENCE_S)
        assert made[0]() is None
    finally:
        end.set()
        (gc.enable if was_enabled else gc.disable)()


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_stays_as_it_was(enabled: bool) -> None:
    was_enabled = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        found = frames._without_collecting()
        assert found.keys() == sys._current_frames().keys()
        assert found[threading.get_ident()].f_code.co_name == "_without_collecting"
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if was_enabled else gc.disable)()


REFUSED = """
import gc, sys
from lightning_gpuprof.capture import frames

def refuse(event, arguments):
    if event == "sys._current_frames":
        raise MemoryError("planted")

sys.addaudithook(refuse)
for switch in (gc.enable, gc.disable):
    switch()
    try:
        frames._without_collecting()
    except MemoryError:
        print(gc.isenabled())
"""


def test_the_collector_stays_as_it_was_also_where_it_fails() -> None:
    done = subprocess.run([sys.executable, "-c", REFUSED], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["True", "False"]
