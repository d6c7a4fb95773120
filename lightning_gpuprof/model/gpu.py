"""One sampled GPU: what holds its clock down, and how fast its PCIe link is."""

import math
from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from lightning_gpuprof.model.cost import Cost
from lightning_gpuprof.model.missing import Unmeasured, measured
from lightning_gpuprof.model.report import Device, Distribution

_GIGATRANSFERS = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0}
"""Per second and lane, by generation (PCI Express Base Specification)."""

_ENCODING = 128 / 130
"""Payload over bits on the wire since generation 3 (PCI Express Base Specification)."""


class HeldClock(msgspec.Struct, frozen=True, kw_only=True):
    """A reason for a low SM clock, by the samples in which the GPU was busy."""

    reason: str
    ratio: float
    """Share of the samples in which it held the clock down."""
    lower_ratio: float
    """Its 5 % lower bound (Wilson)."""
    sm_clock_mhz: float | None
    """Median of those samples; None: not known."""
    lost_ratio: float | None
    """Share of the speed that is lost meanwhile: 1 - held / full clock; None: not known."""


class GpuClocks(msgspec.Struct, frozen=True, kw_only=True):
    """The SM clock of a busy GPU."""

    samples: int
    """With a busy GPU."""
    median_mhz: float | None
    highest_mhz: float | None
    """That the GPU has."""
    full_mhz: float | None
    """Median where nothing held it down, else the highest."""
    held: Mapping[str, HeldClock]
    """By reason, those that were seen."""
    unnamed_slowdown: HeldClock | None
    """The hardware's slowdown, without that for heat and that of the power brake."""
    work: Cost | Unmeasured | None
    """What the GPU works in a step, by trace windows, else by the driver's utilization, which is an upper bound; None:
    not known. A higher clock shortens it for certain but for the time in which the GPU's memory works: none of it where
    that was not measured."""

    def of_highest(self, clock_mhz: float | None) -> float | None:
        """A clock over the highest that the GPU has; None if one of them is not known."""
        return None if clock_mhz is None or self.highest_mhz is None else clock_mhz / self.highest_mhz

    def cost(self, lost_ratio: float, lower_ratio: float | None = None) -> Cost | None:
        """What low clocks cost: kernels that take T at a clock c take T * c / full at the full clock.

        Args:
            lost_ratio: Lost speed, as a share of the time in which the GPU works.
            lower_ratio: The same from the lower bound of the share of samples; default: as much.

        Returns:
            None if it is not worthwhile, or if it is not known how long the GPU works.

        Raises:
            MissingSignal: The step time was not measured.
        """
        work = measured(self.work)
        if work is None:
            return None
        lower_ratio = lost_ratio if lower_ratio is None else lower_ratio
        cost = replace(work, ms=lost_ratio * work.ms, lower_ms=lower_ratio * work.lower_ms)
        return cost if cost.is_worth() else None

    def cost_of(self, held: HeldClock) -> Cost | None:
        """:meth:`cost` of one reason, while it holds the clock down; None if that is not known, too."""
        lost = held.lost_ratio
        return None if lost is None else self.cost(held.ratio * lost, held.lower_ratio * lost)


class ActiveMultiprocessors(msgspec.Struct, frozen=True, kw_only=True):
    """How many of a GPU's multiprocessors have work, as a share."""

    ratio: float
    upper_ratio: float
    """95 % upper bound of the mean; of an estimate the same."""
    source: str
    """Where it is from, in words."""


class PcieLink(msgspec.Struct, frozen=True, kw_only=True):
    """A PCIe link: transfers at a generation's rate over some lanes."""

    generation: float
    lanes: float

    @property
    def gigatransfers(self) -> float:
        """Per second, over all lanes; 0 for a generation that is not known."""
        return _GIGATRANSFERS.get(round(self.generation), 0.0) * self.lanes if math.isfinite(self.generation) else 0.0

    @property
    def bytes_per_s(self) -> float:
        """Of payload."""
        return self.gigatransfers * _ENCODING / 8 * 1e9

    def __str__(self) -> str:
        return f"{self.generation:.0f} x{self.lanes:.0f}"


class NumaPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where a GPU of a machine with several NUMA nodes is attached, and where the process may run."""

    node: int
    """Of the GPU."""
    process_nodes: str
    """Of the process's CPUs: ``0, 1``."""

    @property
    def is_near(self) -> bool:
        """Whether the process may run on CPUs of the GPU's node."""
        return str(self.node) in self.process_nodes.split(", ")


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """What was computed from the samples of a GPU."""

    device: Device
    utilization: Distribution | Unmeasured
    """As the driver renewed it often enough."""
    clocks: GpuClocks | Unmeasured
    active: ActiveMultiprocessors | Unmeasured
    link: PcieLink | None
    """At its best reading, as an idle link saves power; None: not measured."""
    best_link: PcieLink | None
    """What GPU and slot can do together; None: not known."""
    numa: NumaPlace | Unmeasured
    slow_readings: int
    """How often links and processes were read, at least."""
    busy_samples: int | Unmeasured
    """With work."""
