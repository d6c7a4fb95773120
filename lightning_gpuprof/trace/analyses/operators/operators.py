"""What the operators did: by type, in detail, and by input shapes."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import numpy.typing as npt

from lightning_gpuprof.model.trace.operators import (
    OPERATOR_PHASES,
    OperatorDetail,
    Operators,
    OperatorShapes,
    OperatorType,
)
from lightning_gpuprof.trace.analyses.joins.call_places import call_places
from lightning_gpuprof.trace.analyses.joins.grouped import groups_of, rows_of
from lightning_gpuprof.trace.analyses.joins.operator_calls import OperatorCalls, operator_calls
from lightning_gpuprof.trace.analyses.operators.operator_groups import CallGroups, grouped, shape_groups
from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.tables import ABSENT, Rows, distinct, ratio, summed

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
    names, name = linked.trace.names, linked.trace.cpu_op.name[rows]
    columns = np.ones(len(rows), np.int64), calls.host_self_ns[rows], calls.device_self_ns[rows]
    count, host_ns, device_ns = (summed(name, column, len(names)).tolist() for column in columns)
    sums: dict[str, tuple[int, int, int]] = {}
    for number in distinct(name).tolist():
        kind = type_of(names[number])
        before = sums.get(kind, (0, 0, 0))
        sums[kind] = before[0] + count[number], before[1] + host_ns[number], before[2] + device_ns[number]
    has_device = len(linked.work) > 0
    return tuple(
        OperatorType(
            type=kind,
            occurrences=occurrences,
            host_self_us=host / 1000,
            host_average_us=host / occurrences / 1000,
            host_ratio=ratio(host, total_host_ns),
            device_self_us=device / 1000 if has_device else None,
            device_average_us=device / occurrences / 1000 if has_device else None,
            device_ratio=ratio(device, total_device_ns),
        )
        for kind, (occurrences, host, device) in sorted(
            sums.items(), key=lambda item: (-item[1][2], -item[1][1], item[0])
        )
    )


def _details(linked: LinkedTrace, rows: Rows) -> tuple[OperatorDetail, ...]:
    groups = grouped(linked, rows, linked.trace.cpu_op.name)
    order = _order(linked, groups)
    modules = _modules(linked, rows, groups)
    return tuple(
        rows_of(
            OperatorDetail,
            device_work=groups.work[order],
            module=[modules[row][0] for row in order],
            other_modules=[modules[row][1] for row in order],
            **_columns(linked, groups, order),
        )
    )


def _modules(linked: LinkedTrace, rows: Rows, groups: CallGroups) -> list[tuple[str | None, int]]:
    """Of each group the module with most of its self time, and how many more there are."""
    calls, places = operator_calls(linked), call_places(linked)
    forward = places.backward.forward_of_operator
    module = places.module_of_operator[np.where(forward > ABSENT, forward, np.arange(len(forward)))][rows]
    known = module > ABSENT
    group, module = groups.group[known], module[known]
    pairs = groups_of(group, module)
    spent_ns = pairs.sums((calls.device_self_ns if len(linked.work) else calls.host_self_ns)[rows][known])
    by_time = pairs.first[np.argsort(spent_ns, kind="stable")]
    most = np.full(len(groups.name), ABSENT)
    most[group[by_time]] = module[by_time]  # the last of a group, with the most time, stays
    count = np.bincount(group[by_time], minlength=len(most))
    names = places.modules.whole_names
    return [
        (names[own], number - 1) if number else (None, 0)
        for own, number in zip(most.tolist(), count.tolist(), strict=True)
    ]


def _shapes(linked: LinkedTrace, rows: Rows, most: int) -> tuple[tuple[OperatorShapes, ...], int] | None:
    """The largest rows, and how many there are beside them."""
    found = shape_groups(linked, rows)
    if found is None:
        return None
    order = _order(linked, found.groups)
    largest = rows_of(
        OperatorShapes,
        input_shape=[found.shapes[row] for row in order[:most]],
        dtype=[found.dtypes[row] for row in order[:most]],
        flops_per_call=[found.flops_per_call[row] for row in order[:most]],
        flops_per_s=[found.flops_per_s[row] for row in order[:most]],
        **_columns(linked, found.groups, order[:most]),
    )
    return tuple(largest), max(len(order) - most, 0)


def _columns(
    linked: LinkedTrace, groups: CallGroups, order: list[int]
) -> dict[str, npt.NDArray[Any] | Sequence[object]]:
    """What a row by operator and one by input shape have in common."""
    count, host_ns, device_ns = groups.count[order], groups.host_total_ns[order], groups.device_total_ns[order]
    on_device: dict[str, npt.NDArray[Any]] = {
        "device_total_us": device_ns / 1000,
        "device_self_us": groups.device_self_ns[order] / 1000,
        "device_average_us": device_ns / count / 1000,
    }
    none: list[None] = [None] * len(order)
    return {
        "operator": [linked.trace.names[name] for name in groups.name[order].tolist()],
        "phase": [OPERATOR_PHASES[phase] for phase in groups.phase[order].tolist()],
        "occurrences": count,
        "host_total_us": host_ns / 1000,
        "host_self_us": groups.host_self_ns[order] / 1000,
        "host_average_us": host_ns / count / 1000,
        **(on_device if len(linked.work) else dict.fromkeys(on_device, none)),
    }


def _order(linked: LinkedTrace, groups: CallGroups) -> list[int]:
    """By device self time, or host self time without device work, largest first."""
    names, host = linked.trace.names, groups.host_self_ns.tolist()
    by = groups.device_self_ns.tolist() if len(linked.work) else host
    return sorted(range(len(by)), key=lambda row: (-by[row], -host[row], names[groups.name[row]], row))
