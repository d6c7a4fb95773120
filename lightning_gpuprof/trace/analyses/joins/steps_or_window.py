"""From a trace to what its time is divided by: its steps, or the whole window where it has none."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lightning_gpuprof.model.trace.step_trace import WHOLE_WINDOW
from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.steps import Steps
from lightning_gpuprof.trace.tables import Spans


def steps_or_window(linked: LinkedTrace) -> Steps | None:
    """The steps; without steps one from the begin of the first to the end of the last event; None without events."""
    if len(linked.steps):
        return linked.steps
    trace = linked.trace
    tables: Sequence[Spans] = (trace.cpu_op, trace.annotation, trace.runtime, trace.python_function, linked.work)
    filled = [table for table in tables if len(table)]
    if not filled:
        return None
    start = min(int(table.start_ns.min()) for table in filled)
    end = max(int(table.end_ns.max()) for table in filled)
    return Steps(names=(WHOLE_WINDOW,), start_ns=np.array([start]), end_ns=np.array([end]))
