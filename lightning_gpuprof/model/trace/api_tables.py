"""The tables of a trace that users of Nsight Systems know: API calls, kernels, copies, launches."""

import msgspec


class TimeRow(msgspec.Struct, kw_only=True, frozen=True):
    """Durations of everything with one name, in microseconds."""

    name: str
    count: int
    total_us: float
    share_of_table_ratio: float | None
    """Of the total of the table: what nsys calls "Time (%)". Shares of a table sum to 1 however idle the device was.
    None if all durations are 0."""
    share_of_window_ratio: float | None
    """Of the window, see :class:`ApiTables`. Above 1 in sum where streams, devices or threads overlap."""
    average_us: float
    median_us: float
    min_us: float
    max_us: float
    std_us: float
    """Standard deviation of a sample (n - 1); 0 for one duration."""


class LaunchShapeRow(TimeRow, kw_only=True, frozen=True):
    """Durations of the kernels with one name, grid and block."""

    grid: tuple[int, int, int] | None
    """In blocks, also where the trace has work-items (``hipExtModuleLaunchKernel``); None where it has nothing."""
    block: tuple[int, int, int] | None


class MemorySizeRow(msgspec.Struct, kw_only=True, frozen=True):
    """Sizes of all copies or memsets of one kind; None where no event of the kind has a size."""

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
    """Sum of the sizes over sum of the durations. A copy inside one device reads and writes: twice this at its
    memory."""


class KernelExecutionRow(msgspec.Struct, kw_only=True, frozen=True):
    """Launches of one kernel by one API function, from the call to the end on the device, in microseconds.

    A kernel's execution goes from the start of the call to the end of the call or of the kernel, whichever is later.
    A kernel may start before its call returns; then its phases overlap and the execution is less than their sum.
    """

    name: str
    api: str
    count: int
    """Kernels."""
    calls: int
    """Distinct calls: fewer than kernels where a graph was launched; such a call is in each of its kernels' rows."""
    api_total_us: float
    """Duration of these calls, each once."""
    api_average_us: float
    queued_count: int
    """Kernels that started after their call had returned (nsys: QCount)."""
    queue_total_us: float
    """From the end of the call to the start of the kernel, where that is positive. Queueing is no fault: it means
    that the host is ahead of the device."""
    queue_average_us: float | None
    """Over the kernels that queued, as nsys does; None if none did."""
    kernel_total_us: float
    kernel_average_us: float
    total_us: float
    """Executions. They lie over each other, so the sum of a table is no time on any clock."""
    average_us: float
    share_of_table_ratio: float | None
    kernel_share_of_window_ratio: float | None
    """Kernel time over the device window."""


class LaunchLatency(msgspec.Struct, kw_only=True, frozen=True):
    """From the start of a call to the start of its device work (kernels, copies and memsets), in microseconds."""

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
    """First start to last end of device work, summed over devices; the window of all tables about devices. None if
    there was no device work."""
    host_window_us: float | None
    """First start to last end of everything that was recorded on the host; the window of ``cuda_api_sum``."""
    api_total_us: float
    """Of all calls on all threads; likewise below."""
    kernel_total_us: float
    memory_total_us: float
    cuda_api_sum: tuple[TimeRow, ...]
    cuda_gpu_kern_sum: tuple[TimeRow, ...]
    cuda_gpu_kern_gb_sum: tuple[LaunchShapeRow, ...]
    cuda_gpu_mem_time_sum: tuple[TimeRow, ...]
    """Kinds are named as the trace names them, which also separates pageable from pinned memory."""
    cuda_gpu_mem_size_sum: tuple[MemorySizeRow, ...]
    cuda_kern_exec_sum: tuple[KernelExecutionRow, ...]
    """Kernels whose launch is in the trace."""
    kernels_without_launch: int
    """Launched before the window, or their launch was lost."""
    launch_to_start: LaunchLatency | None
    """None if no device work has its launch in the trace."""
