"""What the operators did: by type, in detail, and by input shapes."""

from __future__ import annotations

from fnmatch import fnmatchcase

import numpy as np

from lightning_gpuprof.model.trace.operators import (
    OPERATOR_PHASES,
    OperatorDetail,
    Operators,
    OperatorShapes,
    OperatorType,
)
from lightning_gpuprof.trace.analyses.joins.operator_calls import OperatorCalls, operator_calls
from lightning_gpuprof.trace.analyses.operators.operator_groups import CallGroups, grouped, shape_groups
from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.tables import Int32, Int64, Rows

SHAPE_ROWS = 1000
"""Rows of the table by input shape, unless more are asked for: inputs of many lengths make tens of thousands."""


def operators(linked: LinkedTrace, *, name: str = "", most_shapes: int = SHAPE_ROWS) -> Operators:
    """What the operators of a window did.

    Args:
        linked: The trace.
        name: Only operators whose name holds this text, in any case; with ``*``, ``?`` or ``[`` in it, those whose
            whole name fits it as a pattern of file names does. Empty for all.
        most_shapes: Most rows of the table by input shape.

    Returns:
        Device fields are None if the trace has no device work. Steps, fetches and other named ranges, which some
        versions of torch write among the operators, are none.
    """
    calls = operator_calls(linked)
    ops, of_work = linked.trace.cpu_op, calls.operator_of_work
    has_device = len(linked.work) > 0
    total_host_ns = int(calls.host_self_ns[calls.is_operator].sum())
    total_device_ns = int(linked.work.duration_ns.sum())
    chosen = calls.is_operator
    if name:
        chosen = chosen & linked.named(ops, lambda text: matches_filter(text, name))
    rows = np.flatnonzero(chosen)
    shapes, left_out = _shapes(linked, rows, most_shapes) or (None, 0)
    return Operators(
        filter=name,
        calls=int(calls.is_operator.sum()),
        host_self_us=total_host_ns / 1000,
        device_us=total_device_ns / 1000 if has_device else None,
        attributed_device_us=int(linked.work.duration_ns[of_work >= 0].sum()) / 1000 if has_device else None,
        types=_types(linked, calls, rows, total_host_ns, total_device_ns),
        operators=_details(linked, rows),
        shapes=shapes,
        shapes_left_out=left_out,
    )


def matches_filter(operator: str, wanted: str) -> bool:
    """Whether an operator's name is what a filter asks for; see :func:`operators`.

    Args:
        operator: Such as ``aten::mm``.
        wanted: The filter.
    """
    if any(sign in wanted for sign in "*?["):
        return fnmatchcase(operator.lower(), wanted.lower())
    return wanted.lower() in operator.lower()


def type_of(operator: str) -> str:
    """The name of an operator without its namespace.

    ``mm`` of ``aten::mm``; ``AddmmBackward0`` of ``autograd::engine::evaluate_function: AddmmBackward0``. Names that
    are sentences, as those of named ranges, stay.
    """
    name = operator.rsplit(": ", 1)[-1] if operator.startswith("autograd::engine::") else operator
    before, _, after = name.rpartition("::")
    return name if not after or " " in name or "<" in before else after


def _types(
    linked: LinkedTrace, calls: OperatorCalls, rows: Rows, total_host_ns: int, total_device_ns: int
) -> tuple[OperatorType, ...]:
    names = linked.trace.names
    name = linked.trace.cpu_op.name[rows]
    count = np.bincount(name, minlength=len(names))
    host_ns = _sums_by(name, calls.host_self_ns[rows], len(names))
    device_ns = _sums_by(name, calls.device_self_ns[rows], len(names))
    sums: dict[str, tuple[int, int, int]] = {}
    for number in np.flatnonzero(count).tolist():
        kind = type_of(names[number])
        before = sums.get(kind, (0, 0, 0))
        own = (int(count[number]), int(host_ns[number]), int(device_ns[number]))
        sums[kind] = (before[0] + own[0], before[1] + own[1], before[2] + own[2])
    has_device = len(linked.work) > 0
    return tuple(
        OperatorType(
            type=kind,
            occurrences=occurrences,
            host_self_us=host / 1000,
            host_average_us=host / occurrences / 1000,
            host_ratio=host / total_host_ns if total_host_ns else None,
            device_self_us=device / 1000 if has_device else None,
            device_average_us=device / occurrences / 1000 if has_device else None,
            device_ratio=device / total_device_ns if total_device_ns else None,
        )
        for kind, (occurrences, host, device) in sorted(
            sums.items(), key=lambda item: (-item[1][2], -item[1][1], item[0])
        )
    )


def _sums_by(label: Int32, values: Int64, count: int) -> Int64:
    # float64 sums of whole nanoseconds are exact up to 2**53 ns, which is 104 days
    return np.bincount(label, weights=values, minlength=count).astype(np.int64)


def _details(linked: LinkedTrace, rows: Rows) -> tuple[OperatorDetail, ...]:
    groups = grouped(linked, rows, linked.trace.cpu_op.name)
    has_device = len(linked.work) > 0
    device = groups.device_total_ns if has_device else None
    order = _order(linked, groups, groups.device_self_ns if has_device else groups.host_self_ns)
    return tuple(
        OperatorDetail(
            operator=linked.trace.names[groups.name[row]],
            phase=OPERATOR_PHASES[groups.phase[row]],
            occurrences=int(groups.count[row]),
            host_total_us=int(groups.host_total_ns[row]) / 1000,
            host_self_us=int(groups.host_self_ns[row]) / 1000,
            host_average_us=int(groups.host_total_ns[row]) / int(groups.count[row]) / 1000,
            device_total_us=None if device is None else int(device[row]) / 1000,
            device_self_us=int(groups.device_self_ns[row]) / 1000 if has_device else None,
            device_average_us=None if device is None else int(device[row]) / int(groups.count[row]) / 1000,
            device_work=int(groups.work[row]),
        )
        for row in order
    )


def _shapes(linked: LinkedTrace, rows: Rows, most: int) -> tuple[tuple[OperatorShapes, ...], int] | None:
    """The largest rows, and how many there are beside them."""
    found = shape_groups(linked, rows)
    if found is None:
        return None
    groups, has_device = found.groups, len(linked.work) > 0
    order = _order(linked, groups, groups.device_self_ns if has_device else groups.host_self_ns)
    return tuple(
        OperatorShapes(
            operator=linked.trace.names[groups.name[row]],
            phase=OPERATOR_PHASES[groups.phase[row]],
            input_shape=found.shapes[row],
            dtype=found.dtypes[row],
            occurrences=int(groups.count[row]),
            host_total_us=int(groups.host_total_ns[row]) / 1000,
            host_self_us=int(groups.host_self_ns[row]) / 1000,
            host_average_us=int(groups.host_total_ns[row]) / int(groups.count[row]) / 1000,
            device_total_us=int(groups.device_total_ns[row]) / 1000 if has_device else None,
            device_self_us=int(groups.device_self_ns[row]) / 1000 if has_device else None,
            device_average_us=int(groups.device_total_ns[row]) / int(groups.count[row]) / 1000 if has_device else None,
            flops_per_call=found.flops_per_call[row],
            flops_per_s=found.flops_per_s[row],
        )
        for row in order[:most]
    ), max(len(order) - most, 0)


def _order(linked: LinkedTrace, groups: CallGroups, by: Int64) -> list[int]:
    names = linked.trace.names
    return sorted(
        range(len(by)), key=lambda row: (-int(by[row]), -int(groups.host_self_ns[row]), names[groups.name[row]], row)
    )
