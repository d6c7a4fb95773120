"""Tables of a window's kernels: classes, types, fill, activity, durations and possible savings."""

from lightning_gpuprof.model import numbers
from lightning_gpuprof.model.phases import words_of
from lightning_gpuprof.model.trace.kernels import (
    NO_SAVING_TERMS,
    ActivityRow,
    DurationBucket,
    KernelFacts,
    KernelRow,
    SavingRow,
)
from lightning_gpuprof.sinks import plain
from lightning_gpuprof.sinks.tables import (
    COUNT,
    FIGURE,
    GB_PER_S,
    PERCENT,
    SIGNIFICANT,
    SIZE,
    TEXT,
    US,
    US_AS_MS,
    Column,
    Format,
    Table,
    bar,
    name,
)
from lightning_gpuprof.sinks.window_tables import short_names
from lightning_gpuprof.sinks.window_tables.short_names import ms

ROWS = 20
"""Rows of a table that is drawn, unless another number is asked for."""

_NAME = 60
_SHARE = "share of all kernel time; adds up to 100 %"
_EFFICIENCY = (
    "est. SM efficiency: min(1, blocks / multiprocessors), weighted by time; "
    "estimated from the launch geometry, not measured"
)
_OCCUPANCY = (
    "est. occupancy: resident threads per multiprocessor over the maximum, weighted by time; "
    "estimated from block size, registers and shared memory"
)
_WAVES = "blocks over the blocks that the device can run at a time"
_LOST = "lost to partly filled last waves, if all blocks take equally long"
_WAVE = "a wave is as many blocks as the device can run at a time"
_NO_KERNEL = "The trace has no kernels."


_USUAL_LIMIT: dict[str, str] = {
    "gemm": "compute",
    "convolution": "compute",
    "attention": "compute",
    "norm/reduction": "memory",
    "elementwise": "memory",
    "copy": "memory",
    "optimizer": "memory",
    "embedding": "memory",
    "communication": "communication",
}
"""NVIDIA, "GPU Performance Background User's Guide": what layers of each category are typically limited by."""
_LIMIT = "of large kernels of the class, not measured here (see roofline); small ones are limited by latency"


def class_table(found: KernelFacts) -> Table:
    """Kernels by what they do."""
    return Table.of(
        "Kernels by class",
        found.classes,
        Column(
            "class",
            lambda row: row.kernel_class,
            help="from the names of the kernel and of the operator that launched it",
        ),
        bar(lambda row: row.share_ratio, "forward"),
        Column("count", lambda row: row.count, COUNT),
        Column("total", lambda row: row.total_us, US_AS_MS),
        Column("share", lambda row: row.share_ratio, PERCENT, help=_SHARE),
        Column("average", lambda row: row.average_us, US),
        Column("est. SM eff.", lambda row: row.est_sm_efficiency_ratio, PERCENT, help=_EFFICIENCY),
        Column("est. occ.", lambda row: row.est_occupancy_ratio, PERCENT, help=_OCCUPANCY),
        Column("usual limit", lambda row: _USUAL_LIMIT.get(row.kernel_class), help=_LIMIT),
        absent=_NO_KERNEL,
    )


def dtype_table(found: KernelFacts) -> Table:
    """Kernels by the type of their inputs."""
    matrices = "gemm, convolution and attention kernels without their helpers"
    return Table.of(
        "Kernels by input type",
        found.dtypes,
        Column("type", lambda row: row.dtype or "unknown", help="as far as the kernel's name shows it"),
        bar(lambda row: row.share_ratio, "forward"),
        Column("count", lambda row: row.count, COUNT),
        Column("total", lambda row: row.total_us, US_AS_MS),
        Column("share", lambda row: row.share_ratio, PERCENT, help=_SHARE),
        Column("matrix time", lambda row: row.matrix_us, US_AS_MS, help=matrices),
        Column("of matrix time", lambda row: row.matrix_share_ratio, PERCENT, help=f"of the time of {matrices}"),
        absent=_NO_KERNEL,
    )


def tensor_core_table(found: KernelFacts) -> Table:
    """How much of the matrix time ran on tensor cores, and the largest kernels that did not."""
    use = found.tensor_cores
    rows: list[tuple[str, float]] = []
    if use is not None and use.matrix_us:
        no = "no: this device has none" if use.available is False else "no: by the kernel's name"
        rows = [("yes", use.yes_us), (no, use.no_us)]
        rows += [("  of which: matrix-vector or depthwise", use.unsuited_us)] if use.unsuited_us else []
        rows += [(f"  {short_names.short(row.name, 60)}", row.total_us) for row in use.largest_no]
        rows += [("unknown", use.unknown_us)]
    total_us = use.matrix_us if use is not None else 0.0
    return Table.of(
        "Tensor cores (AMD: matrix cores)",
        rows,
        Column("used", lambda row: row[0], help="by matrix kernels; indented rows are part of the row above"),
        Column("time", lambda row: row[1], US_AS_MS),
        Column("share", lambda row: row[1] / total_us, PERCENT, help="of the time of matrix kernels"),
        absent="Tensor cores: no kernel is known to multiply matrices.",
    )


