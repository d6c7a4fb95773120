"""The tables of a trace that users of Nsight Systems know: API calls, kernels, copies, launches."""

from typing import Literal

import msgspec
from msgspec.structs import asdict

Category = Literal["CUDA_API", "CUDA_KERNEL", "MEMORY_OPER"]


class TimeRow(msgspec.Struct, kw_only=True, frozen=True):
    """Durations of everything with one name, in microseconds."""

    name: str
    count: int
    total_us: float
    share_of_table_ratio: float | None
    """Of the total of the table: "Time (%)" of nsys."""
    share_of_window_ratio: float | None
    """Of the window, see :class:`ApiTables`. Above 1 in sum where streams, devices or threads overlap."""
    average_us: float
    median_us: float
    min_us: float
    max_us: float
    std_us: float
    """Standard deviation of a sample (n - 1); 0 for one duration."""


class CategoryRow(TimeRow, kw_only=True, frozen=True):
    """Durations of everything with one name; the table is that of API, kernels, copies and memsets."""

    category: Category
    """As nsys writes it."""


class LaunchShapeRow(TimeRow, kw_only=True, frozen=True):
    """Durations of the kernels with one name, grid and block."""

    grid: tuple[int, int, int] | None
    """In blocks, also where the trace has work-items (``hipExtModuleLaunchKernel``); None where it has nothing."""
    block: tuple[int, int, int] | None


class MemorySizeRow(msgspec.Struct, kw_only=True, frozen=True):
    """Sizes of all copies or memsets of one kind."""

    name: str
    count: int
    sized_count: int = 0
    """Those whose size is in the trace; the other numbers are about them."""
    total_bytes: int | None = None
    share_of_table_ratio: float | None = None
    average_bytes: float | None = None
    median_bytes: float | None = None
    min_bytes: int | None = None
    max_bytes: int | None = None
    std_bytes: float | None = None
    bandwidth_bytes_per_s: float | None = None
    """Sum of sizes over sum of durations. A copy inside one device moves twice this at its memory."""


class KernelExecutionRow(msgspec.Struct, kw_only=True, frozen=True):
    """Launches of one kernel by one API function, microseconds.

    From the start of the call to the end of the call or of the kernel, whichever is later.
    """

    name: str
    api: str
    count: int
    """Kernels."""
    calls: int
    """Distinct calls: fewer than kernels where a graph was launched."""
    api_total_us: float
    api_average_us: float
    queued_count: int
    """Kernels that started after their call had returned (nsys: QCount)."""
    queue_total_us: float
    """From the end of the call to the start of the kernel. No fault: the host is ahead of the device."""
    queue_average_us: float | None
    """Over the kernels that queued."""
    kernel_total_us: float
    kernel_average_us: float
    total_us: float
    """Of executions, which overlap."""
    average_us: float
    share_of_table_ratio: float | None
    kernel_share_of_window_ratio: float | None


class LaunchLatency(msgspec.Struct, kw_only=True, frozen=True):
    """From the start of a call to the start of its device work, microseconds."""

    count: int
    negative_count: int
    """Work that starts before its call, which only clocks that disagree can show."""
    average_us: float
    median_us: float
    min_us: float
    max_us: float


class ApiTables(msgspec.Struct, kw_only=True, frozen=True):
    """Tables under the names of ``nsys stats`` reports, largest total first."""

    device_window_us: float | None
    """First start to last end of device work, summed over devices."""
    host_window_us: float | None
    """First start to last end of everything on the host."""
    api_total_us: float
    """Of all calls on all threads; likewise below."""
    kernel_total_us: float
    memory_total_us: float
    cuda_api_sum: tuple[TimeRow, ...]
    cuda_gpu_kern_sum: tuple[TimeRow, ...]
    cuda_gpu_kern_gb_sum: tuple[LaunchShapeRow, ...]
    cuda_gpu_mem_time_sum: tuple[TimeRow, ...]
    """By the trace's names, which separate pageable from pinned memory."""
    cuda_gpu_mem_size_sum: tuple[MemorySizeRow, ...]
    cuda_kern_exec_sum: tuple[KernelExecutionRow, ...]
    """Kernels whose launch is in the trace."""
    kernels_without_launch: int
    """Launched before the window, or their launch was lost."""
    launch_to_start: LaunchLatency | None
    """None if no device work has its launch in the trace."""
    steps: int = 0
    """Of the trace."""
    pcie_bytes_per_s: float | None = None
    """Of the link, each way."""

    @property
    def cuda_api_gpu_sum(self) -> tuple[CategoryRow, ...]:
        """API calls, kernels, copies and memsets in one table."""
        total_us = self.api_total_us + self.kernel_total_us + self.memory_total_us
        rows: list[tuple[Category, TimeRow]] = [
            *(("CUDA_API", row) for row in self.cuda_api_sum),
            *(("CUDA_KERNEL", row) for row in self.cuda_gpu_kern_sum),
            *(("MEMORY_OPER", row) for row in self.cuda_gpu_mem_time_sum),
        ]
        return tuple(
            CategoryRow(
                category=category,
                **{**asdict(row), "share_of_table_ratio": row.total_us / total_us if total_us else None},
            )
            for category, row in sorted(rows, key=lambda pair: (-pair[1].total_us, pair[1].name))
        )
