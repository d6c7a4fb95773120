"""What the kernels of a window are flows in, tables of classes, types, fill and activity for people flow out."""

from __future__ import annotations

from lightning_gpuprof.model.trace.kernels import ActivityRow, KernelFacts, KernelRow
from lightning_gpuprof.sinks import numbers, plain
from lightning_gpuprof.sinks.tables import Cell, Column, Table, of_first_rows
from lightning_gpuprof.sinks.window_tables import kernel_text

ROWS = 20
"""Rows of a table that is drawn, unless another number is asked for."""

_NAME = 60
_SHARE = "of the time of all kernels; the shares sum to 100 %"
_EFFICIENCY = (
    "est. SM efficiency: the least of 1 and (blocks of the grid / multiprocessors), weighted by time; "
    "an estimate from how kernels were launched, not a measurement"
)
_OCCUPANCY = (
    "est. occupancy: threads that a multiprocessor holds over the most that it can hold, weighted by time; "
    "an estimate from block, registers and shared memory"
)
_WAVES = "blocks over the blocks that the whole device holds at a time"
_NO_KERNEL = "The trace holds no kernel."
_TENSOR_CORES = {"yes": "yes", "no": "no", "unknown": "unknown", None: ""}


def class_table(found: KernelFacts) -> Table:
    """Kernels by what they do."""
    return Table(
        title="Kernels by class",
        columns=(
            Column(title="class", term="by the name of the kernel and of the operator that launched it"),
            Column(title="", bar=True),
            Column(title="count", numeric=True),
            Column(title="total", unit="ms", numeric=True),
            Column(title="share", term=_SHARE, numeric=True),
            Column(title="average", unit="µs", numeric=True),
            Column(title="est. SM eff.", term=_EFFICIENCY, numeric=True),
            Column(title="est. occ.", term=_OCCUPANCY, numeric=True),
        ),
        rows=tuple(
            (
                Cell(text=row.kernel_class),
                Cell(text="", ratio=row.share_ratio, key="forward"),
                Cell(text=numbers.count(row.count)),
                Cell(text=numbers.fixed(row.total_us / 1e3)),
                Cell(text=numbers.percent(row.share_ratio)),
                Cell(text=numbers.fixed(row.average_us)),
                Cell(text=numbers.percent(row.est_sm_efficiency_ratio)),
                Cell(text=numbers.percent(row.est_occupancy_ratio)),
            )
            for row in found.classes
        ),
        absent=_NO_KERNEL,
    )


def dtype_table(found: KernelFacts) -> Table:
    """Kernels by the type of their inputs."""
    matrices = "gemm, convolution and attention kernels without their helpers"
    return Table(
        title="Kernels by type of their inputs",
        columns=(
            Column(title="type", term="as far as the kernel's name tells"),
            Column(title="", bar=True),
            Column(title="count", numeric=True),
            Column(title="total", unit="ms", numeric=True),
            Column(title="share", term=_SHARE, numeric=True),
            Column(title="matrix work", unit="ms", term=matrices, numeric=True),
            Column(title="share of it", term=f"of the time of {matrices}", numeric=True),
        ),
        rows=tuple(
            (
                Cell(text=row.dtype or "not told by the name"),
                Cell(text="", ratio=row.share_ratio, key="forward"),
                Cell(text=numbers.count(row.count)),
                Cell(text=numbers.fixed(row.total_us / 1e3)),
                Cell(text=numbers.percent(row.share_ratio)),
                Cell(text=numbers.fixed(row.matrix_us / 1e3)),
                Cell(text=numbers.percent(row.matrix_share_ratio)),
            )
            for row in found.dtypes
        ),
        absent=_NO_KERNEL,
    )


def tensor_core_table(found: KernelFacts) -> Table:
    """How much of the matrix work ran on tensor cores, and the largest kernels that did not."""
    use = found.tensor_cores
    rows: list[tuple[Cell, ...]] = []
    if use is not None and use.matrix_us:
        no = "no: this device has none" if use.available is False else "no: the name proves other units"
        unsuited = "  of these: matrix x vector or single channels, no work for them"
        shown: list[tuple[str, float]] = [("yes", use.yes_us), (no, use.no_us)]
        shown += [(unsuited, use.unsuited_us)] if use.unsuited_us else []
        shown += [(f"  {kernel_text.short(row.name, 60)}", row.total_us) for row in use.largest_no]
        shown += [("unknown: the name does not tell", use.unknown_us)]
        rows = [
            (
                Cell(text=what),
                Cell(text=numbers.fixed(time_us / 1e3)),
                Cell(text=numbers.percent(time_us / use.matrix_us)),
            )
            for what, time_us in shown
        ]
    return Table(
        title="Tensor cores (AMD: matrix cores)",
        columns=(
            Column(title="used", term="kernels that multiply matrices; indented rows are part of the row above"),
            Column(title="time", unit="ms", numeric=True),
            Column(title="share", term="of the time of kernels that multiply matrices", numeric=True),
        ),
        rows=tuple(rows),
        absent="Tensor cores: no kernel is known to multiply matrices.",
    )


