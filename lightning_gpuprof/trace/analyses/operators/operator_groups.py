"""Groups calls of operators: one group per operator and phase, or also per input shapes."""

import msgspec
import numpy as np

from lightning_gpuprof.model.trace.operators import OPERATOR_PHASES
from lightning_gpuprof.trace.analyses.joins.input_shapes import shape_labels
from lightning_gpuprof.trace.analyses.joins.operator_calls import operator_calls
from lightning_gpuprof.trace.analyses.joins.operator_phases import Codes
from lightning_gpuprof.trace.analyses.roofline.counted_work import counted_work
from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.tables import Int32, Int64, Mask, Rows, summed


class CallGroups(msgspec.Struct, frozen=True, kw_only=True):
    """Columns with one row per group. Totals leave out calls inside another call of their group."""

    group: Rows
    """The group of each of the calls."""
    name: Int32
    phase: Codes
    count: Int64
    host_total_ns: Int64
    host_self_ns: Int64
    device_total_ns: Int64
    device_self_ns: Int64
    work: Int64
    """Device work launched inside."""


def grouped(linked: LinkedTrace, rows: Rows, label: Int32 | Int64) -> CallGroups:
    """Groups of calls with the same label in the same phase.

    Args:
        linked: The trace.
        rows: The calls, as rows of :attr:`Trace.cpu_op`.
        label: For each row of :attr:`Trace.cpu_op`; calls of different operators have different labels.

    Returns:
        By label, then by phase; times in ns.
    """
    calls, ops = operator_calls(linked), linked.trace.cpu_op
    key = label.astype(np.int64) * len(OPERATOR_PHASES) + calls.phase
    _, first, group = np.unique(key[rows], return_index=True, return_inverse=True)
    outer = calls.is_outermost(key)[rows]

    def total(values: Int64, counts: Mask | bool = True) -> Int64:
        return summed(group, np.where(counts, values[rows], 0), len(first))

    return CallGroups(
        group=group,
        name=ops.name[rows[first]],
        phase=calls.phase[rows[first]],
        count=np.bincount(group, minlength=len(first)).astype(np.int64),
        host_total_ns=total(ops.duration_ns, outer),
        host_self_ns=total(calls.host_self_ns),
        device_total_ns=total(calls.device_total_ns, outer),
        device_self_ns=total(calls.device_self_ns),
        work=total(calls.work_total, outer),
    )


class ShapeGroups(msgspec.Struct, frozen=True, kw_only=True):
    """Groups of calls with inputs of the same shapes and types; lists have one entry per group."""

    groups: CallGroups
    shapes: list[str]
    dtypes: list[str]
    flops_per_call: list[float | None]
    """Mean over the calls; None if it is not known of all of them."""
    flops_per_s: list[float | None]
    """Of the calls that launched device work, over its time."""


def shape_groups(linked: LinkedTrace, rows: Rows) -> ShapeGroups | None:
    """Groups of calls by operator, phase, and shapes and types of the inputs.

    Args:
        linked: The trace.
        rows: The calls, as rows of :attr:`Trace.cpu_op`; those without recorded inputs are left out.

    Returns:
        None if no call of the trace has recorded inputs.
    """
    ops, trace = linked.trace.cpu_op, linked.trace
    if not (ops.inputs >= 0).any():
        return None
    rows = rows[ops.inputs[rows] >= 0]
    of_rows, said = shape_labels(trace, rows)
    label = np.zeros(len(ops), np.int64)
    label[rows] = of_rows
    groups = grouped(linked, rows, ops.name.astype(np.int64) * max(len(said), 1) + label)
    first = np.zeros(len(groups.count), np.intp)
    first[groups.group[::-1]] = of_rows[::-1]
    chosen = [said[number] for number in first.tolist()]
    per_call, per_second = _flops(linked, rows, groups)
    return ShapeGroups(
        groups=groups,
        shapes=[shape for shape, _ in chosen],
        dtypes=[dtype for _, dtype in chosen],
        flops_per_call=per_call,
        flops_per_s=per_second,
    )


def _flops(linked: LinkedTrace, rows: Rows, groups: CallGroups) -> tuple[list[float | None], list[float | None]]:
    found, calls = counted_work(linked), operator_calls(linked)
    count = len(groups.count)
    known = found.work[rows] >= 0
    # the last entry is what ABSENT points to
    flops = np.array([*(work.flops for work in found.works), 0], np.float64)[found.work[rows]]
    total = np.bincount(groups.group, weights=flops, minlength=count)
    unknown = np.bincount(groups.group, weights=~known, minlength=count)
    launched = calls.work_total[rows] > 0
    timed = np.bincount(groups.group, weights=np.where(launched, flops, 0), minlength=count)
    per_call: list[float | None] = []
    per_second: list[float | None] = []
    for row in range(count):
        all_known = unknown[row] == 0
        device_ns = int(groups.device_total_ns[row])
        per_call.append(float(total[row]) / int(groups.count[row]) if all_known else None)
        per_second.append(float(timed[row]) / device_ns * 1e9 if all_known and device_ns else None)
    return per_call, per_second
