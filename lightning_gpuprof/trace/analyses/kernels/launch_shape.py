"""The grids and blocks of kernels, each distinct launch looked at once."""

from collections.abc import Sequence

import msgspec
import numpy as np
from msgspec.structs import replace

from lightning_gpuprof.trace.analyses.joins.grouped import Groups, groups_of
from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.tables import ABSENT, Geometry, Int64, Mask

_GRID_IN_WORK_ITEMS = ("hipExtModuleLaunchKernel", "hipHccModuleLaunchKernel")
"""Functions of HIP that are given the size of the whole grid in work-items (threads), which Kineto passes on as it is;
all others are given blocks."""

_NO_SIZE = 1 << 32


class LaunchShapes(msgspec.Struct, frozen=True, kw_only=True):
    """The distinct launches of kernels."""

    groups: Groups
    """Which launch each kernel of :attr:`Trace.kernel` had."""
    geometries: Sequence[Geometry]
    """One per launch; grids in blocks."""
    devices: Sequence[int]
    """The device of each launch, as :attr:`Trace.devices` counts them."""
    grid_and_block: Int64
    """A number for each launch; the same for launches of the same grid and block."""


def launch_shapes(linked: LinkedTrace) -> LaunchShapes:
    """The launches of all kernels."""
    trace, kernel = linked.trace, linked.trace.kernel
    in_work_items = _in_work_items(linked)
    groups = groups_of(kernel.geometry, kernel.device, in_work_items.astype(np.int64))
    geometries = []
    for row in groups.first.tolist():
        number = int(kernel.geometry[row])
        geometry = Geometry() if number == ABSENT else _plausible(trace.geometries[number])
        geometries.append(_in_blocks(geometry) if in_work_items[row] else geometry)
    numbers: dict[object, int] = {}
    return LaunchShapes(
        groups=groups,
        geometries=geometries,
        devices=kernel.device[groups.first].tolist(),
        grid_and_block=np.array([numbers.setdefault((g.grid, g.block), len(numbers)) for g in geometries], np.int64),
    )


def _in_work_items(linked: LinkedTrace) -> Mask:
    count = len(linked.trace.kernel)
    by_call = linked.named(linked.trace.runtime, lambda name: name in _GRID_IN_WORK_ITEMS)
    if not by_call.any():
        return np.zeros(count, np.bool_)
    chosen: Mask = linked.launched[:count] & by_call[linked.launch[:count]]
    return chosen


def _plausible(geometry: Geometry) -> Geometry:
    """Without sizes that no device takes, which only a damaged file has."""
    return replace(
        geometry,
        grid=geometry.grid if geometry.grid and max(geometry.grid) < _NO_SIZE else None,
        block=geometry.block if geometry.block and max(geometry.block) < _NO_SIZE else None,
    )


def _in_blocks(geometry: Geometry) -> Geometry:
    if geometry.grid is None or geometry.block is None or 0 in geometry.block:
        return replace(geometry, grid=None)
    x, y, z = (-(-items // threads) for items, threads in zip(geometry.grid, geometry.block, strict=True))
    return replace(geometry, grid=(x, y, z))
