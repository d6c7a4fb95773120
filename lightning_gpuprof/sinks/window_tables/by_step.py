"""Tables of operators and kernels with a column for each step."""

from collections.abc import Sequence
from functools import partial

from lightning_gpuprof.model.trace.by_step import ByStep, StepTimes
from lightning_gpuprof.sinks import plain
from lightning_gpuprof.sinks.tables import COUNT, NUMBER, Column, Table, name
from lightning_gpuprof.sinks.window_tables import short_names
from lightning_gpuprof.sinks.window_tables.operators import NAME_CELLS

MAX_STEPS = 10
ROWS = 10
_STEP_CELLS = 12


def operator_step_table(found: ByStep, limit: int = ROWS) -> Table:
    """Host time of each operator in each step, that of nested operators excluded.

    Args:
        found: Times by step.
        limit: Most rows.

    Returns:
        Most time first; a column for each of the first :data:`MAX_STEPS` steps, in ms, and the calls in all steps.
    """
    named: Column[StepTimes] = Column("operator", lambda row: row.name, name(NAME_CELLS))
    return _table(
        "Operators by step: host time of their own in ms", found, found.operators, found.operators_count, named, limit
    )


def kernel_step_table(found: ByStep, limit: int = ROWS) -> Table:
    """Device time of each kernel, copy and memset in each step.

    Args:
        found: Times by step.
        limit: Most rows.

    Returns:
        Most time first; columns as of :func:`operator_step_table`.
    """
    named: Column[StepTimes] = Column(
        "kernel",
        lambda row: short_names.work(row.name, NAME_CELLS),
        hover=lambda row: short_names.whole(row.name, NAME_CELLS),
    )
    return _table("Kernels by step: device time in ms", found, found.kernels, found.kernels_count, named, limit)


def _table(
    title: str, found: ByStep, rows: Sequence[StepTimes], count: int, named: Column[StepTimes], limit: int
) -> Table:
    shown = range(min(MAX_STEPS, len(found.steps)))
    if len(found.steps) > MAX_STEPS:
        title = f"{title} (first {MAX_STEPS} of {len(found.steps)} steps)"
    columns = [Column(_label(found.steps[step]), partial(_time, step), NUMBER, is_step=True) for step in shown]
    calls: Column[StepTimes] = Column("calls", lambda row: sum(row.calls), COUNT, help="in all steps")
    absent = "None ran in these steps." if found.steps else "The window has no steps."
    return Table.of(title, rows, named, *columns, calls, absent=absent, limit=limit, all_rows=count)


def _label(step: str) -> str:
    return f"step {plain.name(step.rpartition('#')[2], _STEP_CELLS)}"


def _time(step: int, row: StepTimes) -> float:
    return row.times_us[step] / 1000
