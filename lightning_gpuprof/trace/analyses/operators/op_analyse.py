"""What each named operator did, per phase and input shapes, on host and device."""

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

import msgspec
import numpy as np

from lightning_gpuprof.errors import ArgumentError, TraceError
from lightning_gpuprof.model.run_folders import TRACE_ENDING
from lightning_gpuprof.model.trace.operators import OPERATOR_PHASES, OperatorAnalysis
from lightning_gpuprof.trace.analyses.joins.operator_calls import operator_calls
from lightning_gpuprof.trace.analyses.operators.operator_groups import CallGroups, grouped, shape_groups
from lightning_gpuprof.trace.analyses.operators.operators import type_of
from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.reader import Trace
from lightning_gpuprof.trace.tables import Rows, distinct

_NEAREST = 5


def op_analyse(linked: LinkedTrace, names: str | Sequence[str]) -> list[OperatorAnalysis]:
    """What operators did, one entry per operator, side, phase and shape of inputs.

    Args:
        linked: The trace.
        names: One or more operators, as the trace names them (``aten::mm``) or without the namespace (``mm``, which is
            each operator of that name in any namespace).

    Returns:
        In the order of the names; of each, those with the most device time, then host time, first. Each host entry is
        followed by the device entry of the same calls if they launched device work. A name that is given twice counts
        once.

    Raises:
        ArgumentError: No name is given, or no operator of the trace has one of the names. It is a ``ValueError``.
    """
    asked = [names] if isinstance(names, str) else list(names)
    if not asked:
        raise ArgumentError("names", names, "name at least one operator")
    ops = linked.trace.cpu_op
    is_operator = operator_calls(linked).is_operator
    present = {linked.trace.names[number]: number for number in distinct(ops.name[is_operator]).tolist()}
    of_type: dict[str, list[int]] = {}
    for name, number in present.items():
        of_type.setdefault(type_of(name), []).append(number)
    numbers: dict[int, None] = {}
    for name in asked:
        found = [present[name]] if name in present else of_type.get(name) if isinstance(name, str) else None
        if not found:
            raise _unknown_name(name, [*present, *of_type])
        numbers.update(dict.fromkeys(found))
    return [
        entry
        for number in numbers
        for entry in _analyses_of(linked, np.flatnonzero((ops.name == number) & is_operator))
    ]


def op_analyse_window(folder: Path | None, names: str | Sequence[str], window: int) -> str:
    """What :func:`op_analyse` finds in a window of a run, as JSON.

    Args:
        folder: Of the run; None if there was none.
        names: Of operators.
        window: Which of the windows that have a trace, counted as Python's sequences are.

    Returns:
        An array with one object for each of its entries, in the same order.

    Raises:
        TraceError: There is no such trace, or it cannot be read.
        ArgumentError: No operator has one of the names.
    """
    traces = [] if folder is None else sorted(folder.glob(f"*{TRACE_ENDING}"))
    if not traces:
        raise TraceError(f"{folder}: no trace found. Record one: GpuProfiler(windows=100), with trace=True")
    try:
        path = traces[window]
    except IndexError:
        raise TraceError(f"window must be the number of one of {len(traces)} traces, from 0, got {window}") from None
    return msgspec.json.encode(op_analyse(LinkedTrace(Trace.read(path)), names)).decode()


def _unknown_name(name: object, known: Sequence[str]) -> ArgumentError:
    if not known:
        return ArgumentError("names", name, "name operators in the trace", "The trace has no operators.")
    lower = {text.lower(): text for text in known}
    text = str(name).lower()
    near = [lower[one] for one in get_close_matches(text, lower, _NEAREST, 0.5)]
    near += [one for one in known if text in one.lower() and one not in near] if text else []
    hint = f"{'Nearest' if near else 'Some'} in the trace: {', '.join((near or known)[:_NEAREST])}."
    return ArgumentError("names", name, "name operators in the trace", hint)


def _analyses_of(linked: LinkedTrace, rows: Rows) -> list[OperatorAnalysis]:
    ops = linked.trace.cpu_op
    without = rows[ops.inputs[rows] < 0]
    found = shape_groups(linked, rows)
    plain = grouped(linked, without, ops.name)
    parts: list[tuple[CallGroups, int, str | None, str | None, float | None, float | None]] = [
        (plain, row, None, None, None, None) for row in range(len(plain.count))
    ]
    if found is not None:
        parts += [
            (found.groups, row, found.shapes[row], found.dtypes[row], found.flops_per_call[row], found.flops_per_s[row])
            for row in range(len(found.groups.count))
        ]
    parts.sort(key=lambda part: (-int(part[0].device_total_ns[part[1]]), -int(part[0].host_total_ns[part[1]])))
    entries: list[OperatorAnalysis] = []
    for groups, row, shape, dtype, flops_per_call, flops_per_s in parts:
        calls, work = int(groups.count[row]), int(groups.work[row])
        host_us, device_us = int(groups.host_total_ns[row]) / 1000, int(groups.device_total_ns[row]) / 1000
        host = OperatorAnalysis(
            side="host",
            operator=linked.trace.names[groups.name[row]],
            phase=OPERATOR_PHASES[groups.phase[row]],
            input_shape=shape,
            dtype=dtype,
            occurrences=calls,
            total_us=host_us,
            average_us=host_us / calls,
            device_total_us=device_us if work else None,
            device_average_us=device_us / calls if work else None,
            flops_per_call=flops_per_call,
            flops_per_s=flops_per_s,
        )
        entries.append(host)
        if work:
            on_device = {"occurrences": work, "total_us": device_us, "average_us": device_us / work}
            entries.append(msgspec.structs.replace(host, side="device", **on_device))
    return entries
