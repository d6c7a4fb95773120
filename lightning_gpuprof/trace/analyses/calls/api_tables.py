"""The tables that ``nsys stats`` prints: API calls, kernels, copies and memsets, launches."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from lightning_gpuprof.model.trace.api_tables import (
    ApiTables,
    KernelExecutionRow,
    LaunchLatency,
    LaunchShapeRow,
    MemorySizeRow,
    TimeRow,
)
from lightning_gpuprof.trace.analyses.joins.grouped import Groups, groups_of, rows_of, shares, statistics_of
from lightning_gpuprof.trace.analyses.kernels.launch_shape import launch_shapes
from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.reader import Trace
from lightning_gpuprof.trace.tables import DeviceSpans, Int32, Int64, Rows, distinct, extent_ns, joined, ratio, summed

_NS_PER_S = 1_000_000_000


def api_tables(linked: LinkedTrace) -> ApiTables:
    """The tables of Nsight Systems, of everything in a trace.

    Returns:
        Tables without rows, and None, where the trace has nothing of the kind.
    """
    trace, kernel = linked.trace, linked.trace.kernel
    device_window_ns = sum(busy.length_ns for busy in linked.device_busy.values()) if linked.device_busy else None
    host_window = extent_ns((trace.runtime, trace.cpu_op, trace.annotation, trace.python_function))
    host_window_ns = None if host_window is None else host_window[1] - host_window[0]
    memory = joined(DeviceSpans, [trace.memcpy, trace.memset])
    return ApiTables(
        device_window_us=None if device_window_ns is None else device_window_ns / 1000,
        host_window_us=None if host_window_ns is None else host_window_ns / 1000,
        api_total_us=int(trace.runtime.duration_ns.sum()) / 1000,
        kernel_total_us=int(kernel.duration_ns.sum()) / 1000,
        memory_total_us=int(memory.duration_ns.sum()) / 1000,
        cuda_api_sum=_by_name(trace, trace.runtime.name, trace.runtime.duration_ns, host_window_ns),
        cuda_gpu_kern_sum=_by_name(trace, kernel.name, kernel.duration_ns, device_window_ns),
        cuda_gpu_kern_gb_sum=_by_launch_shape(linked, device_window_ns),
        cuda_gpu_mem_time_sum=_by_name(trace, memory.name, memory.duration_ns, device_window_ns),
        cuda_gpu_mem_size_sum=_sizes(trace, memory),
        cuda_kern_exec_sum=_executions(linked, device_window_ns),
        kernels_without_launch=int((~linked.launched[: len(kernel)]).sum()),
        launch_to_start=_launch_to_start(linked),
        steps=len(linked.steps),
    )


def _by_name(trace: Trace, name: Int32, duration_ns: Int64, window_ns: int | None) -> tuple[TimeRow, ...]:
    groups = groups_of(name)
    rows = rows_of(TimeRow, **_times(trace, name, duration_ns, groups, window_ns))
    return tuple(sorted(rows, key=lambda row: (-row.total_us, row.name)))


def _by_launch_shape(linked: LinkedTrace, window_ns: int | None) -> tuple[LaunchShapeRow, ...]:
    kernel, shapes = linked.trace.kernel, launch_shapes(linked)
    groups = groups_of(kernel.name, shapes.grid_and_block[shapes.groups.of_row])
    launches = [shapes.geometries[launch] for launch in shapes.groups.of_row[groups.first].tolist()]
    rows = rows_of(
        LaunchShapeRow,
        grid=[launch.grid for launch in launches],
        block=[launch.block for launch in launches],
        **_times(linked.trace, kernel.name, kernel.duration_ns, groups, window_ns),
    )
    return tuple(sorted(rows, key=lambda row: (-row.total_us, row.name, row.grid or (), row.block or ())))


def _times(
    trace: Trace, name: Int32, duration_ns: Int64, groups: Groups, window_ns: int | None
) -> dict[str, npt.NDArray[Any] | Sequence[object]]:
    """The columns of :class:`TimeRow`."""
    found = statistics_of(duration_ns, groups)
    return {
        "name": _names(trace, name[groups.first]),
        "count": found.count,
        "total_us": found.total / 1000,
        "share_of_table_ratio": shares(found.total, int(found.total.sum())),
        "share_of_window_ratio": shares(found.total, window_ns),
        "average_us": found.average / 1000,
        "median_us": found.median / 1000,
        "min_us": found.min / 1000,
        "max_us": found.max / 1000,
        "std_us": found.std / 1000,
    }


def _names(trace: Trace, name: Int32) -> list[str]:
    return [trace.names[number] for number in name.tolist()]


def _sizes(trace: Trace, memory: DeviceSpans) -> tuple[MemorySizeRow, ...]:
    sized = memory.where(memory.size_bytes >= 0)
    groups = groups_of(sized.name)
    found, time_ns = statistics_of(sized.size_bytes, groups), groups.sums(sized.duration_ns)
    counts = np.bincount(memory.name, minlength=len(trace.names))
    known = rows_of(
        MemorySizeRow,
        name=_names(trace, sized.name[groups.first]),
        count=counts[sized.name[groups.first]],
        sized_count=found.count,
        total_bytes=found.total,
        share_of_table_ratio=shares(found.total, int(found.total.sum())),
        average_bytes=found.average,
        median_bytes=found.median,
        min_bytes=found.min,
        max_bytes=found.max,
        std_bytes=found.std,
        bandwidth_bytes_per_s=[
            ratio(total * _NS_PER_S, ns) for total, ns in zip(found.total.tolist(), time_ns.tolist(), strict=True)
        ],
    )
    without = distinct(memory.name[~np.isin(memory.name, sized.name)])
    rest = rows_of(MemorySizeRow, name=_names(trace, without), count=counts[without])
    return tuple(sorted((*known, *rest), key=lambda row: (-(row.total_bytes or -1), row.name)))


def _executions(linked: LinkedTrace, window_ns: int | None) -> tuple[KernelExecutionRow, ...]:
    trace = linked.trace
    launched = np.flatnonzero(linked.launched[: len(trace.kernel)])
    kernel, call = trace.kernel.where(launched), linked.launch[launched]
    runtime = trace.runtime
    groups = groups_of(kernel.name, runtime.name[call])
    queue_ns = np.maximum(kernel.start_ns - runtime.end_ns[call], 0)
    execution_ns = np.maximum(kernel.end_ns, runtime.end_ns[call]) - runtime.start_ns[call]
    api_ns, calls = _distinct_calls(groups, call, runtime.duration_ns)
    count, queued = groups.counts, groups.sums((queue_ns > 0).astype(np.int64))
    waited_ns, kernel_ns, total_ns = (groups.sums(column) for column in (queue_ns, kernel.duration_ns, execution_ns))
    rows = rows_of(
        KernelExecutionRow,
        name=_names(trace, kernel.name[groups.first]),
        api=_names(trace, runtime.name[call[groups.first]]),
        count=count,
        calls=calls,
        api_total_us=api_ns / 1000,
        api_average_us=api_ns / calls / 1000,
        queued_count=queued,
        queue_total_us=waited_ns / 1000,
        queue_average_us=[
            None if not number else ns / number / 1000
            for ns, number in zip(waited_ns.tolist(), queued.tolist(), strict=True)
        ],
        kernel_total_us=kernel_ns / 1000,
        kernel_average_us=kernel_ns / count / 1000,
        total_us=total_ns / 1000,
        average_us=total_ns / count / 1000,
        share_of_table_ratio=shares(total_ns, int(total_ns.sum())),
        kernel_share_of_window_ratio=shares(kernel_ns, window_ns),
    )
    return tuple(sorted(rows, key=lambda row: (-row.total_us, row.name, row.api)))


def _distinct_calls(groups: Groups, call: Rows, duration_ns: Int64) -> tuple[Int64, Int64]:
    """Duration and number of the calls of each group, a call that launched several kernels of it counted once."""
    once = groups_of(groups.of_row, call).first
    of_group = groups.of_row[once]
    return summed(of_group, duration_ns[call[once]], len(groups)), np.bincount(of_group, minlength=len(groups))


def _launch_to_start(linked: LinkedTrace) -> LaunchLatency | None:
    waits_ns = (linked.work.start_ns - linked.launch_start_ns)[linked.launched]
    if not len(waits_ns):
        return None
    return LaunchLatency(
        count=len(waits_ns),
        negative_count=int((waits_ns < 0).sum()),
        average_us=int(waits_ns.sum()) / len(waits_ns) / 1000,
        median_us=float(np.median(waits_ns)) / 1000,
        min_us=int(waits_ns.min()) / 1000,
        max_us=int(waits_ns.max()) / 1000,
    )
