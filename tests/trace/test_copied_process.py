"""A function called in a copy of the process."""

from python_process import run_python


def test_the_result_comes_also_where_the_end_of_children_is_ignored() -> None:
    program = """
import os, pickle, signal
from lightning_gpuprof.trace.copied_process import in_a_copy
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
own = os.getpid()
with in_a_copy(lambda: (os.getpid() == own, "x" * 1_000_000)) as pickled:
    is_own, text = pickle.load(pickled)
print(is_own, len(text))
with in_a_copy(lambda: 1 / 0) as pickled:
    print(pickled.read())
"""
    done = run_python("-c", program)
    assert done.stdout.splitlines() == ["False 1000000", "b''"]
