"""What the kernels are: classes, types, tensor cores, fill of the device, activity, savings."""

from __future__ import annotations

import numpy as np

from lightning_gpuprof.model.trace.kernels import (
    ActivityRow,
    ClassRow,
    DtypeRow,
    KernelFacts,
    KernelFillFacts,
    KernelRow,
    KernelTime,
    TensorCoreUse,
)
from lightning_gpuprof.trace.analyses.joins.grouped import Float64, Groups, groups_of, statistics_of
from lightning_gpuprof.trace.analyses.kernels.device_fill import KernelFill, filled_window_ns, kernel_fill
from lightning_gpuprof.trace.analyses.kernels.kernel_savings import kernel_savings
from lightning_gpuprof.trace.analyses.kernels.kernel_traits import KernelTraits, kernel_traits, tensor_cores_available
from lightning_gpuprof.trace.analyses.kernels.launch_shape import LaunchShapes, launch_shapes
from lightning_gpuprof.trace.analyses.kernels.small_kernels import duration_buckets, launch_gaps_ns, small_kernels
from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.tables import ABSENT, Int64

ACTIVITY_ROWS = 100
"""Rows of the kernel activity that are kept unless more are asked for."""

LARGEST_WITHOUT_TENSOR_CORES = 10
KNOWN_ENOUGH_RATIO = 0.95
"""Share of kernel time whose geometry must be known for a number about the whole window."""


def kernels(linked: LinkedTrace, *, activity_rows: int | None = ACTIVITY_ROWS) -> KernelFacts:
    """What the kernels of a trace are and how far they fill their device.

    Args:
        linked: The trace.
        activity_rows: Most rows of :attr:`KernelFacts.activity`; None for all of them.

    Returns:
        Empty tables, and None, where the trace holds no kernel.
    """
    kernel, work = linked.trace.kernel, linked.work
    traits, shapes = kernel_traits(linked), launch_shapes(linked)
    fill = kernel_fill(linked, shapes)
    gap_ns = launch_gaps_ns(linked)
    windows_ns = [int(work.end_ns[rows].max() - work.start_ns[rows].min()) for rows in linked.device_rows.values()]
    savings, no_savings = kernel_savings(linked, traits, fill, gap_ns)
    activity = _activity(linked, traits, shapes, fill)
    return KernelFacts(
        count=len(kernel),
        total_us=int(kernel.duration_ns.sum()) / 1000,
        device_window_us=sum(windows_ns) / 1000 if windows_ns else None,
        classes=_classes(traits, fill, kernel.duration_ns),
        dtypes=_dtypes(traits, kernel.duration_ns),
        tensor_cores=_tensor_cores(linked, traits),
        fill=_fill(linked, shapes, fill, sum(windows_ns)),
        kernels=_by_name(linked, traits, fill),
        activity=tuple(activity if activity_rows is None else activity[:activity_rows]),
        activity_rows=len(activity),
        durations=duration_buckets(kernel.duration_ns),
        small=small_kernels(linked, gap_ns),
        savings=savings,
        no_savings=no_savings,
    )


def _classes(traits: KernelTraits, fill: KernelFill, duration_ns: Int64) -> tuple[ClassRow, ...]:
    groups = groups_of(traits.numbered([trait.kernel_class for trait in traits.of_group]))
    totals, all_ns = groups.sums(duration_ns).tolist(), int(duration_ns.sum())
    efficiency = _averages(groups, fill.est_sm_efficiency_ratio, duration_ns)
    occupancy = _averages(groups, fill.est_occupancy_ratio, duration_ns)
    rows = [
        ClassRow(
            kernel_class=traits.of_group[number].kernel_class,
            count=count,
            total_us=totals[one] / 1000,
            share_ratio=_ratio(totals[one], all_ns),
            average_us=totals[one] / count / 1000,
            est_sm_efficiency_ratio=efficiency[one],
            est_occupancy_ratio=occupancy[one],
        )
        for one, (number, count) in enumerate(
            zip(traits.groups.of_row[groups.first].tolist(), groups.counts.tolist(), strict=True)
        )
    ]
    return tuple(sorted(rows, key=lambda row: (-row.total_us, row.kernel_class)))


