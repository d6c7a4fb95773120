"""What the kernels are: classes, types, tensor cores, fill of the device, activity, savings."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from lightning_gpuprof.model.phases import PHASES
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
from lightning_gpuprof.trace.analyses.joins.call_places import call_places
from lightning_gpuprof.trace.analyses.joins.grouped import (
    Groups,
    Statistics,
    groups_of,
    rows_of,
    shares,
    statistics_of,
)
from lightning_gpuprof.trace.analyses.kernels.device_fill import KernelFill, filled_window_ns, kernel_fill
from lightning_gpuprof.trace.analyses.kernels.kernel_savings import kernel_savings
from lightning_gpuprof.trace.analyses.kernels.kernel_traits import (
    KernelTraits,
    Trait,
    kernel_traits,
    tensor_cores_available,
)
from lightning_gpuprof.trace.analyses.kernels.launch_shape import LaunchShapes, launch_shapes
from lightning_gpuprof.trace.analyses.kernels.small_kernels import duration_buckets, launch_gaps_ns, small_kernels
from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.nesting import take_or_absent
from lightning_gpuprof.trace.tables import ABSENT, Float64, Int64, Rows, ratio

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
        Empty tables, and None, where the trace has no kernel.
    """
    kernel = linked.trace.kernel
    traits, shapes = kernel_traits(linked), launch_shapes(linked)
    fill = kernel_fill(linked, shapes)
    gap_ns = launch_gaps_ns(linked)
    window_ns = sum(busy.length_ns for busy in linked.device_busy.values())
    savings, no_savings = kernel_savings(linked, traits, fill, gap_ns)
    activity = _activity(linked, traits, shapes, fill)
    return KernelFacts(
        count=len(kernel),
        total_us=int(kernel.duration_ns.sum()) / 1000,
        device_window_us=window_ns / 1000 if linked.device_busy else None,
        classes=_classes(traits, fill, kernel.duration_ns),
        dtypes=_dtypes(traits, kernel.duration_ns),
        tensor_cores=_tensor_cores(linked, traits),
        fill=_fill(linked, shapes, fill, window_ns),
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
    total_ns, count = groups.sums(duration_ns), groups.counts
    rows = rows_of(
        ClassRow,
        kernel_class=[trait.kernel_class for trait in traits.at(groups.first)],
        count=count,
        total_us=total_ns / 1000,
        share_ratio=shares(total_ns, int(total_ns.sum())),
        average_us=total_ns / count / 1000,
        est_sm_efficiency_ratio=groups.averages(fill.est_sm_efficiency_ratio, duration_ns),
        est_occupancy_ratio=groups.averages(fill.est_occupancy_ratio, duration_ns),
    )
    return tuple(sorted(rows, key=lambda row: (-row.total_us, row.kernel_class)))


def _dtypes(traits: KernelTraits, duration_ns: Int64) -> tuple[DtypeRow, ...]:
    groups = groups_of(traits.numbered([trait.dtype for trait in traits.of_group]))
    of_matrices = traits.where(lambda trait: trait.tensor_cores is not None)
    total_ns, matrix_ns = groups.sums(duration_ns), groups.sums(np.where(of_matrices, duration_ns, 0))
    rows = rows_of(
        DtypeRow,
        dtype=[trait.dtype for trait in traits.at(groups.first)],
        count=groups.counts,
        total_us=total_ns / 1000,
        share_ratio=shares(total_ns, int(total_ns.sum())),
        matrix_us=matrix_ns / 1000,
        matrix_share_ratio=shares(matrix_ns, int(matrix_ns.sum())),
    )
    return tuple(sorted(rows, key=lambda row: (-row.total_us, row.dtype or "")))


def _tensor_cores(linked: LinkedTrace, traits: KernelTraits) -> TensorCoreUse | None:
    if all(trait.tensor_cores is None for trait in traits.of_group):
        return None
    kernel = linked.trace.kernel

    def spent_us(wanted: Callable[[Trait], bool]) -> float:
        return int(kernel.duration_ns[traits.where(wanted)].sum()) / 1000

    without = np.flatnonzero(traits.where(lambda trait: trait.tensor_cores == "no" and not trait.unsuited))
    groups = groups_of(kernel.name[without])
    largest = rows_of(
        KernelTime,
        name=[linked.trace.names[name] for name in kernel.name[without][groups.first].tolist()],
        count=groups.counts,
        total_us=groups.sums(kernel.duration_ns[without]) / 1000,
    )
    largest.sort(key=lambda row: (-row.total_us, row.name))
    return TensorCoreUse(
        available=tensor_cores_available(linked.trace),
        matrix_us=spent_us(lambda trait: trait.tensor_cores is not None),
        yes_us=spent_us(lambda trait: trait.tensor_cores == "yes"),
        no_us=spent_us(lambda trait: trait.tensor_cores == "no"),
        unknown_us=spent_us(lambda trait: trait.tensor_cores == "unknown"),
        unsuited_us=spent_us(lambda trait: trait.unsuited),
        largest_no=tuple(largest[:LARGEST_WITHOUT_TENSOR_CORES]),
    )


def _fill(linked: LinkedTrace, shapes: LaunchShapes, fill: KernelFill, window_ns: int) -> KernelFillFacts:
    duration_ns = linked.trace.kernel.duration_ns
    everything = groups_of(np.zeros(len(duration_ns), np.int64))
    all_ns = int(duration_ns.sum())

    def average(values: Float64) -> float | None:
        return next(iter(everything.averages(values, duration_ns)), None)

    def known_ratio(values: Float64) -> float | None:
        return ratio(int(duration_ns[~np.isnan(values)].sum()), all_ns)

    computed = np.array([one.occupancy_source == "computed" for one in fill.of_launch], np.bool_)[shapes.groups.of_row]
    efficiency_known = known_ratio(fill.est_sm_efficiency_ratio)
    with_tail = ~np.isnan(fill.tail_ratio)
    tail_ns = float((fill.tail_ratio[with_tail] * duration_ns[with_tail]).sum())
    of_window = None
    if efficiency_known is not None and efficiency_known >= KNOWN_ENOUGH_RATIO:
        of_window = ratio(filled_window_ns(linked, fill), window_ns)
    return KernelFillFacts(
        est_sm_efficiency_ratio=average(fill.est_sm_efficiency_ratio),
        est_sm_efficiency_known_ratio=efficiency_known,
        est_sm_efficiency_of_window_ratio=of_window,
        est_occupancy_ratio=average(fill.est_occupancy_ratio),
        est_occupancy_known_ratio=known_ratio(fill.est_occupancy_ratio),
        est_occupancy_computed_ratio=ratio(int(duration_ns[computed].sum()), all_ns),
        waves_known_ratio=known_ratio(fill.waves),
        tail_us=tail_ns / 1000 if np.any(~np.isnan(fill.waves)) else None,
    )


def _by_name(linked: LinkedTrace, traits: KernelTraits, fill: KernelFill) -> tuple[KernelRow, ...]:
    kernel = linked.trace.kernel
    groups = groups_of(kernel.name, traits.numbered([trait.kernel_class for trait in traits.of_group]))
    found, of_group = statistics_of(kernel.duration_ns, groups), traits.at(groups.first)
    rows = rows_of(
        KernelRow,
        name=[trait.name for trait in of_group],
        kernel_class=[trait.kernel_class for trait in of_group],
        dtype=[trait.dtype for trait in of_group],
        tensor_cores=[trait.tensor_cores for trait in of_group],
        share_ratio=shares(found.total, int(found.total.sum())),
        **_times(found),
        **_averages(groups, fill, kernel.duration_ns),
    )
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
    found, of_group = statistics_of(kernel.duration_ns, groups), traits.at(groups.first)
    shown = [shapes.geometries[shape] for shape in shapes.groups.of_row[groups.first].tolist()]
    operators, streams = traits.operator_name[groups.first].tolist(), kernel.stream[groups.first].tolist()
    places, launch = call_places(linked), linked.launch[: len(kernel)]
    modules, phases = (_common(groups, take_or_absent(column, launch)) for column in (places.module, places.phase))
    rows = rows_of(
        ActivityRow,
        name=[trait.name for trait in of_group],
        operator=[None if operator == ABSENT else trace.names[operator] for operator in operators],
        device=[trace.devices[device] for device in kernel.device[groups.first].tolist()],
        stream=[None if stream == ABSENT else stream for stream in streams],
        grid=[one.grid for one in shown],
        block=[one.block for one in shown],
        registers_per_thread=[one.registers_per_thread for one in shown],
        shared_memory_bytes=[one.shared_memory_bytes for one in shown],
        module=[None if module == ABSENT else places.modules.whole_names[module] for module in modules],
        phase=[None if phase == ABSENT else PHASES[phase] for phase in phases],
        kernel_class=[trait.kernel_class for trait in of_group],
        dtype=[trait.dtype for trait in of_group],
        **_times(found),
        **_averages(groups, fill, kernel.duration_ns),
    )
    rows.sort(
        key=lambda row: (-row.total_us, row.name, row.operator or "", row.device, row.stream or 0, row.grid or ())
    )
    return rows


def _common(groups: Groups, values: Rows) -> list[int]:
    """The value that all rows of each group have, :data:`ABSENT` where they differ."""
    least, most = (values[groups.first].copy() for _ in range(2))
    np.minimum.at(least, groups.of_row, values)
    np.maximum.at(most, groups.of_row, values)
    common: list[int] = np.where(least == most, least, ABSENT).tolist()
    return common


def _times(found: Statistics) -> dict[str, npt.NDArray[Any]]:
    return {
        "count": found.count,
        "total_us": found.total / 1000,
        "average_us": found.total / found.count / 1000,
        "min_us": found.min / 1000,
        "max_us": found.max / 1000,
    }


def _averages(groups: Groups, fill: KernelFill, duration_ns: Int64) -> dict[str, list[float | None]]:
    fields = ("est_sm_efficiency_ratio", "est_occupancy_ratio", "waves", "tail_ratio")
    return {field: groups.averages(getattr(fill, field), duration_ns) for field in fields}