def fill_table(found: KernelFacts) -> Table:
    """How far kernels fill the device."""
    fill = found.fill
    tail = None if fill.tail_us is None else fill.tail_us / 1e3
    running = "while a kernel runs, weighted by time"
    window = "of the device's window: idle time is 0, kernels at the same time add up"
    if found.count and fill.est_sm_efficiency_of_window_ratio is None:
        window = "not given: for too much of the kernel time it is not known"
    lines = (
        ("est. SM efficiency of kernels", fill.est_sm_efficiency_ratio, fill.est_sm_efficiency_known_ratio, running),
        ("est. SM efficiency of the window", fill.est_sm_efficiency_of_window_ratio, None, window),
        ("est. occupancy of kernels", fill.est_occupancy_ratio, fill.est_occupancy_known_ratio, running),
    )
    rows = [
        (
            Cell(text=what, term=_EFFICIENCY if "SM" in what else _OCCUPANCY),
            Cell(text=numbers.percent(value)),
            Cell(text=numbers.percent(known)),
            Cell(text=how),
        )
        for what, value, known, how in lines
    ]
    rows.append(
        (
            Cell(text="tails of last waves", term="a wave is as many blocks as the device holds at a time"),
            Cell(text=numbers.ABSENT if tail is None else f"{numbers.fixed(tail)} ms"),
            Cell(text=numbers.percent(fill.waves_known_ratio)),
            Cell(text="lost to last waves that are not full, if all blocks take equally long"),
        )
    )
    return Table(
        title="How far kernels fill the device (estimates from launch geometry)",
        columns=(
            Column(title="estimate"),
            Column(title="value", numeric=True),
            Column(title="known for", term="share of kernel time for which the trace says enough", numeric=True),
            Column(title="what"),
        ),
        rows=tuple(rows) if found.count else (),
        absent=_NO_KERNEL,
    )


def kernel_table(found: KernelFacts, limit: int | None = ROWS) -> Table:
    """Kernels by name.

    Args:
        found: What the kernels are.
        limit: Most rows, None for all; likewise below.
    """

    def cells(row: KernelRow) -> tuple[Cell, ...]:
        return (
            kernel_text.cell(row.name, _NAME),
            Cell(text=row.kernel_class),
            Cell(text=row.dtype or ""),
            Cell(text=_TENSOR_CORES[row.tensor_cores]),
            Cell(text=numbers.count(row.count)),
            Cell(text=numbers.fixed(row.total_us / 1e3)),
            Cell(text=numbers.percent(row.share_ratio)),
            Cell(text=numbers.fixed(row.average_us)),
            Cell(text=numbers.percent(row.est_sm_efficiency_ratio)),
            Cell(text=numbers.percent(row.est_occupancy_ratio)),
        )

    return Table(
        title=of_first_rows("Kernels", len(found.kernels), limit),
        columns=(
            Column(title="kernel"),
            Column(title="class"),
            Column(title="type", term="of its inputs, as far as the name tells"),
            Column(title="TC", term="tensor cores; empty: multiplies no matrices"),
            Column(title="count", numeric=True),
            Column(title="total", unit="ms", numeric=True),
            Column(title="share", term=_SHARE, numeric=True),
            Column(title="avg", unit="µs", numeric=True),
            Column(title="SM eff.", term=_EFFICIENCY, numeric=True),
            Column(title="occ.", term=_OCCUPANCY, numeric=True),
        ),
        rows=tuple(cells(row) for row in found.kernels[:limit]),
        absent=_NO_KERNEL,
    )


def activity_table(found: KernelFacts, limit: int | None = ROWS) -> Table:
    """Kernels by operator, stream, grid and block."""
    several = len({row.device for row in found.activity}) > 1

    def cells(row: ActivityRow) -> tuple[Cell, ...]:
        stream = numbers.ABSENT if row.stream is None else str(row.stream)
        return (
            kernel_text.cell(row.name, 40),
            Cell(text=numbers.ABSENT if row.operator is None else plain.name(row.operator, 32)),
            Cell(text=f"{plain.name(row.device, 16)}: {stream}" if several else stream),
            Cell(text=_three(row.grid)),
            Cell(text=_three(row.block)),
            Cell(text=numbers.count(row.count)),
            Cell(text=numbers.fixed(row.total_us)),
            Cell(text=numbers.fixed(row.average_us)),
            Cell(text=numbers.fixed(row.min_us)),
            Cell(text=numbers.fixed(row.max_us)),
            Cell(text=numbers.significant(row.waves)),
        )

    return Table(
        title=of_first_rows("Kernel activity", found.activity_rows, limit),
        columns=(
            Column(title="kernel"),
            Column(title="operator", term="the innermost operator that launched it"),
            Column(title="device: stream" if several else "stream", numeric=True),
            Column(title="grid", term="blocks in x, y and z", numeric=True),
            Column(title="block", term="threads in x, y and z", numeric=True),
            Column(title="count", numeric=True),
            Column(title="total", unit="µs", numeric=True),
            Column(title="avg", unit="µs", numeric=True),
            Column(title="min", unit="µs", numeric=True),
            Column(title="max", unit="µs", numeric=True),
            Column(title="waves", term=_WAVES, numeric=True),
        ),
        rows=tuple(cells(row) for row in found.activity[:limit]),
        absent=_NO_KERNEL,
    )


def _three(sizes: tuple[int, int, int] | None) -> str:
    return numbers.ABSENT if sizes is None else " ".join(str(size) for size in sizes)
