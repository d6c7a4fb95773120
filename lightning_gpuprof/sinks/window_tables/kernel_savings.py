"""Tables of possible savings on a window's kernels, and of the small ones."""

from __future__ import annotations

from lightning_gpuprof.model import numbers
from lightning_gpuprof.model.trace.kernels import NO_SAVING_TERMS, DurationBucket, KernelFacts, SavingRow
from lightning_gpuprof.sinks.tables import COUNT, FIGURE, PERCENT, TEXT, US_AS_MS, Column, Table, bar, first_rows_title
from lightning_gpuprof.sinks.window_tables import kernel_text

ROWS = 20
"""Rows of a table that is drawn, unless another number is asked for."""

_SHARE = "of the time of all kernels; the shares sum to 100 %"
_NO_KERNEL = "The trace holds no kernel."


def duration_table(found: KernelFacts) -> Table:
    """Kernels by their duration."""
    return Table.of(
        "Kernels by duration",
        found.durations,
        Column("duration", _range, TEXT.in_unit("µs"), help="from the first value to below the second"),
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
        ("their time", _ms(small.total_us), f"{numbers.exact_percent(small.total_ratio)} of kernel time"),
        ("calls that launched them", _ms(small.launch_call_us), "host time, inflated by tracing"),
        ("median of a launch", f"{numbers.significant(small.launch_call_median_us)} µs", "host time"),
        ("launch longer than kernel", numbers.count(small.longer_launch_count), "they cannot keep a GPU busy"),
        ("launch gaps", _ms(small.launch_gap_us), gap),
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


def saving_table(found: KernelFacts, limit: int | None = ROWS) -> Table:
    """Kernels by what could be saved on them at most.

    Args:
        found: What is known of the kernels.
        limit: Rows at the most; None for all.
    """
    bound = "upper bound for this kernel alone; see why"
    return Table.of(
        first_rows_title("Possible savings by kernel", len(found.savings), limit),
        found.savings[:limit],
        Column("at most", lambda row: row.saving_us, US_AS_MS, help=bound),
        Column("time", lambda row: row.total_us, US_AS_MS, help="of these kernels"),
        Column("count", lambda row: row.count, COUNT),
        Column("class", lambda row: row.kernel_class),
        kernel_text.column(60),
        Column("why", _why),
        absent="No saving can be estimated for any kernel." if found.count else _NO_KERNEL,
    )


def _why(row: SavingRow) -> str:
    if row.kind == "launch gap":
        return "short, and the GPU waited for its launch: fusing saves the wait, not the kernel"
    if row.kind == "no tensor cores":
        faster = f"{row.faster_dtype} on tensor cores is {numbers.significant(row.peak_ratio)} times as fast at best"
        return f"{row.dtype} on CUDA cores: {faster}"
    filled = numbers.exact_percent(row.est_sm_efficiency_ratio)
    return f"est. SM efficiency {filled}: too few blocks for all multiprocessors"


def no_saving_table(found: KernelFacts) -> Table:
    """Kernels for which no saving is estimated, by reason."""
    return Table.of(
        "Kernels without an estimate of a saving",
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


def _ms(time_us: float) -> str:
    return f"{numbers.fixed(time_us / 1e3)} ms"
