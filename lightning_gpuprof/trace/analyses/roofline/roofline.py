"""Each operator's share of the device's roofline, and the window's MFU."""

import math
from collections.abc import Mapping

import numpy as np

from lightning_gpuprof.model.trace.kernels import MeasuredKernel
from lightning_gpuprof.model.trace.roofline import Ceiling, MeasuredCeilings, Rate, Resource, Roofline, RooflineRow
from lightning_gpuprof.trace.analyses.devices.device_peaks import Ceilings, ceilings_of
from lightning_gpuprof.trace.analyses.roofline.work_groups import WorkGroups, work_groups
from lightning_gpuprof.trace.intervals import covered_ns
from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.tables import Mask, distinct

MARGIN = 1.05
"""A rate may be so much above its peak before the work is called wrong: times have a resolution, and clocks boost."""
MAX_ROWS = 1000


def roofline(
    linked: LinkedTrace,
    *,
    measured: MeasuredCeilings | None = None,
    counters: Mapping[str, MeasuredKernel] | None = None,
) -> Roofline:
    """Hold the operators of a window against the device's roofline.

    Args:
        linked: The trace; it must have been recorded with shapes.
        measured: What the device was measured to do at most; stands in for the data sheet's peaks, but not in the MFU.
        counters: What Nsight Compute measured, by kernel: its bytes stand in for the least that shapes allow.

    Returns:
        The roofline; without rows, and with the reason, if the window has no shapes, no device work, or no operator
        whose work is known.
    """
    groups = work_groups(linked) if len(linked.work) else None
    device = _device(linked, groups)
    ceilings = ceilings_of(linked.trace, device, measured)
    if groups is None:
        return Roofline(reason=_reason(linked), device=ceilings.device)
    moved = _dram_bytes(linked, groups, counters or {})
    rows = [_row(groups, number, ceilings, moved[number]) for number in range(len(groups.operators))]
    of_matrix = groups.is_matrix
    window_flops = _by_dtype(groups, of_matrix[groups.call_group])
    total = sum(window_flops.values())
    too_fast = np.array([row.faster_than == "compute" for row in rows], np.bool_)[groups.call_group]
    reduced = np.array([row.algorithm is not None for row in rows], np.bool_)[groups.call_group]
    devices = distinct(linked.work.device[groups.work_group >= 0]).tolist()
    busy_ns = sum(
        covered_ns(linked.work.start_ns[own], linked.work.end_ns[own])
        for own in (linked.launched & (linked.work.device == number) for number in devices)
    )
    in_steps = _flops_in_steps(linked, groups)
    step_s = int((linked.steps.end_ns - linked.steps.start_ns).sum()) / 1e9
    order = sorted(range(len(rows)), key=lambda at: (-int(groups.device_ns[at]), rows[at].operator, at))
    return Roofline(
        device=ceilings.device,
        devices=len(devices),
        peak_source=ceilings.peak_source,
        ceilings=_ceilings(groups, ceilings),
        bytes_per_s=ceilings.bytes_per_s,
        bytes_measured=ceilings.measured_bytes_per_s is not None,
        rows=tuple(rows[at] for at in order[:MAX_ROWS]),
        rows_left_out=max(len(rows) - MAX_ROWS, 0),
        flops_by_dtype=window_flops,
        busy=_rate(window_flops, busy_ns / 1e9, busy_ns / 1e9, ceilings),
        matrix_us=groups.matrix_ns / 1000,
        coverage_ratio=groups.matrix_known_ns / groups.matrix_ns if groups.matrix_ns else None,
        faster_flops_ratio=float(groups.call_flops[too_fast].sum()) / total if total else None,
        reduced_flops_ratio=float(groups.call_flops[reduced].sum()) / total if total else None,
        flops_per_step=None if in_steps is None else sum(in_steps.values()) / len(linked.steps),
        steps=None if in_steps is None else _rate(in_steps, step_s, step_s * len(devices), ceilings),
    )


def _device(linked: LinkedTrace, groups: WorkGroups | None) -> int | None:
    """The device that did most of the known work, else of all work."""
    work = linked.work
    own = work.where(groups.work_group >= 0) if groups is not None else work
    if not len(own):
        return None
    return int(np.bincount(own.device, weights=own.duration_ns).argmax())


def _reason(linked: LinkedTrace) -> str:
    if not len(linked.work):
        return "The window has no device activity."
    if not len(linked.trace.cpu_op):
        return "The window has no operators."
    if not (linked.trace.cpu_op.inputs >= 0).any():
        return "The window was recorded without input shapes (record_shapes)."
    return "The window has no operator with known FLOPs and bytes that launched anything on the device."


def _ceilings(groups: WorkGroups, ceilings: Ceilings) -> tuple[Ceiling, ...]:
    used = {dtype for dtype, kind in zip(groups.dtypes, groups.is_matrix, strict=True) if dtype and kind}
    known = [(dtype, rate) for dtype in used if (rate := ceilings.flops_per_s(dtype)) is not None]
    return tuple(
        Ceiling(dtype=dtype, flops_per_s=rate, measured=dtype in ceilings.measured_flops_per_s)
        for dtype, rate in sorted(known, key=lambda item: (-item[1], item[0]))
    )


