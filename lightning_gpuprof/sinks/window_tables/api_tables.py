"""The tables that Nsight Systems users know flow in, tables for people flow out, under the same names."""

from __future__ import annotations

from lightning_gpuprof.model.trace.api_tables import (
    ApiTables,
    KernelExecutionRow,
    LaunchShapeRow,
    MemorySizeRow,
    TimeRow,
)
from lightning_gpuprof.sinks import numbers, plain
from lightning_gpuprof.sinks.tables import Cell, Column, Table, of_first_rows
from lightning_gpuprof.sinks.window_tables import kernel_text

ROWS = 20
"""Rows of a table that is drawn, unless another number is asked for."""

_NAME = 60
_OF_TABLE = "of the total of this table, as nsys' Time (%): it sums to 100 % however idle the device was"
_DEVICE_WINDOW = "of the device's window (first start to last end of its work), with the idle time in it"
_HOST_WINDOW = "of the traced time on the host; calls on several threads can sum to more than 100 %"
_STD = "standard deviation of a sample, as nsys computes it"


def cuda_api_sum(found: ApiTables, limit: int | None = ROWS) -> Table:
    """Calls of the CUDA or HIP runtime and driver.

    Args:
        found: The tables.
        limit: Most rows, None for all; likewise below.
    """
    return Table(
        title=of_first_rows("cuda_api_sum: calls of the CUDA API", len(found.cuda_api_sum), limit),
        columns=_time_columns("call", "calls", _HOST_WINDOW),
        rows=tuple((*_time_cells(row), Cell(text=plain.name(row.name, _NAME))) for row in found.cuda_api_sum[:limit]),
        absent="cuda_api_sum: the trace holds no call of the CUDA or HIP runtime.",
    )


def cuda_gpu_kern_sum(found: ApiTables, limit: int | None = ROWS) -> Table:
    """Kernels by name."""
    return Table(
        title=of_first_rows("cuda_gpu_kern_sum: kernels by name", len(found.cuda_gpu_kern_sum), limit),
        columns=_time_columns("kernel", "count", _DEVICE_WINDOW),
        rows=tuple((*_time_cells(row), kernel_text.cell(row.name, _NAME)) for row in found.cuda_gpu_kern_sum[:limit]),
        absent="cuda_gpu_kern_sum: the trace holds no kernel.",
    )


def cuda_gpu_kern_gb_sum(found: ApiTables, limit: int | None = ROWS) -> Table:
    """Kernels by name, grid and block."""
    columns = [
        column
        for column in _time_columns("kernel", "count", _DEVICE_WINDOW)
        if column.title not in ("med", "std")  # as wide as a terminal with grid and block
    ]
    grid = Column(title="grid", term="blocks in x, y and z", numeric=True)
    block = Column(title="block", term="threads in x, y and z", numeric=True)

    def cells(row: LaunchShapeRow) -> tuple[Cell, ...]:
        shares, times = _share_cells(row), _statistic_cells(row)
        shown = [cell for cell, title in zip(times, _STATISTICS, strict=True) if title not in ("med", "std")]
        return (
            *shares,
            *shown,
            Cell(text=_three(row.grid)),
            Cell(text=_three(row.block)),
            kernel_text.cell(row.name, _NAME),
        )

    return Table(
        title=of_first_rows(
            "cuda_gpu_kern_gb_sum: kernels by name, grid and block", len(found.cuda_gpu_kern_gb_sum), limit
        ),
        columns=(*columns[:-1], grid, block, columns[-1]),
        rows=tuple(cells(row) for row in found.cuda_gpu_kern_gb_sum[:limit]),
        absent="cuda_gpu_kern_gb_sum: the trace holds no kernel.",
    )


def cuda_gpu_mem_time_sum(found: ApiTables, limit: int | None = ROWS) -> Table:
    """Copies and memsets by their time."""
    return Table(
        title=of_first_rows(
            "cuda_gpu_mem_time_sum: copies and memsets by time", len(found.cuda_gpu_mem_time_sum), limit
        ),
        columns=_time_columns("operation", "count", _DEVICE_WINDOW),
        rows=tuple((*_time_cells(row), _operation(row.name)) for row in found.cuda_gpu_mem_time_sum[:limit]),
        absent="cuda_gpu_mem_time_sum: the trace holds no copy and no memset.",
    )