def _dtypes(traits: KernelTraits, duration_ns: Int64) -> tuple[DtypeRow, ...]:
    groups = groups_of(traits.numbered([trait.dtype for trait in traits.of_group]))
    of_matrices = traits.are([trait.tensor_cores is not None for trait in traits.of_group])
    totals, all_ns = groups.sums(duration_ns).tolist(), int(duration_ns.sum())
    matrix_ns = groups.sums(np.where(of_matrices, duration_ns, 0)).tolist()
    rows = [
        DtypeRow(
            dtype=traits.of_group[number].dtype,
            count=count,
            total_us=totals[one] / 1000,
            share_ratio=_ratio(totals[one], all_ns),
            matrix_us=matrix_ns[one] / 1000,
            matrix_share_ratio=_ratio(matrix_ns[one], sum(matrix_ns)),
        )
        for one, (number, count) in enumerate(
            zip(traits.groups.of_row[groups.first].tolist(), groups.counts.tolist(), strict=True)
        )
    ]
    return tuple(sorted(rows, key=lambda row: (-row.total_us, row.dtype or "")))


def _tensor_cores(linked: LinkedTrace, traits: KernelTraits) -> TensorCoreUse | None:
    kernel = linked.trace.kernel
    times_ns = {
        answer: int(kernel.duration_ns[traits.are([t.tensor_cores == answer for t in traits.of_group])].sum())
        for answer in ("yes", "no", "unknown")
    }
    if all(trait.tensor_cores is None for trait in traits.of_group):
        return None
    without = np.flatnonzero(traits.are([t.tensor_cores == "no" and not t.unsuited for t in traits.of_group]))
    groups = groups_of(kernel.name[without])
    totals = groups.sums(kernel.duration_ns[without]).tolist()
    largest = [
        KernelTime(name=linked.trace.names[name], count=count, total_us=total / 1000)
        for name, count, total in zip(
            kernel.name[without][groups.first].tolist(), groups.counts.tolist(), totals, strict=True
        )
    ]
    largest.sort(key=lambda row: (-row.total_us, row.name))
    return TensorCoreUse(
        available=tensor_cores_available(linked.trace),
        matrix_us=sum(times_ns.values()) / 1000,
        yes_us=times_ns["yes"] / 1000,
        no_us=times_ns["no"] / 1000,
        unknown_us=times_ns["unknown"] / 1000,
        unsuited_us=int(kernel.duration_ns[traits.are([t.unsuited for t in traits.of_group])].sum()) / 1000,
        largest_no=tuple(largest[:LARGEST_WITHOUT_TENSOR_CORES]),
    )


def _fill(linked: LinkedTrace, shapes: LaunchShapes, fill: KernelFill, window_ns: int) -> KernelFillFacts:
    duration_ns = linked.trace.kernel.duration_ns
    everything = groups_of(np.zeros(len(duration_ns), np.int64))
    all_ns = int(duration_ns.sum())

    def known_ratio(values: Float64) -> float | None:
        return _ratio(int(duration_ns[~np.isnan(values)].sum()), all_ns)

    computed = np.array([one.occupancy_source == "computed" for one in fill.of_launch], np.bool_)[shapes.groups.of_row]
    efficiency_known = known_ratio(fill.est_sm_efficiency_ratio)
    with_tail = ~np.isnan(fill.tail_ratio)
    tail_ns = float((fill.tail_ratio[with_tail] * duration_ns[with_tail]).sum())
    of_window = None
    if efficiency_known is not None and efficiency_known >= KNOWN_ENOUGH_RATIO:
        of_window = _ratio(filled_window_ns(linked, fill), window_ns)
    return KernelFillFacts(
        est_sm_efficiency_ratio=_average(everything, fill.est_sm_efficiency_ratio, duration_ns),
        est_sm_efficiency_known_ratio=efficiency_known,
        est_sm_efficiency_of_window_ratio=of_window,
        est_occupancy_ratio=_average(everything, fill.est_occupancy_ratio, duration_ns),
        est_occupancy_known_ratio=known_ratio(fill.est_occupancy_ratio),
        est_occupancy_computed_ratio=_ratio(int(duration_ns[computed].sum()), all_ns),
        waves_known_ratio=known_ratio(fill.waves),
        tail_us=tail_ns / 1000 if np.any(~np.isnan(fill.waves)) else None,
    )


