"""Fits of tests wait for what is done beside them, however busy the machine is, and that takes its share of the CPUs.

Users are not kept waiting for an analysis at the end, and it runs on CPUs that nobody else wants.
"""

import re
from collections.abc import Callable

from lightning_gpuprof import callback
from lightning_gpuprof.capture import journal_writer, recorder, trace_jobs

_START, _LOWERED = re.subn(r"os\.nice.*?pass\n", "", trace_jobs._START, flags=re.DOTALL)
assert _LOWERED


def begin(change: Callable[[object, str, object], None] = setattr) -> None:
    """From now on, in this process.

    Args:
        change: Sets an attribute; pytest's own takes it back.
    """
    change(callback, "JOB_TIMEOUT_S", 120.0)
    change(callback, "INTERRUPTED_JOB_TIMEOUT_S", 120.0)
    change(journal_writer, "DISK_TIMEOUT_S", 60.0)
    change(recorder, "STOP_TIMEOUT_S", 60.0)
    change(trace_jobs, "_START", _START)
