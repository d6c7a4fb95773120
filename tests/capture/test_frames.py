"""Looking at all threads neither stops the process nor switches the garbage collector."""

import gc
import subprocess
import sys
import threading

import pytest

from lightning_gpuprof.capture import frames

TRAP = """
import gc, sys, threading, time
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
gc.collect(0)  # one generation up, so that the first collection leaves it
del held
gc.set_threshold(5, 1, 100)
gc.enable()
print(len(current_frames()), gc.isenabled())
"""


def test_a_threading_local_in_the_garbage_does_not_stop_the_process() -> None:
    """It did for good with ``sys._current_frames()`` of Python 3.11.7."""
    done = subprocess.run([sys.executable, "-c", TRAP], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["101", "True"]


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
