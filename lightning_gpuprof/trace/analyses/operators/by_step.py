"""Operators and kernels step by step: which step differs, and by what."""

import numpy as np

from lightning_gpuprof.model.trace.by_step import ByStep, StepTimes
from lightning_gpuprof.trace.analyses.joins.operator_calls import operator_calls
from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.tables import ABSENT, Int32, Int64, Rows, distinct, summed

MAX_ROWS = 50


def by_step(linked: LinkedTrace) -> ByStep:
    """Times of each step of a window; empty without steps.

    Returns:
        At most :data:`MAX_ROWS` operators and as many kernels.
    """
    steps = linked.steps
    if not len(steps):
        return ByStep()
    calls, ops, work = operator_calls(linked), linked.trace.cpu_op, linked.work
    of_op = np.where(calls.is_operator, steps.at(ops.start_ns), ABSENT)
    of_work = steps.at(linked.launch_start_ns)
    return ByStep(
        steps=steps.names,
        operators=_times(linked, ops.name, of_op, calls.host_self_ns),
        operators_count=len(distinct(ops.name[of_op > ABSENT])),
        kernels=_times(linked, work.name, of_work, work.duration_ns),
        kernels_count=len(distinct(work.name[of_work > ABSENT])),
    )


def _times(linked: LinkedTrace, name: Int32, step: Rows, time_ns: Int64) -> tuple[StepTimes, ...]:
    count, inside = len(linked.steps), step > ABSENT
    names, number = np.unique(name[inside], return_inverse=True)
    key = number.astype(np.int64) * count + step[inside]
    times = summed(key, time_ns[inside], len(names) * count).reshape(len(names), count)
    calls = np.bincount(key, minlength=len(names) * count).reshape(len(names), count)
    order = np.argsort(-times.sum(axis=1), kind="stable")[:MAX_ROWS]
    return tuple(
        StepTimes(
            name=linked.trace.names[names[row]],
            calls=tuple(calls[row].tolist()),
            times_us=tuple((times[row] / 1000).tolist()),
        )
        for row in order.tolist()
    )