def _dram_bytes(linked: LinkedTrace, groups: WorkGroups, counters: Mapping[str, MeasuredKernel]) -> list[float | None]:
    """Measured bytes of each group; None where not all of its work was measured."""
    count = len(groups.operators)
    if not counters:
        return [None] * count
    names, work = linked.trace.names, linked.work.where(groups.work_group >= 0)
    kinds, number = np.unique(work.name, return_inverse=True)
    known = (counters.get(names[kind]) for kind in kinds.tolist())
    each = np.array([np.nan if one is None or one.dram_bytes is None else one.dram_bytes for one in known], np.float64)
    sums = np.bincount(groups.work_group[groups.work_group >= 0], weights=each[number], minlength=count)
    return [None if math.isnan(moved) or moved <= 0 else moved for moved in sums.tolist()]


def _row(groups: WorkGroups, number: int, ceilings: Ceilings, measured_bytes: float | None) -> RooflineRow:
    calls, seconds = int(groups.calls[number]), int(groups.device_ns[number]) / 1e9
    flops, moved = float(groups.flops[number]), float(groups.bytes[number])
    dtype, is_matrix = groups.dtypes[number], bool(groups.is_matrix[number])
    least_bytes = None if math.isnan(moved) or moved <= 0 else moved
    known_bytes = measured_bytes or least_bytes
    flops_per_s = flops / seconds if seconds else None
    bytes_per_s = known_bytes / seconds if known_bytes and seconds else None
    peak, bandwidth = ceilings.flops_per_s(dtype), ceilings.bytes_per_s
    possible, possible_bytes = ceilings.possible_flops_per_s(dtype), ceilings.possible_bytes_per_s

    faster: Resource | None = None
    algorithm = groups.algorithms[number]
    if is_matrix and possible and not algorithm and flops_per_s and flops_per_s > MARGIN * possible:
        faster = "compute"
    elif bytes_per_s and possible_bytes and bytes_per_s > MARGIN * possible_bytes:
        faster = "memory"

    at_memory = known_bytes / bandwidth if known_bytes and bandwidth else None
    at_compute = flops / peak if is_matrix and peak else 0.0 if not is_matrix else None
    least = max(at_memory, at_compute) if at_memory is not None and at_compute is not None else None
    bound: Resource | None = None
    if at_memory is not None and at_compute is not None:
        bound = "compute" if at_compute >= at_memory else "memory"
    return RooflineRow(
        operator=groups.operators[number],
        input_shape=groups.shapes[number],
        dtype=dtype,
        kind=groups.kinds[number],
        calls=calls,
        flops_per_call=flops / calls,
        bytes_per_call=least_bytes / calls if least_bytes else None,
        flops_per_byte=flops / least_bytes if least_bytes else None,
        measured_bytes_per_call=measured_bytes / calls if measured_bytes else None,
        measured_flops_per_byte=flops / measured_bytes if measured_bytes else None,
        device_us=seconds * 1e6,
        device_average_us=seconds * 1e6 / calls,
        flops_per_s=flops_per_s,
        bytes_per_s=bytes_per_s,
        ceiling_flops_per_s=flops / least if least and flops else None,
        ceiling_ratio=least / seconds if least and seconds and not (faster or algorithm) else None,
        bound=bound,
        faster_than=faster,
        algorithm=algorithm,
    )


def _by_dtype(groups: WorkGroups, chosen: Mask) -> dict[str, float]:
    """FLOPs of the chosen calls per type; the key is empty where the type is not known."""
    per_group = np.bincount(
        groups.call_group[chosen], weights=groups.call_flops[chosen], minlength=len(groups.operators)
    )
    sums: dict[str, float] = {}
    for dtype, flops in zip(groups.dtypes, per_group.tolist(), strict=True):
        if flops:
            sums[dtype or ""] = sums.get(dtype or "", 0.0) + flops
    return dict(sorted(sums.items(), key=lambda item: (-item[1], item[0])))


def _flops_in_steps(linked: LinkedTrace, groups: WorkGroups) -> dict[str, float] | None:
    """Matrix FLOPs of operators that began in a step; None without steps."""
    if not len(linked.steps):
        return None
    in_step = linked.steps.at(linked.trace.cpu_op.start_ns[groups.call_row]) >= 0
    return _by_dtype(groups, in_step & groups.is_matrix[groups.call_group])


def _rate(flops: dict[str, float], seconds: float, device_seconds: float, ceilings: Ceilings) -> Rate | None:
    if not seconds or not flops:
        return None
    total = sum(flops.values())
    return Rate(
        seconds=seconds,
        flops=total,
        flops_per_s=total / seconds,
        mfu_ratio=_utilization(flops, device_seconds, ceilings.peak_flops_per_s),
        measured_ratio=_utilization(flops, device_seconds, ceilings.measured_flops_per_s),
    )


def _utilization(flops: dict[str, float], seconds: float, peaks: Mapping[str, float]) -> float | None:
    if any(dtype not in peaks for dtype in flops):
        return None
    ratio = sum(amount / peaks[dtype] for dtype, amount in flops.items()) / seconds
    return ratio if ratio <= MARGIN else None