def fill_table(found: KernelFacts) -> Table:
    """How far kernels fill the device."""
    fill = found.fill
    running = "while a kernel runs, weighted by time"
    window = "over the GPU's window: idle time counts as 0, concurrent kernels add up"
    if found.count and fill.est_sm_efficiency_of_window_ratio is None:
        window = "omitted: unknown for too much of the kernel time"
    efficiency = numbers.exact_percent(fill.est_sm_efficiency_ratio)
    of_window = numbers.exact_percent(fill.est_sm_efficiency_of_window_ratio)
    occupancy = numbers.exact_percent(fill.est_occupancy_ratio)
    rows = (
        ("est. SM efficiency of kernels", efficiency, fill.est_sm_efficiency_known_ratio, running, _EFFICIENCY),
        ("est. SM efficiency of the window", of_window, None, window, _EFFICIENCY),
        ("est. occupancy of kernels", occupancy, fill.est_occupancy_known_ratio, running, _OCCUPANCY),
        ("tails of last waves", ms(fill.tail_us), fill.waves_known_ratio, _LOST, _WAVE),
    )
    return Table.of(
        "How well kernels fill the device (estimated from launch geometry)",
        rows if found.count else (),
        Column("estimate", lambda row: row[0], hover=lambda row: row[4]),
        Column("value", lambda row: row[1], FIGURE),
        Column("known for", lambda row: row[2], PERCENT, help="share of kernel time with enough information"),
        Column("what", lambda row: row[3]),
        absent=_NO_KERNEL,
    )


def kernel_table(found: KernelFacts, limit: int | None = ROWS) -> Table:
    """Kernels by name.

    Args:
        found: What the kernels are.
        limit: Most rows, None for all.

    Returns:
        Most time first: totals in ms, averages in µs. Columns of text give way to those of Nsight Compute, if it
        measured.
    """
    kinds: list[Column[KernelRow]] = [
        Column("class", lambda row: row.kernel_class),
        Column("type", lambda row: row.dtype or "", help="of its inputs, as far as the name shows it"),
        Column("TC", lambda row: row.tensor_cores or "", help="tensor cores; empty: multiplies no matrices"),
    ]
    times: list[Column[KernelRow]] = [
        Column("count", lambda row: row.count, COUNT),
        Column("total", lambda row: row.total_us, US_AS_MS),
        Column("share", lambda row: row.share_ratio, PERCENT, help=_SHARE),
        Column("avg", lambda row: row.average_us, US),
        Column("SM eff.", lambda row: row.est_sm_efficiency_ratio, PERCENT, help=_EFFICIENCY),
    ]
    occupancy: Column[KernelRow] = Column("occ.", lambda row: row.est_occupancy_ratio, PERCENT, help=_OCCUPANCY)
    columns = [*kinds, *times, occupancy]
    if any(row.measured is not None for row in found.kernels[:limit]):
        columns = [occupancy, *_MEASURED, *times]  # a narrow terminal has no room for the last ones, nor for texts
    return Table.of(
        "Kernels",
        found.kernels,
        short_names.column(_NAME),
        *columns,
        absent=_NO_KERNEL,
        limit=limit,
    )


def _measured(title: str, field: str, format: Format, help: str) -> Column[KernelRow]:
    return Column(title, lambda row: getattr(row.measured, field, None), format, help=f"as measured by ncu: {help}")


_MEASURED = (
    _measured("ncu occ.", "occupancy_ratio", PERCENT, "resident warps over the most possible"),
    _measured("L1 hits", "l1_hit_ratio", PERCENT, "sectors found in the L1 cache"),
    _measured("L2 hits", "l2_hit_ratio", PERCENT, "sectors found in the L2 cache"),
    _measured("DRAM", "dram_bytes", SIZE, "bytes that a launch reads and writes"),
    _measured("DRAM rate", "dram_bytes_per_s", GB_PER_S, "over ncu's time of the kernel"),
)


def activity_table(found: KernelFacts) -> Table:
    """Kernels by operator, stream, grid and block."""
    several = len({row.device for row in found.activity}) > 1

    def stream(row: ActivityRow) -> str:
        shown = numbers.ABSENT if row.stream is None else str(row.stream)
        return f"{plain.name(row.device, 16)}: {shown}" if several else shown

    return Table.of(
        "Kernel activity",
        found.activity,
        short_names.column(40),
        Column("operator", lambda row: row.operator, name(32), help="the innermost operator that launched it"),
        Column("device: stream" if several else "stream", stream, FIGURE),
        Column("grid", lambda row: row.grid, short_names.THREE, help="blocks in x, y and z"),
        Column("block", lambda row: row.block, short_names.THREE, help="threads in x, y and z"),
        Column("count", lambda row: row.count, COUNT),
        Column("total", lambda row: row.total_us, US),
        Column("avg", lambda row: row.average_us, US),
        Column("min", lambda row: row.min_us, US),
        Column("max", lambda row: row.max_us, US),
        Column("waves", lambda row: row.waves, SIGNIFICANT, help=_WAVES),
        absent=_NO_KERNEL,
        limit=ROWS,
        all_rows=found.activity_rows,
    )


