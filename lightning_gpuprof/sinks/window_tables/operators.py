"""What the operators of a window did flows in, tables by type, in detail and by shape of inputs flow out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from lightning_gpuprof.model.trace.operators import OperatorDetail, Operators, OperatorShapes, OperatorType
from lightning_gpuprof.sinks import numbers, plain
from lightning_gpuprof.sinks.tables import Cell, Column, Table, of_first_rows
from lightning_gpuprof.sinks.window_tables.flops import tflops_per_s

TOP = 20
NAME_CELLS = 32
SHAPE_CELLS = 60

INFLATED = "profiling makes host times longer, those of short operators most: compare them, do not add them up"
_SUMMED = "sum of the durations of kernels, copies and memsets, also where they ran side by side"
_PHASE = "what the operator was run for; optimizer holds the clearing and clipping of gradients"
_OCCURRENCES = "calls in the window"


T = TypeVar("T")


def operator_types_by_device_time(operators: Operators, limit: int = TOP) -> Table:
    """Types of operators with the most device time; the rest in one row.

    Args:
        operators: The operators.
        limit: Most types that are named.
    """
    rows = [row for row in operators.types if row.device_self_us]
    total = operators.device_us or 0.0
    cells = [
        _type_cells(row, row.device_self_us or 0.0, row.device_average_us, row.device_ratio) for row in rows[:limit]
    ]
    rest = rows[limit:]
    if rest:
        spent = sum(row.device_self_us or 0.0 for row in rest)
        cells.append(_rest_cells(rest, spent, total))
    outside = total - (operators.attributed_device_us or 0.0)
    if rows and outside > 0 and not operators.filter:
        cells.append(
            (
                Cell(text="outside operators", term="device work that was launched before the window, or by none"),
                Cell(text="", ratio=outside / total),
                Cell(text=""),
                Cell(text=numbers.fixed(outside / 1000)),
                Cell(text=""),
                Cell(text=numbers.percent(outside / total)),
            )
        )
    return Table(
        title="Operator types by device time",
        columns=_type_columns("device", f"{_SUMMED}; only what operators of the type launched themselves"),
        rows=tuple(cells),
        absent=_absent(operators, on_device=True),
        foot=len(cells) - len(rows[:limit]),
    )


def _absent(operators: Operators, *, on_device: bool = False, with_shapes: bool = False) -> str:
    if not operators.calls:
        return "The window holds no operators."
    if with_shapes and operators.shapes is None:
        return "The shapes of inputs were not recorded (record_shapes)."
    what = f"No operator whose name fits {operators.filter!r}" if operators.filter else "No operator of the window"
    if on_device:
        return f"{what} launched device work."
    return f"{what} has recorded inputs." if with_shapes else f"{what} is in the window."


def operator_types_by_host_time(operators: Operators, limit: int = TOP) -> Table:
    """Types of operators with the most host time of their own; the rest in one row.

    Args:
        operators: The operators.
        limit: Most types that are named.
    """
    rows = sorted(operators.types, key=lambda row: -row.host_self_us)
    cells = [_type_cells(row, row.host_self_us, row.host_average_us, row.host_ratio) for row in rows[:limit]]
    rest = rows[limit:]
    if rest:
        cells.append(_rest_cells(rest, sum(row.host_self_us for row in rest), operators.host_self_us))
    return Table(
        title="Operator types by host time",
        columns=_type_columns("host", f"without the operators inside; {INFLATED}"),
        rows=tuple(cells),
        absent=_absent(operators),
        foot=len(cells) - len(rows[:limit]),
    )


def _type_columns(side: str, term: str) -> tuple[Column, ...]:
    of = "all device work of the window" if side == "device" else "all operators"
    return (
        Column(title="type", term="the operator's name without its namespace"),
        Column(title="", bar=True),
        Column(title="calls", term=_OCCURRENCES, numeric=True),
        Column(title=side, unit="ms", term=term, numeric=True),
        Column(title="average", unit="µs", term="per call", numeric=True),
        Column(title="share", term=f"of the time of {of}", numeric=True),
    )


def _type_cells(row: OperatorType, spent_us: float, average_us: float | None, ratio: float | None) -> tuple[Cell, ...]:
    return (
        Cell(text=plain.name(row.type, NAME_CELLS)),
        Cell(text="", ratio=ratio or 0.0),
        Cell(text=numbers.count(row.occurrences)),
        Cell(text=numbers.fixed(spent_us / 1000)),
        Cell(text=numbers.fixed(average_us)),
        Cell(text=numbers.percent(ratio)),
    )


def _rest_cells(rest: Sequence[OperatorType], spent_us: float, total_us: float) -> tuple[Cell, ...]:
    ratio = spent_us / total_us if total_us else None
    return (
        Cell(text=f"{numbers.count(len(rest))} more"),
        Cell(text="", ratio=ratio or 0.0),
        Cell(text=numbers.count(sum(row.occurrences for row in rest))),
        Cell(text=numbers.fixed(spent_us / 1000)),
        Cell(text=""),
        Cell(text=numbers.percent(ratio)),
    )


def operators_by_device_time(operators: Operators, limit: int = TOP) -> Table:
    """Operators with the most device time of their own.

    Args:
        operators: The operators.
        limit: Most rows.
    """
    total = operators.device_us
    rows = [row for row in operators.operators if row.device_total_us]
    return Table(
        title=of_first_rows("Operators by device time", len(rows), limit),
        columns=(
            Column(title="operator"),
            Column(title="phase", term=_PHASE),
            Column(title="calls", term=_OCCURRENCES, numeric=True),
            Column(title="self", unit="ms", term=f"{_SUMMED}; launched by the operator itself", numeric=True),
            Column(title="total", unit="ms", term="with what operators inside it launched", numeric=True),
            Column(title="average", unit="µs", term="total per call", numeric=True),
            Column(title="share", term="self time, of all device work of the window", numeric=True),
            Column(title="launched", term="kernels, copies and memsets, also by operators inside", numeric=True),
        ),
        rows=tuple(
            (
                *_name_cells(row),
                Cell(text=numbers.fixed((row.device_self_us or 0.0) / 1000)),
                Cell(text=numbers.fixed((row.device_total_us or 0.0) / 1000)),
                Cell(text=numbers.fixed(row.device_average_us)),
                Cell(text=numbers.percent((row.device_self_us or 0.0) / total if total else None)),
                Cell(text=numbers.count(row.device_work)),
            )
            for row in rows[:limit]
        ),
        absent=_absent(operators, on_device=True),
    )


def operators_by_host_time(operators: Operators, limit: int = TOP) -> Table:
    """Operators with the most host time of their own.

    Args:
        operators: The operators.
        limit: Most rows.
    """
    total = operators.host_self_us
    return Table(
        title=of_first_rows("Operators by host time", len(operators.operators), limit),
        columns=(
            Column(title="operator"),
            Column(title="phase", term=_PHASE),
            Column(title="calls", term=_OCCURRENCES, numeric=True),
            Column(title="self", unit="ms", term=f"without the operators inside; {INFLATED}", numeric=True),
            Column(title="total", unit="ms", term="with the operators inside", numeric=True),
            Column(title="average", unit="µs", term="total per call", numeric=True),
            Column(title="share", term="self time, of all operators of the window", numeric=True),
        ),
        rows=tuple(
            (
                *_name_cells(row),
                Cell(text=numbers.fixed(row.host_self_us / 1000)),
                Cell(text=numbers.fixed(row.host_total_us / 1000)),
                Cell(text=numbers.fixed(row.host_average_us)),
                Cell(text=numbers.percent(row.host_self_us / total if total else None)),
            )
            for row in sorted(operators.operators, key=lambda row: -row.host_self_us)[:limit]
        ),
        absent=_absent(operators),
    )


def _name_cells(row: OperatorDetail) -> tuple[Cell, ...]:
    return (
        Cell(text=plain.name(row.operator, NAME_CELLS)),
        Cell(text=row.phase),
        Cell(text=numbers.count(row.occurrences)),
    )


def operators_by_shape(operators: Operators, limit: int = TOP) -> Table:
    """Operators by shape of their inputs, those with the most time of their own: on the device, else on the host.

    Args:
        operators: The operators.
        limit: Most rows.
    """
    on_device = operators.device_us is not None
    return Table(
        title=f"Operators by shape of inputs, by {'device' if on_device else 'host'} time",
        columns=(
            Column(title="operator"),
            Column(title="inputs", term="shapes of the tensors; () has no dimensions, a list is in brackets"),
            Column(title="type", term="of the tensors' elements"),
            Column(title="phase", term=_PHASE),
            Column(title="calls", term=_OCCURRENCES, numeric=True),
            Column(
                title="total",
                unit="ms",
                term=f"{_SUMMED}; also by operators inside" if on_device else f"with the operators inside; {INFLATED}",
                numeric=True,
            ),
            Column(title="average", unit="µs", term="per call", numeric=True),
            Column(
                title="TFLOP/s",
                term="lower bound of FLOPs by the operator's formula, over its device time; a multiply-add counts 2",
                numeric=True,
            ),
        ),
        rows=tuple(_shape_cells(row, on_device) for row in (operators.shapes or ())[:limit]),
        absent=_absent(operators, with_shapes=True),
    )


def _shape_cells(row: OperatorShapes, on_device: bool) -> tuple[Cell, ...]:
    total_us = row.device_total_us if on_device else row.host_total_us
    return (
        Cell(text=plain.name(row.operator, NAME_CELLS)),
        Cell(text=plain.name(row.input_shape, SHAPE_CELLS)),
        Cell(text=plain.name(row.dtype, SHAPE_CELLS)),
        Cell(text=row.phase),
        Cell(text=numbers.count(row.occurrences)),
        Cell(text=numbers.fixed((total_us or 0.0) / 1000)),
        Cell(text=numbers.fixed(row.device_average_us if on_device else row.host_average_us)),
        Cell(text=tflops_per_s(row.flops_per_s)),
    )
