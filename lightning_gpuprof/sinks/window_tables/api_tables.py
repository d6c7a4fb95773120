"""The tables that Nsight Systems users know, under the same names."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from lightning_gpuprof.model import numbers
from lightning_gpuprof.model.trace.api_tables import ApiTables, CategoryRow, KernelExecutionRow, MemorySizeRow, TimeRow
from lightning_gpuprof.sinks import plain
from lightning_gpuprof.sinks.tables import COUNT, GB_PER_S, NUMBER, PERCENT, SIGNIFICANT, US, Column, Table, facts, name
from lightning_gpuprof.sinks.window_tables import short_names

ROWS = 20
"""Rows of a table that is drawn, unless another number is asked for."""

_NAME = 60
_OF_TABLE = "share of this table's total, like nsys' Time (%): adds up to 100 %, idle time excluded"
_DEVICE_WINDOW = "share of the time from first to last kernel, idle time included"
_HOST_WINDOW = "share of the traced time on the host; calls on several threads can add up to more than 100 %"
_OVER_PCIE = re.compile(r"HtoD|DtoH|HostToDevice|DeviceToHost")
_STD = "sample standard deviation, as in nsys"


def nsys_table(table: str, found: ApiTables, limit: int | None = ROWS) -> Table:
    """A table of Nsight Systems.

    Args:
        table: One of :data:`NSYS_TABLES`.
        found: What was computed of a trace.
        limit: Rows at the most; None for all.

    Returns:
        Its title begins with the name; times in µs, amounts of copies in MB of 1,000,000 bytes.
    """
    what, absent, columns = NSYS_TABLES[table]
    title = f"{table}: {what(found) if callable(what) else what}"
    return Table.of(title, getattr(found, table), *columns(found), absent=f"{table}: {absent}", limit=limit)


def _times(count: str, window: str, *columns: Column[Any]) -> tuple[Column[Any], ...]:
    return (
        Column("table", lambda row: row.share_of_table_ratio, PERCENT, help=_OF_TABLE),
        Column("window", lambda row: row.share_of_window_ratio, PERCENT, help=window),
        Column("total", lambda row: row.total_us, US),
        Column(count, lambda row: row.count, COUNT),
        Column("avg", lambda row: row.average_us, US),
        Column("med", lambda row: row.median_us, US, help="median"),
        Column("min", lambda row: row.min_us, US),
        Column("max", lambda row: row.max_us, US),
        Column("std", lambda row: row.std_us, US, help=_STD),
        *columns,
    )


def _per_step(found: ApiTables) -> tuple[Column[TimeRow], ...]:
    if not found.steps:
        return ()
    return (Column("per step", lambda row: row.count / found.steps, SIGNIFICANT, help="count over the trace's steps"),)


def _combined() -> tuple[Column[CategoryRow], ...]:
    table, _, *times = _times("count", "")
    category: Column[CategoryRow] = Column("category", lambda row: row.category, help="as in nsys")
    return (table, category, *times, Column("operation", lambda row: short_names.short(row.name, 40)))


def _copies(by: str) -> Callable[[ApiTables], str]:
    def title(found: ApiTables) -> str:
        managed = sum(row.count for row in found.cuda_gpu_mem_time_sum if "Managed" in row.name)
        said = f"{numbers.count(managed)} of managed memory" if managed else "no managed memory"
        return f"copies and memsets by {by}, {said}"

    return title


def _rates(found: ApiTables) -> tuple[Column[TimeRow | MemorySizeRow], ...]:
    """What copies reach, and of what the PCIe link carries; empty where no size is known."""
    by_name = {row.name: row.bandwidth_bytes_per_s for row in found.cuda_gpu_mem_size_sum if row.bandwidth_bytes_per_s}
    most = found.pcie_bytes_per_s

    def of_link(row: TimeRow | MemorySizeRow) -> float | None:
        rate = by_name.get(row.name) if _OVER_PCIE.search(row.name) else None
        return None if rate is None or not most or rate > most else rate / most  # more: another link

    bandwidth = (
        "bytes over time; 1 GB is 1,000,000,000 bytes. A copy within a device moves twice as much: a read and a write"
    )
    columns: list[Column[TimeRow | MemorySizeRow]] = [
        Column("bandwidth", lambda row: by_name.get(row.name), GB_PER_S, help=bandwidth)
    ]
    if most:
        columns.append(Column("of PCIe", of_link, PERCENT, help=f"of the {GB_PER_S(most)} GB/s that the link carries"))
    return tuple(columns) if by_name else ()


def _sizes(found: ApiTables) -> tuple[Column[Any], ...]:
    size, mb = "1 MB is 1,000,000 bytes", NUMBER.in_unit("MB", of=1e6)
    return (
        Column("total", lambda row: row.total_bytes, mb, help=size),
        Column("count", lambda row: row.count, COUNT),
        Column(
            "with size", lambda row: row.sized_count, COUNT, help="copies whose size is recorded; the sizes are theirs"
        ),
        Column("avg", lambda row: row.average_bytes, mb),
        Column("med", lambda row: row.median_bytes, mb),
        Column("min", lambda row: row.min_bytes, mb),
        Column("max", lambda row: row.max_bytes, mb),
        Column("std", lambda row: row.std_bytes, mb, help=_STD),
        *_rates(found),
        _OPERATION,
    )


def _only_api(found: ApiTables) -> str | None:
    """The call that launched all kernels, if it is one."""
    apis = {row.api for row in found.cuda_kern_exec_sum}
    return apis.pop() if len(apis) == 1 else None


def _execution_title(found: ApiTables) -> str:
    api, without = _only_api(found), found.kernels_without_launch
    left_out = f", without {numbers.count(without)} kernels whose launch was not recorded" if without else ""
    return f"launch{f' by {plain.name(api, 40)}' if api else ''}, queue and kernel{left_out}"


def _executions(found: ApiTables) -> tuple[Column[KernelExecutionRow], ...]:
    execution = "from the start of the call until call and kernel have ended; executions can overlap"
    queue = "from the end of the call to the start of the kernel, queued kernels only; long: the host is ahead"
    named: Column[KernelExecutionRow] = short_names.column(_NAME)
    if not _only_api(found):
        named = Column(
            "kernel, launched by",
            lambda row: f"{short_names.short(row.name, _NAME)}, {plain.name(row.api, 30)}",
            hover=named.hover,
        )
    return (
        Column("table", lambda row: row.share_of_table_ratio, PERCENT, help=f"execution time, {_OF_TABLE}"),
        Column("window", lambda row: row.kernel_share_of_window_ratio, PERCENT, help=f"kernel time, {_DEVICE_WINDOW}"),
        Column("total", lambda row: row.total_us, US, help=execution),
        Column("count", lambda row: row.count, COUNT, help="kernels"),
        Column("queued", lambda row: row.queued_count, COUNT, help="kernels that started after their call returned"),
        Column("API avg", lambda row: row.api_average_us, US, help="duration of the call"),
        Column("queue avg", lambda row: row.queue_average_us, US, help=queue),
        Column("kernel avg", lambda row: row.kernel_average_us, US),
        named,
    )


def launch_table(found: ApiTables) -> Table:
    """How long device work waits from its call to its start."""
    latency = found.launch_to_start
    rows: list[tuple[str, str]] = []
    if latency is not None:
        rows = [
            ("kernels, copies and memsets with a recorded launch", numbers.count(latency.count)),
            ("median", f"{numbers.significant(latency.median_us)} µs"),
            ("average", f"{numbers.significant(latency.average_us)} µs"),
            ("min", f"{numbers.significant(latency.min_us)} µs"),
            ("max", f"{numbers.significant(latency.max_us)} µs"),
            ("started before its call (clock skew)", numbers.count(latency.negative_count)),
        ]
    return facts(
        "Launch latency: from the launch call to the start of its kernel (long: the host is ahead)",
        rows,
        absent="No kernel or copy has a recorded launch.",
    )


_NSYS_OPERATIONS = (
    ("HtoD", "[CUDA memcpy Host-to-Device]"),
    ("DtoH", "[CUDA memcpy Device-to-Host]"),
    ("DtoD", "[CUDA memcpy Device-to-Device]"),
    ("PtoP", "[CUDA memcpy Peer-to-Peer]"),
    ("HtoH", "[CUDA memcpy Host-to-Host]"),
    ("Memset", "[CUDA memset]"),
)


def _in_nsys(row: TimeRow | MemorySizeRow) -> str:
    """What Nsight Systems calls a copy or memset."""
    return next((f"nsys: {operation}" for part, operation in _NSYS_OPERATIONS if part in row.name), "")


_NO_KERNEL, _NO_COPY = "the trace has no kernels.", "the trace has no copies or memsets."
_OPERATION: Column[TimeRow | MemorySizeRow] = Column("operation", lambda row: row.name, name(_NAME), hover=_in_nsys)
_KERNEL_TIMES = _times("count", _DEVICE_WINDOW)
_LAUNCHES = (
    # as wide as a terminal with grid and block
    *(column for column in _KERNEL_TIMES if column.title not in ("med", "std")),
    Column("grid", lambda row: row.grid, short_names.THREE, help="blocks in x, y and z"),
    Column("block", lambda row: row.block, short_names.THREE, help="threads in x, y and z"),
)
NSYS_TABLES: Mapping[
    str, tuple[str | Callable[[ApiTables], str], str, Callable[[ApiTables], tuple[Column[Any], ...]]]
] = {
    "cuda_api_sum": (
        "calls of the CUDA API",
        "the trace has no calls of the CUDA or HIP runtime.",
        lambda found: (
            *_times("calls", _HOST_WINDOW),
            *_per_step(found),
            Column("call", lambda row: row.name, name(_NAME)),
        ),
    ),
    "cuda_gpu_kern_sum": (
        "kernels by name",
        _NO_KERNEL,
        lambda found: (*_KERNEL_TIMES, *_per_step(found), short_names.column(_NAME)),
    ),
    "cuda_gpu_kern_gb_sum": (
        "kernels by name, grid and block",
        _NO_KERNEL,
        lambda _: (*_LAUNCHES, short_names.column(_NAME)),
    ),
    "cuda_api_gpu_sum": (
        "calls, kernels, copies and memsets",
        "the trace has neither calls nor kernels.",
        lambda _: _combined(),
    ),
    "cuda_gpu_mem_time_sum": (_copies("time"), _NO_COPY, lambda found: (*_KERNEL_TIMES, *_rates(found), _OPERATION)),
    "cuda_gpu_mem_size_sum": (_copies("size"), _NO_COPY, _sizes),
    "cuda_kern_exec_sum": (_execution_title, "no kernel has a recorded launch.", _executions),
}
"""By the names of ``nsys stats``, which are fields of :class:`ApiTables`: what it shows, why it is empty, columns."""
