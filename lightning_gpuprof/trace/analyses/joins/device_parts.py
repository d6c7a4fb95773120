"""When each device computed, communicated and copied: the one division of device time that all analyses share."""

from functools import cached_property

import msgspec

from lightning_gpuprof.trace.intervals import Coverage
from lightning_gpuprof.trace.linked import CachedJoin, LinkedTrace


class DeviceParts(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """When a device did what, on any of its streams; the parts overlap."""

    busy: Coverage
    """Kernels, copies or memsets."""
    computation: Coverage
    """Kernels that do not communicate."""
    communication: Coverage
    """Kernels of NCCL or RCCL."""
    copies: Coverage
    """Copies and memsets."""

    @cached_property
    def kernels(self) -> Coverage:
        """Kernels of either kind."""
        return Coverage.union_of(self.computation, self.communication)

    @cached_property
    def exposed_communication(self) -> Coverage:
        """Communication without computation beside it."""
        return self.communication.without(self.computation)


def _device_parts(linked: LinkedTrace) -> dict[int, DeviceParts]:
    found = {}
    for device in linked.devices:
        rows = linked.device_rows[device]
        communicates = linked.is_communication[rows]
        found[device] = DeviceParts(
            busy=linked.device_busy[device],
            computation=linked.covered(rows[linked.is_kernel[rows] & ~communicates]),
            communication=linked.covered(rows[communicates]),
            copies=linked.covered(rows[~linked.is_kernel[rows]]),
        )
    return found


device_parts = CachedJoin(_device_parts)
"""The parts of each device's time, by its number in :attr:`Trace.devices`, in the order of the devices' names."""
