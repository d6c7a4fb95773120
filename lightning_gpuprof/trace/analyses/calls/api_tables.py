"""The tables that ``nsys stats`` prints: API calls, kernels, copies and memsets, launches."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from lightning_gpuprof.model.trace.api_tables import (
    ApiTables,
    KernelExecutionRow,
    LaunchLatency,
    LaunchShapeRow,
    MemorySizeRow,
    TimeRow,
)
from lightning_gpuprof.trace.analyses.joins.grouped import Groups, groups_of, statistics_of
from lightning_gpuprof.trace.analyses.kernels.launch_shape import launch_shapes
from lightning_gpuprof.trace.distinct import median
from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.reader import Trace
from lightning_gpuprof.trace.tables import DeviceSpans, Int32, Int64, Rows, joined

_NS_PER_S = 1_000_000_000


def api_tables(linked: LinkedTrace) -> ApiTables:
    """The tables of Nsight Systems, of everything in a trace.

    Args:
        linked: The trace.

    Returns:
        Tables without rows, and None, where the trace holds nothing of the kind.
    """
    trace, kernel = linked.trace, linked.trace.kernel
    windows_ns = [
        int(linked.work.end_ns[rows].max() - linked.work.start_ns[rows].min()) for rows in linked.device_rows.values()
    ]
    device_window_ns = sum(windows_ns) if windows_ns else None
    host_window_ns = _host_window_ns(trace)
    memory = joined(DeviceSpans, [trace.memcpy, trace.memset])
    return ApiTables(
        device_window_us=_us_or_none(device_window_ns),
        host_window_us=_us_or_none(host_window_ns),
        api_total_us=_us(int(trace.runtime.duration_ns.sum())),
        kernel_total_us=_us(int(kernel.duration_ns.sum())),
        memory_total_us=_us(int(memory.duration_ns.sum())),
        cuda_api_sum=_by_name(trace, trace.runtime.name, trace.runtime.duration_ns, host_window_ns),
        cuda_gpu_kern_sum=_by_name(trace, kernel.name, kernel.duration_ns, device_window_ns),
        cuda_gpu_kern_gb_sum=_by_launch_shape(linked, device_window_ns),
        cuda_gpu_mem_time_sum=_by_name(trace, memory.name, memory.duration_ns, device_window_ns),
        cuda_gpu_mem_size_sum=_sizes(trace, memory),
        cuda_kern_exec_sum=_executions(linked, device_window_ns),
        kernels_without_launch=int((~linked.launched[: len(kernel)]).sum()),
        launch_to_start=_launch_to_start(linked),
    )


def _host_window_ns(trace: Trace) -> int | None:
    tables = [t for t in (trace.runtime, trace.cpu_op, trace.annotation, trace.python_function) if len(t)]
    if not tables:
        return None
    return max(int(t.end_ns.max()) for t in tables) - min(int(t.start_ns.min()) for t in tables)


def _by_name(trace: Trace, name: Int32, duration_ns: Int64, window_ns: int | None) -> tuple[TimeRow, ...]:
    groups = groups_of(name)
    names = [trace.names[number] for number in name[groups.first].tolist()]
    rows = _time_rows(names, duration_ns, groups, window_ns)
    return tuple(sorted(rows, key=lambda row: (-row.total_us, row.name)))


def _by_launch_shape(linked: LinkedTrace, window_ns: int | None) -> tuple[LaunchShapeRow, ...]:
    trace, kernel, shapes = linked.trace, linked.trace.kernel, launch_shapes(linked)
    groups = groups_of(kernel.name, shapes.grid_and_block[shapes.groups.of_row])
    names = [trace.names[number] for number in kernel.name[groups.first].tolist()]
    launches = shapes.groups.of_row[groups.first].tolist()
    rows = [
        LaunchShapeRow(
            grid=shapes.geometries[launch].grid, block=shapes.geometries[launch].block, **msgspec.structs.asdict(row)
        )
        for row, launch in zip(_time_rows(names, kernel.duration_ns, groups, window_ns), launches, strict=True)
    ]
    return tuple(sorted(rows, key=lambda row: (-row.total_us, row.name, row.grid or (), row.block or ())))


def _time_rows(names: Sequence[str], duration_ns: Int64, groups: Groups, window_ns: int | None) -> list[TimeRow]:
    found = statistics_of(duration_ns, groups)
    table_ns = int(found.total.sum())
    columns = (found.count, found.total, found.average, found.median, found.min, found.max, found.std)
    return [
        TimeRow(
            name=name,
            count=count,
            total_us=_us(total),
            share_of_table_ratio=_ratio(total, table_ns),
            share_of_window_ratio=_ratio(total, window_ns),
            average_us=_us(average),
            median_us=_us(median),
            min_us=_us(least),
            max_us=_us(most),
            std_us=_us(std),
        )
        for name, count, total, average, median, least, most, std in zip(
            names, *(column.tolist() for column in columns), strict=True
        )
    ]


def _sizes(trace: Trace, memory: DeviceSpans) -> tuple[MemorySizeRow, ...]:
    sized = memory.where(memory.size_bytes >= 0)
    groups = groups_of(sized.name)
    found = statistics_of(sized.size_bytes, groups)
    table_bytes = int(found.total.sum())
    time_ns = groups.sums(sized.duration_ns).tolist()
    group_of = {name: one for one, name in enumerate(sized.name[groups.first].tolist())}
    rows = []
    all_groups = groups_of(memory.name)
    for name, count in zip(memory.name[all_groups.first].tolist(), all_groups.counts.tolist(), strict=True):
        one = group_of.get(name)
        total = None if one is None else int(found.total[one])
        rows.append(
            MemorySizeRow(
                name=trace.names[name],
                count=count,
                sized_count=0 if one is None else int(found.count[one]),
                total_bytes=total,
                share_of_table_ratio=None if total is None else _ratio(total, table_bytes),
                average_bytes=None if one is None else float(found.average[one]),
                median_bytes=None if one is None else float(found.median[one]),
                min_bytes=None if one is None else int(found.min[one]),
                max_bytes=None if one is None else int(found.max[one]),
                std_bytes=None if one is None else float(found.std[one]),
                bandwidth_bytes_per_s=(
                    None if one is None or total is None or not time_ns[one] else total * _NS_PER_S / time_ns[one]
                ),
            )
        )
    return tuple(sorted(rows, key=lambda row: (-(row.total_bytes or -1), row.name)))


def _executions(linked: LinkedTrace, window_ns: int | None) -> tuple[KernelExecutionRow, ...]:
    trace = linked.trace
    launched = np.flatnonzero(linked.launched[: len(trace.kernel)])
    kernel, call = trace.kernel.where(launched), linked.launch[launched]
    runtime = trace.runtime
    groups = groups_of(kernel.name, runtime.name[call])
    queue_ns = np.maximum(kernel.start_ns - runtime.end_ns[call], 0)
    execution_ns = np.maximum(kernel.end_ns, runtime.end_ns[call]) - runtime.start_ns[call]
    api_ns, calls = _distinct_calls(groups, call, runtime.duration_ns)
    columns = (
        groups.counts,
        calls,
        api_ns,
        groups.sums((queue_ns > 0).astype(np.int64)),
        groups.sums(queue_ns),
        groups.sums(kernel.duration_ns),
        groups.sums(execution_ns),
    )
    table_ns = int(execution_ns.sum())
    names = [trace.names[number] for number in kernel.name[groups.first].tolist()]
    apis = [trace.names[number] for number in runtime.name[call[groups.first]].tolist()]
    rows = [
        KernelExecutionRow(
            name=name,
            api=api,
            count=count,
            calls=of_calls,
            api_total_us=_us(of_api),
            api_average_us=_us(of_api / of_calls),
            queued_count=queued,
            queue_total_us=_us(of_queue),
            queue_average_us=_us(of_queue / queued) if queued else None,
            kernel_total_us=_us(of_kernel),
            kernel_average_us=_us(of_kernel / count),
            total_us=_us(total),
            average_us=_us(total / count),
            share_of_table_ratio=_ratio(total, table_ns),
            kernel_share_of_window_ratio=_ratio(of_kernel, window_ns),
        )
        for name, api, count, of_calls, of_api, queued, of_queue, of_kernel, total in zip(
            names, apis, *(column.tolist() for column in columns), strict=True
        )
    ]
    return tuple(sorted(rows, key=lambda row: (-row.total_us, row.name, row.api)))


def _distinct_calls(groups: Groups, call: Rows, duration_ns: Int64) -> tuple[Int64, Int64]:
    """Duration and number of the calls of each group, a call that launched several kernels of it counted once."""
    once = groups_of(groups.of_row, call).first
    of_group = groups.of_row[once]
    time_ns = np.zeros(len(groups), np.int64)
    np.add.at(time_ns, of_group, duration_ns[call[once]])
    return time_ns, np.bincount(of_group, minlength=len(groups))


def _launch_to_start(linked: LinkedTrace) -> LaunchLatency | None:
    waits_ns = (linked.work.start_ns - linked.launch_start_ns)[linked.launched]
    if not len(waits_ns):
        return None
    return LaunchLatency(
        count=len(waits_ns),
        negative_count=int((waits_ns < 0).sum()),
        average_us=_us(int(waits_ns.sum()) / len(waits_ns)),
        median_us=_us(median(waits_ns)),
        min_us=_us(int(waits_ns.min())),
        max_us=_us(int(waits_ns.max())),
    )


def _ratio(part: float, whole: int | None) -> float | None:
    return part / whole if whole else None


def _us(ns: float) -> float:
    return ns / 1000


def _us_or_none(ns: int | None) -> float | None:
    return None if ns is None else _us(ns)
