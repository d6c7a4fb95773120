"""Ranks kernels by what could be saved on them at most."""

import msgspec
import numpy as np

from lightning_gpuprof.model.device_peaks import peaks_of
from lightning_gpuprof.model.trace.kernels import KernelDtype, NoSaving, NoSavingRow, SavingRow
from lightning_gpuprof.trace.analyses.joins.grouped import groups_of, rows_of
from lightning_gpuprof.trace.analyses.kernels.device_fill import KernelFill
from lightning_gpuprof.trace.analyses.kernels.kernel_traits import KernelTraits, Trait, tensor_cores_available
from lightning_gpuprof.trace.analyses.kernels.small_kernels import SMALL_NS
from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.reader import Trace
from lightning_gpuprof.trace.tables import Int64, distinct, ratio


class _KernelGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Kernels of one name and class that are all small, or all not."""

    trait: Trait
    small: bool
    count: int
    total_ns: int
    launched: int
    """How many have their launch in the trace."""
    known_ns: int
    """Time of those whose fill is known."""
    unfilled_ns: float
    """Time x (1 - est. SM efficiency)."""
    gaps_ns: int


class _FasterKernel(msgspec.Struct, frozen=True, kw_only=True):
    """How much faster than in fp32 the tensor cores of a device are, and with inputs of which type."""

    dtype: KernelDtype
    ratio: float


def kernel_savings(
    linked: LinkedTrace, traits: KernelTraits, fill: KernelFill, gap_ns: Int64
) -> tuple[tuple[SavingRow, ...], tuple[NoSavingRow, ...]]:
    """Estimate savings, each kernel by one estimate; see :class:`SavingRow`.

    Args:
        linked: The trace.
        traits: What the names say.
        fill: How far kernels can fill their device.
        gap_ns: Of each kernel, see :func:`launch_gaps_ns`.

    Returns:
        Savings, the largest first; and what is in none of them, by reason.
    """
    available = tensor_cores_available(linked.trace)
    faster = _faster_than_fp32(linked.trace) if available else None
    savings: list[SavingRow] = []
    without: dict[NoSaving, tuple[int, int]] = {}
    for alike in _kernel_groups(linked, traits, fill, gap_ns):
        off_tensor_cores = available is not False and alike.trait.tensor_cores == "no" and not alike.trait.unsuited
        estimate = _estimate(alike, off_tensor_cores, faster)
        if isinstance(estimate, SavingRow):
            savings.append(estimate)
        else:
            count, total_ns = without.get(estimate, (0, 0))
            without[estimate] = count + alike.count, total_ns + alike.total_ns
    all_ns = int(linked.trace.kernel.duration_ns.sum())
    savings.sort(key=lambda row: (-row.saving_us, row.name, row.kind))
    reasons = sorted(without.items(), key=lambda item: (-item[1][1], item[0]))
    return tuple(savings), tuple(
        NoSavingRow(why=why, count=count, total_us=time / 1000, share_ratio=ratio(time, all_ns))
        for why, (count, time) in reasons
    )


def _kernel_groups(linked: LinkedTrace, traits: KernelTraits, fill: KernelFill, gap_ns: Int64) -> list[_KernelGroup]:
    kernel = linked.trace.kernel
    duration_ns = kernel.duration_ns
    small = duration_ns < SMALL_NS
    of_class = traits.numbered([trait.kernel_class for trait in traits.of_group])
    groups = groups_of(kernel.name, of_class, small.astype(np.int64))
    known = ~np.isnan(fill.est_sm_efficiency_ratio)
    unfilled = np.where(known, 1 - fill.est_sm_efficiency_ratio, 0.0)
    return rows_of(
        _KernelGroup,
        trait=traits.at(groups.first),
        small=small[groups.first],
        count=groups.counts,
        total_ns=groups.sums(duration_ns),
        launched=groups.sums(linked.launched[: len(kernel)].astype(np.int64)),
        known_ns=groups.sums(np.where(known, duration_ns, 0)),
        unfilled_ns=groups.weighted(unfilled, duration_ns),
        gaps_ns=groups.sums(gap_ns),
    )


def _estimate(alike: _KernelGroup, off_tensor_cores: bool, faster: _FasterKernel | None) -> SavingRow | NoSaving:
    if alike.trait.kernel_class == "communication":
        return "communication"
    row = SavingRow(
        name=alike.trait.name,
        kernel_class=alike.trait.kernel_class,
        dtype=alike.trait.dtype,
        kind="launch gap",
        count=alike.count,
        total_us=alike.total_ns / 1000,
        saving_us=alike.gaps_ns / 1000,
    )
    if alike.small:
        if not alike.gaps_ns:
            return "the device did not wait" if alike.launched else "launch not in the trace"
        return row
    if off_tensor_cores and faster is not None and alike.trait.dtype == "fp32":
        tensor_ns = alike.total_ns * (1 - 1 / faster.ratio)
        if tensor_ns > alike.unfilled_ns:
            return msgspec.structs.replace(
                row,
                kind="no tensor cores",
                saving_us=tensor_ns / 1000,
                peak_ratio=faster.ratio,
                faster_dtype=faster.dtype,
            )
    if alike.unfilled_ns > 0:
        return msgspec.structs.replace(
            row,
            kind="idle multiprocessors",
            saving_us=alike.unfilled_ns / 1000,
            est_sm_efficiency_ratio=1 - alike.unfilled_ns / alike.known_ns,
        )
    if off_tensor_cores:
        return "peak ratio not known"
    return "fills the device" if alike.known_ns else "geometry not known"


def _faster_than_fp32(trace: Trace) -> _FasterKernel | None:
    """Of the devices that ran kernels, if they are of one product."""
    names = {trace.product_of(device) for device in distinct(trace.kernel.device).tolist()}
    name = names.pop() if len(names) == 1 else None
    peaks = None if name is None else peaks_of(name)
    if peaks is None or (fp32 := peaks.flops_per_s.get("fp32")) is None:
        return None
    if "MI" in peaks.name:
        return None  # AMD's fp32 rate is that of the matrix cores
    # TF32 takes a switch, half precision another type: the first that is faster
    targets: tuple[KernelDtype, ...] = ("tf32", "bf16", "fp16")
    rates = [(target, peaks.flops_per_s[target]) for target in targets if target in peaks.flops_per_s]
    return next((_FasterKernel(dtype=target, ratio=rate / fp32) for target, rate in rates if rate > fp32), None)
