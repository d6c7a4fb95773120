"""How far kernels can fill their device: est. SM efficiency, est. occupancy, waves, blocks on a multiprocessor."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from math import prod
from typing import Literal

import msgspec
import numpy as np

from lightning_gpuprof.trace.analyses.kernels.launch_shape import LaunchShapes
from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.tables import Float64, Geometry, Int64

OccupancySource = Literal["kineto", "computed"]

_WARP_THREADS = 32
_NO_DEVICE = 100_000
"""Multiprocessors that no device has."""
_TINY = 1e-9
_MANY_BLOCKS = 1 << 40
"""More than any device holds; sums of so many still fit 64 bits."""

_REGISTERS_UNIT = 256
"""Registers are given to a warp in units of so many."""

_MAX_BLOCKS = {(7, 5): 16, (8, 6): 16, (8, 7): 16, (8, 9): 24, (11, 0): 24, (12, 0): 24, (12, 1): 24}
"""Resident blocks per multiprocessor where they are not 32, by compute capability (CUDA C++ Programming Guide, table
"Technical Specifications per Compute Capability")."""

_NEWEST_MAJOR = 12


class Multiprocessor(msgspec.Struct, frozen=True, kw_only=True):
    """What one multiprocessor of an NVIDIA device holds."""

    compute_capability: tuple[int, int]
    threads: int
    registers: int
    shared_memory_bytes: int
    """With the largest share of the L1 cache that can be configured."""

    @property
    def blocks(self) -> int:
        """Most blocks, however small they are."""
        return _MAX_BLOCKS.get(self.compute_capability, 32)


class Fill(msgspec.Struct, frozen=True, kw_only=True):
    """How far one launch can fill its device, by its geometry alone; None where the trace does not say enough."""

    blocks: int | None = None
    est_sm_efficiency_ratio: float | None = None
    """The least of 1 and blocks per multiprocessor."""
    est_occupancy_ratio: float | None = None
    """Threads that a multiprocessor holds on average, over the most that it can hold."""
    occupancy_source: OccupancySource | None = None
    waves: float | None = None
    """Blocks over the blocks that the whole device holds at a time."""
    tail_ratio: float | None = None
    """Share of the room of all waves that the last one leaves empty; None below one wave, where there is no tail."""


class KernelFill(msgspec.Struct, frozen=True, kw_only=True):
    """The fill of all kernels: NaN, and 0 blocks, where it is not known."""

    of_launch: Sequence[Fill]
    """One for each launch of :class:`LaunchShapes`."""
    multiprocessors: Mapping[int, int | None]
    """How many each device has, by its number in :attr:`Trace.devices`."""
    blocks: Int64
    """One for each kernel, likewise below."""
    est_sm_efficiency_ratio: Float64
    est_occupancy_ratio: Float64
    waves: Float64
    tail_ratio: Float64


def kernel_fill(linked: LinkedTrace, shapes: LaunchShapes) -> KernelFill:
    """How far each kernel can fill its device.

    Args:
        linked: The trace.
        shapes: The launches of its kernels.

    Returns:
        Columns with one value for each row of :attr:`Trace.kernel`; NaN, and 0 blocks, where it is not known.
    """
    multiprocessors = {device: _multiprocessors(linked, shapes, device) for device in set(shapes.devices)}
    fills = [
        _fill(geometry, *multiprocessors[device])
        for geometry, device in zip(shapes.geometries, shapes.devices, strict=True)
    ]
    launch = shapes.groups.of_row
    return KernelFill(
        of_launch=fills,
        multiprocessors={device: count for device, (count, _) in multiprocessors.items()},
        blocks=np.array([min(fill.blocks or 0, _MANY_BLOCKS) for fill in fills], np.int64)[launch],
        est_sm_efficiency_ratio=_column([fill.est_sm_efficiency_ratio for fill in fills])[launch],
        est_occupancy_ratio=_column([fill.est_occupancy_ratio for fill in fills])[launch],
        waves=_column([fill.waves for fill in fills])[launch],
        tail_ratio=_column([fill.tail_ratio for fill in fills])[launch],
    )


def _column(values: Sequence[float | None]) -> Float64:
    return np.array([math.nan if value is None else value for value in values], np.float64)


def _multiprocessors(
    linked: LinkedTrace, shapes: LaunchShapes, device: int
) -> tuple[int | None, Multiprocessor | None]:
    """How many multiprocessors a device has, and what one holds."""
    properties = linked.trace.properties_of(device)
    if properties is not None:
        count = properties.get("numSms")
        if isinstance(count, int) and 0 < count < _NO_DEVICE:
            return count, multiprocessor_of(properties)
    # traces without properties still have ratios from which the number follows
    recorded = Counter(
        count
        for geometry, of_device in zip(shapes.geometries, shapes.devices, strict=True)
        if of_device == device and (count := _recorded_multiprocessors(geometry)) is not None
    )
    return (recorded.most_common(1)[0][0] if recorded else None), None


def _recorded_multiprocessors(geometry: Geometry) -> int | None:
    if geometry.grid is None or geometry.block is None:
        return None
    blocks, warps = prod(geometry.grid), prod(geometry.block) / _WARP_THREADS
    if geometry.blocks_per_sm:
        count = blocks / max(geometry.blocks_per_sm, _TINY)
    elif geometry.warps_per_sm and warps.is_integer():
        count = blocks * warps / max(geometry.warps_per_sm, _TINY)
    else:
        return None
    return round(count) if 0.5 < count < _NO_DEVICE else None


def _fill(geometry: Geometry, multiprocessors: int | None, each: Multiprocessor | None) -> Fill:
    written = geometry.est_occupancy_ratio
    occupancy = written if written is not None and 0 < written <= 1 else None
    source: OccupancySource | None = None if occupancy is None else "kineto"
    if geometry.grid is None or geometry.block is None or multiprocessors is None:
        return Fill(est_occupancy_ratio=occupancy, occupancy_source=source)
    blocks = prod(geometry.grid)
    per_multiprocessor = blocks / multiprocessors
    resident = None if each is None else resident_blocks(geometry, each)
    if occupancy is None and each is not None and resident is not None:
        # Kineto writes 0 for less than half a percent, and for kernels with more than 48 KiB of shared memory
        occupancy, source = min(resident, per_multiprocessor) * prod(geometry.block) / each.threads, "computed"
    waves = tail = None
    if resident is not None:
        at_a_time = multiprocessors * resident
        waves = blocks / at_a_time
        tail = None if waves < 1 else 1 - blocks / (-(-blocks // at_a_time) * at_a_time)
    return Fill(
        blocks=blocks,
        est_sm_efficiency_ratio=min(1.0, per_multiprocessor),
        est_occupancy_ratio=occupancy,
        occupancy_source=source,
        waves=waves,
        tail_ratio=tail,
    )


def filled_window_ns(linked: LinkedTrace, fill: KernelFill) -> float:
    """Time in which kernels fill their devices: at each moment the least of 1 and blocks per multiprocessor.

    The blocks of all kernels that run on a device at a moment count together, and time without kernels counts 0.

    Args:
        linked: The trace.
        fill: The fill of its kernels; one that is not known counts as empty.

    Returns:
        In ns, summed over all devices.
    """
    kernel = linked.trace.kernel
    filled_ns = 0.0
    for device, rows in linked.device_rows.items():
        count = fill.multiprocessors.get(device)
        own = rows[rows < len(kernel)]
        own = own[fill.blocks[own] > 0]
        if count is None or not len(own):
            continue
        moments = np.concatenate((kernel.start_ns[own], kernel.end_ns[own]))
        order = np.argsort(moments, kind="stable")
        running = np.cumsum(np.concatenate((fill.blocks[own], -fill.blocks[own]))[order])[:-1]
        lasts_ns = np.diff(moments[order])
        filled_ns += int((np.minimum(running, count) * lasts_ns).sum()) / count
    return filled_ns


def multiprocessor_of(properties: Mapping[str, object]) -> Multiprocessor | None:
    """The multiprocessor of a device, by an entry of a trace's ``deviceProperties``.

    Returns:
        None for devices of AMD, whose rules are others, and where a property is missing or the device is newer than
        the rules.
    """
    names = ("computeMajor", "computeMinor", "maxThreadsPerMultiprocessor", "regsPerMultiprocessor")
    found = [properties.get(name) for name in (*names, "sharedMemPerMultiprocessor", "warpSize")]
    numbers = [one for one in found if isinstance(one, int) and one >= 0]
    if len(numbers) < len(found) or numbers[-1] != _WARP_THREADS:
        return None  # a trace of ROCm has no "sharedMemPerMultiprocessor", or a wavefront of 64
    major, minor, threads, registers, shared_memory_bytes, _ = numbers
    if not 5 <= major <= _NEWEST_MAJOR or threads < _WARP_THREADS:
        return None
    return Multiprocessor(
        compute_capability=(major, minor), threads=threads, registers=registers, shared_memory_bytes=shared_memory_bytes
    )


def resident_blocks(geometry: Geometry, on: Multiprocessor) -> int | None:
    """Blocks of a launch that fit on one multiprocessor at a time, by the rules of NVIDIA's occupancy calculator.

    The least of four limits: threads (whole warps), registers (given to warps in units of 256, each of the partitions
    of the register file on its own), shared memory (in units of 256 bytes, from compute capability 8.0 on 128 and
    1 KiB more per block for the system), and the number of blocks.

    Args:
        geometry: The launch.
        on: The multiprocessor.

    Returns:
        None if the launch does not say its block, registers and shared memory, or could not have run by these rules.
    """
    registers, shared_bytes = geometry.registers_per_thread, geometry.shared_memory_bytes
    if geometry.block is None or registers is None or shared_bytes is None:
        return None
    x, y, z = geometry.block
    warps = -(-(x * y * z) // _WARP_THREADS)
    if not warps:
        return None
    limits = [on.blocks, on.threads // _WARP_THREADS // warps]
    if registers:
        per_warp = _rounded_up(registers * _WARP_THREADS, _REGISTERS_UNIT)
        partitions = 2 if on.compute_capability == (6, 0) else 4
        limits.append(on.registers // partitions // per_warp * partitions // warps)
    modern = on.compute_capability >= (8, 0)
    if per_block := _rounded_up(shared_bytes + (1024 if modern else 0), 128 if modern else 256):
        limits.append(on.shared_memory_bytes // per_block)
    return min(limits) or None


def _rounded_up(amount: int, unit: int) -> int:
    return -(-amount // unit) * unit