def _by_name(linked: LinkedTrace, traits: KernelTraits, fill: KernelFill) -> tuple[KernelRow, ...]:
    kernel = linked.trace.kernel
    duration_ns, all_ns = kernel.duration_ns, int(kernel.duration_ns.sum())
    groups = groups_of(kernel.name, traits.numbered([trait.kernel_class for trait in traits.of_group]))
    found = statistics_of(duration_ns, groups)
    columns = (
        traits.groups.of_row[groups.first].tolist(),
        found.count.tolist(),
        found.total.tolist(),
        found.min.tolist(),
        found.max.tolist(),
        _averages(groups, fill.est_sm_efficiency_ratio, duration_ns),
        _averages(groups, fill.est_occupancy_ratio, duration_ns),
        _averages(groups, fill.waves, duration_ns),
        _averages(groups, fill.tail_ratio, duration_ns),
    )
    rows = [
        KernelRow(
            name=traits.of_group[number].name,
            kernel_class=traits.of_group[number].kernel_class,
            dtype=traits.of_group[number].dtype,
            tensor_cores=traits.of_group[number].tensor_cores,
            count=count,
            total_us=total / 1000,
            share_ratio=_ratio(total, all_ns),
            average_us=total / count / 1000,
            min_us=least / 1000,
            max_us=most / 1000,
            est_sm_efficiency_ratio=efficiency,
            est_occupancy_ratio=occupancy,
            waves=waves,
            tail_ratio=tail,
        )
        for number, count, total, least, most, efficiency, occupancy, waves, tail in zip(*columns, strict=True)
    ]
    return tuple(sorted(rows, key=lambda row: (-row.total_us, row.name, row.kernel_class)))


def _activity(linked: LinkedTrace, traits: KernelTraits, shapes: LaunchShapes, fill: KernelFill) -> list[ActivityRow]:
    trace, kernel = linked.trace, linked.trace.kernel
    groups = groups_of(
        traits.groups.of_row,
        traits.operator_name,
        kernel.device,
        kernel.stream,
        shapes.grid_and_block[shapes.groups.of_row],
    )
    duration_ns = kernel.duration_ns
    found = statistics_of(duration_ns, groups)
    columns = (
        traits.groups.of_row[groups.first].tolist(),
        traits.operator_name[groups.first].tolist(),
        kernel.device[groups.first].tolist(),
        kernel.stream[groups.first].tolist(),
        shapes.groups.of_row[groups.first].tolist(),
        found.count.tolist(),
        found.total.tolist(),
        found.min.tolist(),
        found.max.tolist(),
        _averages(groups, fill.est_sm_efficiency_ratio, duration_ns),
        _averages(groups, fill.est_occupancy_ratio, duration_ns),
        _averages(groups, fill.waves, duration_ns),
        _averages(groups, fill.tail_ratio, duration_ns),
    )
    rows = [
        ActivityRow(
            name=traits.of_group[number].name,
            operator=None if operator == ABSENT else trace.names[operator],
            device=trace.devices[device],
            stream=None if stream == ABSENT else stream,
            grid=shapes.geometries[launch].grid,
            block=shapes.geometries[launch].block,
            kernel_class=traits.of_group[number].kernel_class,
            dtype=traits.of_group[number].dtype,
            count=count,
            total_us=total / 1000,
            average_us=total / count / 1000,
            min_us=least / 1000,
            max_us=most / 1000,
            est_sm_efficiency_ratio=efficiency,
            est_occupancy_ratio=occupancy,
            waves=waves,
            tail_ratio=tail,
        )
        for (
            number,
            operator,
            device,
            stream,
            launch,
            count,
            total,
            least,
            most,
            efficiency,
            occupancy,
            waves,
            tail,
        ) in zip(*columns, strict=True)
    ]
    rows.sort(
        key=lambda row: (-row.total_us, row.name, row.operator or "", row.device, row.stream or 0, row.grid or ())
    )
    return rows


def _averages(groups: Groups, values: Float64, weights: Int64) -> list[float | None]:
    """Average of each group weighted by time, over the values that are known."""
    known = ~np.isnan(values)
    weight = groups.sums(np.where(known, weights, 0))
    total = groups.weighted(np.where(known, values, 0.0), np.where(known, weights, 0))
    return [part / whole if whole else None for part, whole in zip(total.tolist(), weight.tolist(), strict=True)]


def _average(groups: Groups, values: Float64, weights: Int64) -> float | None:
    return next(iter(_averages(groups, values, weights)), None)


def _ratio(part: float, whole: int) -> float | None:
    return part / whole if whole else None
