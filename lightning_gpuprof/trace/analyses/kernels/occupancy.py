"""How many blocks of a kernel fit on one multiprocessor at a time."""

from collections.abc import Mapping

import msgspec

from lightning_gpuprof.trace.tables import Geometry

_WARP_THREADS = 32
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