def origin_table(found: KernelFacts) -> Table:
    """The same rows by what launched them, and what they need of a multiprocessor."""
    return Table.of(
        "Kernel activity: resources and origin",
        found.activity,
        Column("kernel", lambda row: short_names.short(row.name, 40)),
        Column("regs", lambda row: row.registers_per_thread, COUNT, help="registers of a thread"),
        Column("shared", lambda row: row.shared_memory_bytes, SIZE, help="shared memory of a block"),
        Column("count", lambda row: row.count, COUNT),
        Column("total", lambda row: row.total_us, US),
        Column("phase", lambda row: row.phase and words_of(row.phase), help="of all these launches, if it is one"),
        Column("module", lambda row: row.module, name(32), help="of all these launches, if it is one"),
        absent=_NO_KERNEL,
        limit=ROWS,
        all_rows=found.activity_rows,
    )


def duration_table(found: KernelFacts) -> Table:
    """Kernels by their duration."""
    return Table.of(
        "Kernels by duration",
        found.durations,
        Column("duration", _range, TEXT.in_unit("µs"), help="the lower end included, the upper excluded"),
        Column("count", lambda row: row.count, COUNT),
        Column("of kernels", lambda row: row.count_ratio, PERCENT, help="share of the number of kernels"),
        bar(lambda row: row.count_ratio, "forward"),
        Column("time", lambda row: row.total_us, US_AS_MS),
        Column("of time", lambda row: row.total_ratio, PERCENT, help=_SHARE),
        absent=_NO_KERNEL,
    )


def small_kernel_table(found: KernelFacts) -> Table:
    """What small kernels and their launches cost."""
    small = found.small
    gap = "GPU idle time right before them, while the host was launching them"
    rows = (
        ("kernels", numbers.count(small.count), f"{numbers.exact_percent(small.count_ratio)} of all kernels"),
        ("their time", ms(small.total_us), f"{numbers.exact_percent(small.total_ratio)} of kernel time"),
        ("calls that launched them", ms(small.launch_call_us), "host time, inflated by tracing"),
        ("median launch call", f"{numbers.significant(small.launch_call_median_us)} µs", "host time"),
        ("launch longer than kernel", numbers.count(small.longer_launch_count), "they cannot keep a GPU busy"),
        ("launch gaps", ms(small.launch_gap_us), gap),
    )
    limit = f"{numbers.significant(small.limit_us)} µs"
    return Table.of(
        f"Kernels below {limit}",
        rows if small.count else (),
        Column("what", lambda row: row[0]),
        Column("value", lambda row: row[1], FIGURE),
        Column("", lambda row: row[2]),
        absent=f"No kernel is shorter than {limit}." if found.count else _NO_KERNEL,
    )


def saving_table(found: KernelFacts, limit: int = ROWS) -> Table:
    """Kernels by what could be saved on them at most.

    Args:
        found: The kernels.
        limit: Most rows.

    Returns:
        The largest saving first.
    """
    bound = "upper bound for this kernel alone; see why"
    return Table.of(
        "Possible savings by kernel",
        found.savings,
        Column("at most", lambda row: row.saving_us, US_AS_MS, help=bound),
        Column("time", lambda row: row.total_us, US_AS_MS, help="of these kernels"),
        Column("count", lambda row: row.count, COUNT),
        Column("class", lambda row: row.kernel_class),
        short_names.column(60),
        Column("why", _why),
        absent="No saving can be estimated for any kernel." if found.count else _NO_KERNEL,
        limit=limit,
    )


def _why(row: SavingRow) -> str:
    if row.kind == "launch gap":
        return "short, and the GPU waited for its launch: fusing saves the wait, not the kernel"
    if row.kind == "no tensor cores":
        faster = f"{row.faster_dtype} on tensor cores is at most {numbers.significant(row.peak_ratio)} times as fast"
        return f"{row.dtype} on CUDA cores: {faster}"
    filled = numbers.exact_percent(row.est_sm_efficiency_ratio)
    return f"est. SM efficiency {filled}: too few blocks for all multiprocessors"


def no_saving_table(found: KernelFacts, limit: int = ROWS) -> Table:
    """Kernels for which no saving is estimated, by reason.

    Args:
        found: The kernels.
        limit: Most rows, of which there are few.

    Returns:
        A row for each reason.
    """
    return Table.of(
        "Kernels without an estimated saving",
        found.no_savings,
        Column("reason", lambda row: row.why),
        Column("count", lambda row: row.count, COUNT),
        Column("time", lambda row: row.total_us, US_AS_MS),
        Column("share", lambda row: row.share_ratio, PERCENT, help="of the time of all kernels"),
        Column("because", lambda row: NO_SAVING_TERMS[row.why]),
        absent="Every kernel has an estimate." if found.count else _NO_KERNEL,
    )


def _range(row: DurationBucket) -> str:
    return f"{row.from_us:,.0f} and more" if row.to_us is None else f"{row.from_us:,.0f} to {row.to_us:,.0f}"
