"""Possible savings on the kernels of a window flow in, and what is small, tables for people flow out."""

from __future__ import annotations

from lightning_gpuprof.model.trace.kernels import NO_SAVING_TERMS, DurationBucket, KernelFacts, SavingRow
from lightning_gpuprof.sinks import numbers
from lightning_gpuprof.sinks.tables import Cell, Column, Table, of_first_rows
from lightning_gpuprof.sinks.window_tables import kernel_text

ROWS = 20
"""Rows of a table that is drawn, unless another number is asked for."""

_SHARE = "of the time of all kernels; the shares sum to 100 %"
_NO_KERNEL = "The trace holds no kernel."


def duration_table(found: KernelFacts) -> Table:
    """Kernels by their duration."""
    return Table(
        title="Kernels by duration",
        columns=(
            Column(title="duration", unit="µs", term="from the first value to below the second"),
            Column(title="count", numeric=True),
            Column(title="of kernels", term="share of the number of kernels", numeric=True),
            Column(title="", bar=True),
            Column(title="time", unit="ms", numeric=True),
            Column(title="of time", term=_SHARE, numeric=True),
        ),
        rows=tuple(
            (
                Cell(text=_range(row)),
                Cell(text=numbers.count(row.count)),
                Cell(text=numbers.percent(row.count_ratio)),
                Cell(text="", ratio=row.count_ratio, key="forward"),
                Cell(text=numbers.fixed(row.total_us / 1e3)),
                Cell(text=numbers.percent(row.total_ratio)),
            )
            for row in found.durations
        ),
        absent=_NO_KERNEL,
    )


def small_kernel_table(found: KernelFacts) -> Table:
    """What small kernels and their launches cost."""
    small = found.small
    gap = "idle time of the device directly before them while the host was in the operator and call that launch them"
    lines = (
        ("kernels", numbers.count(small.count), f"{numbers.percent(small.count_ratio)} of all kernels"),
        ("their time", _ms(small.total_us), f"{numbers.percent(small.total_ratio)} of kernel time"),
        ("calls that launched them", _ms(small.launch_call_us), "host time, inflated by profiling"),
        ("half of them took up to", f"{numbers.significant(small.launch_call_median_us)} µs", "median, host time"),
        ("launch longer than kernel", numbers.count(small.longer_launch_count), "alone they cannot keep a device busy"),
        ("launch gaps", _ms(small.launch_gap_us), gap),
    )
    return Table(
        title=f"Kernels below {numbers.significant(small.limit_us)} µs",
        columns=(Column(title="what"), Column(title="value", numeric=True), Column(title="")),
        rows=tuple(tuple(Cell(text=text) for text in line) for line in lines) if small.count else (),
        absent=f"No kernel is shorter than {numbers.significant(small.limit_us)} µs." if found.count else _NO_KERNEL,
    )


def saving_table(found: KernelFacts, limit: int | None = ROWS) -> Table:
    """Kernels by what could be saved on them at most."""
    bound = "an upper bound for this kernel alone, each kernel by one estimate; see why"
    return Table(
        title=of_first_rows("Possible savings by kernel", len(found.savings), limit),
        columns=(
            Column(title="at most", unit="ms", term=bound, numeric=True),
            Column(title="time", unit="ms", term="of these kernels", numeric=True),
            Column(title="count", numeric=True),
            Column(title="class"),
            Column(title="kernel"),
            Column(title="why"),
        ),
        rows=tuple(
            (
                Cell(text=numbers.fixed(row.saving_us / 1e3)),
                Cell(text=numbers.fixed(row.total_us / 1e3)),
                Cell(text=numbers.count(row.count)),
                Cell(text=row.kernel_class),
                kernel_text.cell(row.name, 60),
                Cell(text=_why(row)),
            )
            for row in found.savings[:limit]
        ),
        absent="No saving can be estimated for any kernel." if found.count else _NO_KERNEL,
    )


def _why(row: SavingRow) -> str:
    if row.kind == "launch gap":
        return "small, and the device waited for its launch: fusing saves that wait, not the kernel"
    if row.kind == "no tensor cores":
        faster = f"{row.faster_dtype} on tensor cores is {numbers.significant(row.peak_ratio)} times as fast at best"
        return f"{row.dtype} on CUDA cores: {faster}"
    return f"est. SM efficiency {numbers.percent(row.est_sm_efficiency_ratio)}: too few blocks for all multiprocessors"


def no_saving_table(found: KernelFacts) -> Table:
    """Kernels for which no saving is estimated, by reason."""
    return Table(
        title="Kernels without an estimate of a saving",
        columns=(
            Column(title="reason"),
            Column(title="count", numeric=True),
            Column(title="time", unit="ms", numeric=True),
            Column(title="share", term="of the time of all kernels", numeric=True),
            Column(title="because"),
        ),
        rows=tuple(
            (
                Cell(text=row.why),
                Cell(text=numbers.count(row.count)),
                Cell(text=numbers.fixed(row.total_us / 1e3)),
                Cell(text=numbers.percent(row.share_ratio)),
                Cell(text=NO_SAVING_TERMS[row.why]),
            )
            for row in found.no_savings
        ),
        absent="Every kernel has an estimate." if found.count else _NO_KERNEL,
    )


def _range(row: DurationBucket) -> str:
    return f"{row.from_us:,.0f} and more" if row.to_us is None else f"{row.from_us:,.0f} to {row.to_us:,.0f}"


def _ms(time_us: float) -> str:
    return f"{numbers.fixed(time_us / 1e3)} ms"