def cuda_gpu_mem_size_sum(found: ApiTables, limit: int | None = ROWS) -> Table:
    """Copies and memsets by their size, with their bandwidth."""
    size = "1 MB is 1,000,000 bytes"
    bandwidth = (
        "sizes over durations; 1 GB is 1,000,000,000 bytes. A copy inside a device moves twice that in its memory"
    )
    return Table(
        title=of_first_rows(
            "cuda_gpu_mem_size_sum: copies and memsets by size", len(found.cuda_gpu_mem_size_sum), limit
        ),
        columns=(
            Column(title="total", unit="MB", term=size, numeric=True),
            Column(title="count", numeric=True),
            Column(title="with size", term="those whose size is in the trace; sizes are about them", numeric=True),
            Column(title="avg", unit="MB", term=size, numeric=True),
            Column(title="med", unit="MB", term=size, numeric=True),
            Column(title="min", unit="MB", term=size, numeric=True),
            Column(title="max", unit="MB", term=size, numeric=True),
            Column(title="std", unit="MB", term=_STD, numeric=True),
            Column(title="bandwidth", unit="GB/s", term=bandwidth, numeric=True),
            Column(title="operation"),
        ),
        rows=tuple(_size_cells(row) for row in found.cuda_gpu_mem_size_sum[:limit]),
        absent="cuda_gpu_mem_size_sum: the trace holds no copy and no memset.",
    )


def cuda_kern_exec_sum(found: ApiTables, limit: int | None = ROWS) -> Table:
    """Kernels with the calls that launched them: API, queue and kernel time."""
    without = found.kernels_without_launch
    left_out = f", without {numbers.count(without)} kernels whose launch is not in the trace" if without else ""
    apis = sorted({row.api for row in found.cuda_kern_exec_sum})
    by = f" by {plain.name(apis[0], 40)}" if len(apis) == 1 else ""
    execution = (
        "from the start of the call to the end of call or kernel, whichever is later; executions lie over each other"
    )
    queue = "from the end of the call to the start of the kernel, over those that queued: long means the host is ahead"
    return Table(
        title=of_first_rows(
            f"cuda_kern_exec_sum: launch{by}, queue and kernel{left_out}", len(found.cuda_kern_exec_sum), limit
        ),
        columns=(
            Column(title="table", term=f"execution time {_OF_TABLE}", numeric=True),
            Column(title="window", term=f"kernel time {_DEVICE_WINDOW}", numeric=True),
            Column(title="total", unit="µs", term=execution, numeric=True),
            Column(title="count", term="kernels", numeric=True),
            Column(title="queued", term="kernels that started after their call had returned", numeric=True),
            Column(title="API avg", unit="µs", term="duration of the call", numeric=True),
            Column(title="queue avg", unit="µs", term=queue, numeric=True),
            Column(title="kernel avg", unit="µs", numeric=True),
            Column(title="kernel" if by else "kernel, launched by"),
        ),
        rows=tuple(_execution_cells(row, with_api=not by) for row in found.cuda_kern_exec_sum[:limit]),
        absent="cuda_kern_exec_sum: no kernel has its launch in the trace.",
    )


def launch_table(found: ApiTables) -> Table:
    """How long work waits from its call to its start."""
    latency = found.launch_to_start
    rows = []
    if latency is not None:
        rows = [
            ("pieces of work with their launch in the trace", numbers.count(latency.count)),
            ("median", f"{numbers.significant(latency.median_us)} µs"),
            ("average", f"{numbers.significant(latency.average_us)} µs"),
            ("least", f"{numbers.significant(latency.min_us)} µs"),
            ("most", f"{numbers.significant(latency.max_us)} µs"),
            ("starts before its call (clocks disagree)", numbers.count(latency.negative_count)),
        ]
    return Table(
        title="From the start of a call to the start of its work on the device",
        columns=(
            Column(title="what", term="kernels, copies and memsets; a long time is good: the host is ahead"),
            Column(title="value", numeric=True),
        ),
        rows=tuple((Cell(text=what), Cell(text=value)) for what, value in rows),
        absent="No work of a device has its launch in the trace.",
    )


