"""Own time, device time and phase of each operator call."""

import re

import msgspec
import numpy as np

from lightning_gpuprof.trace.analyses.joins.operator_phases import Codes, operator_phases
from lightning_gpuprof.trace.linked import CachedJoin, LinkedTrace
from lightning_gpuprof.trace.nesting import exclusive_ns, nearest, take_or_absent
from lightning_gpuprof.trace.tables import ABSENT, Int64, Mask, Rows, summed

_RANGE = re.compile(r"ProfilerStep#|enumerate\(DataLoader\)|Optimizer\.(?:step|zero_grad)#|\[pl\]|## ")
"""Begins of names that torch, Lightning, this package and, by custom, people give to ranges."""
_UPLOAD = re.compile(r"HtoD|HostToDevice", re.IGNORECASE)
"""Copies as CUPTI and as ROCm's tracer name them."""


class OperatorCalls(msgspec.Struct, frozen=True, kw_only=True):
    """Columns with one row for each row of :attr:`Trace.cpu_op`.

    Device time is the sum of the durations of kernels, copies and memsets, whatever runs beside them.
    """

    is_operator: Mask
    """False for steps and other named ranges, which some versions of torch write among the operators. Their values in
    the other columns mean nothing."""
    phase: Codes
    """Index into :data:`OPERATOR_PHASES`."""
    parent: Rows
    """Row of the operator directly around each one, :data:`ABSENT` if there is none; ranges are looked through."""
    host_self_ns: Int64
    """Time without the operators directly inside; of one that outlasts its outer one only the common part."""
    operator_of_work: Rows
    """For each row of :attr:`Trace.device_work` the innermost operator that launched it, :data:`ABSENT` if none."""
    device_self_ns: Int64
    """Device time that each operator launched itself, not by operators inside it."""
    device_total_ns: Int64
    """Device time launched inside, also by operators inside."""
    work_total: Int64
    """Kernels, copies and memsets launched inside, also by operators inside."""
    uploads: Mask
    """Whether each one is, or is inside, an operator that launched nothing but copies from host to device."""

    def is_outermost(self, label: Int64) -> Mask:
        """Whether no call around each one has the same label."""
        outermost: Mask = np.ones(len(self.parent), np.bool_)
        row = np.flatnonzero(self.parent >= 0)
        around = self.parent[row]
        while len(row):
            same = label[around] == label[row]
            outermost[row[same]] = False
            around = self.parent[around]
            goes_on = ~same & (around >= 0)
            row, around = row[goes_on], around[goes_on]
        return outermost


def _operator_calls(linked: LinkedTrace) -> OperatorCalls:
    ops = linked.trace.cpu_op
    is_operator = ~linked.named(ops, lambda name: _RANGE.match(name) is not None)
    operator_at = nearest(linked.operators.parent, is_operator)
    parent = take_or_absent(operator_at, linked.operators.parent)
    of_work = take_or_absent(operator_at, linked.operator)
    known = of_work >= 0
    device_self_ns = summed(of_work[known], linked.work.duration_ns[known], len(ops))
    work_total = with_children(np.bincount(of_work[known], minlength=len(ops)).astype(np.int64), parent)
    uploads = _uploads(linked, of_work[known], known, work_total, parent)
    return OperatorCalls(
        is_operator=is_operator,
        phase=operator_phases(linked, uploads),
        parent=parent,
        host_self_ns=exclusive_ns(ops.start_ns, ops.end_ns, np.where(is_operator, parent, ABSENT)),
        operator_of_work=of_work,
        device_self_ns=device_self_ns,
        device_total_ns=with_children(device_self_ns, parent),
        work_total=work_total,
        uploads=uploads,
    )


def _uploads(linked: LinkedTrace, of_work: Rows, known: Mask, work_total: Int64, parent: Rows) -> Mask:
    work = linked.work
    is_upload = ~linked.is_kernel[known] & linked.named(work, lambda name: _UPLOAD.search(name) is not None)[known]
    copies = with_children(np.bincount(of_work[is_upload], minlength=len(parent)).astype(np.int64), parent)
    uploads: Mask = nearest(parent, (copies > 0) & (copies == work_total)) > ABSENT
    return uploads


def with_children(own: Int64, parent: Rows) -> Int64:
    """Each row's value and those of all rows inside it.

    Args:
        own: A value for each of n rows.
        parent: Row around each one, :data:`ABSENT` if there is none.

    Returns:
        n sums.
    """
    total = own.copy()
    row = np.flatnonzero(own)
    carried = own[row]
    while len(row):
        outer = parent[row]
        row, carried = outer[outer >= 0], carried[outer >= 0]
        if len(row):
            total += summed(row, carried, len(total))
    return total


operator_calls = CachedJoin(_operator_calls)
"""The columns of a trace's operators."""