_STATISTICS = ("total", "count", "avg", "med", "min", "max", "std")


def _time_columns(what: str, count: str, window: str) -> tuple[Column, ...]:
    return (
        Column(title="table", term=_OF_TABLE, numeric=True),
        Column(title="window", term=window, numeric=True),
        Column(title="total", unit="µs", numeric=True),
        Column(title=count, numeric=True),
        Column(title="avg", unit="µs", numeric=True),
        Column(title="med", unit="µs", term="median", numeric=True),
        Column(title="min", unit="µs", numeric=True),
        Column(title="max", unit="µs", numeric=True),
        Column(title="std", unit="µs", term=_STD, numeric=True),
        Column(title=what),
    )


def _time_cells(row: TimeRow) -> tuple[Cell, ...]:
    return (*_share_cells(row), *_statistic_cells(row))


def _share_cells(row: TimeRow) -> tuple[Cell, ...]:
    return (
        Cell(text=numbers.percent(row.share_of_table_ratio)),
        Cell(text=numbers.percent(row.share_of_window_ratio)),
    )


def _statistic_cells(row: TimeRow) -> tuple[Cell, ...]:
    times = (row.average_us, row.median_us, row.min_us, row.max_us, row.std_us)
    return (
        Cell(text=numbers.fixed(row.total_us)),
        Cell(text=numbers.count(row.count)),
        *(Cell(text=numbers.fixed(time)) for time in times),
    )


def _size_cells(row: MemorySizeRow) -> tuple[Cell, ...]:
    sizes = (row.average_bytes, row.median_bytes, row.min_bytes, row.max_bytes, row.std_bytes)
    bandwidth = row.bandwidth_bytes_per_s
    return (
        Cell(text=_megabytes(row.total_bytes)),
        Cell(text=numbers.count(row.count)),
        Cell(text=numbers.count(row.sized_count)),
        *(Cell(text=_megabytes(size)) for size in sizes),
        Cell(text=numbers.fixed(None if bandwidth is None else bandwidth / 1e9)),
        _operation(row.name),
    )


def _execution_cells(row: KernelExecutionRow, *, with_api: bool) -> tuple[Cell, ...]:
    name = kernel_text.cell(row.name, _NAME)
    return (
        Cell(text=numbers.percent(row.share_of_table_ratio)),
        Cell(text=numbers.percent(row.kernel_share_of_window_ratio)),
        Cell(text=numbers.fixed(row.total_us)),
        Cell(text=numbers.count(row.count)),
        Cell(text=numbers.count(row.queued_count)),
        Cell(text=numbers.fixed(row.api_average_us)),
        Cell(text=numbers.fixed(row.queue_average_us)),
        Cell(text=numbers.fixed(row.kernel_average_us)),
        Cell(text=f"{name.text}, {plain.name(row.api, 30)}" if with_api else name.text, term=name.term),
    )


_NSYS_OPERATIONS = (
    ("HtoD", "[CUDA memcpy Host-to-Device]"),
    ("DtoH", "[CUDA memcpy Device-to-Host]"),
    ("DtoD", "[CUDA memcpy Device-to-Device]"),
    ("PtoP", "[CUDA memcpy Peer-to-Peer]"),
    ("HtoH", "[CUDA memcpy Host-to-Host]"),
    ("Memset", "[CUDA memset]"),
)


def _operation(name: str) -> Cell:
    of_nsys = next((operation for part, operation in _NSYS_OPERATIONS if part in name), "")
    return Cell(text=plain.name(name, _NAME), term=f"nsys: {of_nsys}" if of_nsys else "")


def _megabytes(size: float | None) -> str:
    return numbers.fixed(None if size is None else size / 1e6)


def _three(sizes: tuple[int, int, int] | None) -> str:
    return numbers.ABSENT if sizes is None else " ".join(str(size) for size in sizes)
