"""A device's step flows in; out flow its copies between host and device: how many, how large, what no kernel covers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from lightning_gpuprof.model.device_step import ExplainedStep
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules.base import MissingSignal, possible

Direction = Literal["HtoD", "DtoH"]

LEAST_BYTES = 1 << 20
"""Bytes per step from which copies are about a batch rather than about single values. The catalogue."""

PINNED_BYTES_PER_S = 12e9
"""What copies of pinned memory reach at least: of the 15.75 GB/s of PCI Express 3.0 with 16 lanes, 12 arrive.
Heuristic."""

_REACHED_RATIO = 0.75
"""Of a link's rate that copies of pinned memory reach. Heuristic."""

_LANE_BYTES_PER_S = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}
"""Of one lane, by generation. PCI-SIG."""


@dataclass(frozen=True, kw_only=True)
class Copies:
    """Copies of some kinds, per traced step."""

    count: float
    total_ms: float
    """Sum of their durations, which tracing does not change."""
    total_bytes: float
    names: frozenset[str]
    """Of their kinds, as the trace has them."""
    exposed_ms: float
    """What certainly no kernel covers: all exposed copies without those of other kinds."""

    @property
    def bytes_per_s(self) -> float | None:
        """None if they took no time, or have no size."""
        return self.total_bytes / (self.total_ms / 1e3) if self.total_ms > 0 and self.total_bytes > 0 else None

    @property
    def rate_words(self) -> str:
        """``38.5 MB at 4.1 GB/s``."""
        rate = self.bytes_per_s
        return megabytes(self.total_bytes) + ("" if rate is None else f" at {rate / 1e9:.1f} GB/s")


def copies(
    step: ExplainedStep, direction: Direction, *, pageable: bool | None = None, smaller_than: float = math.inf
) -> Copies:
    """Copies of one direction.

    Args:
        step: The device's step.
        direction: To the device or from it.
        pageable: Only those whose host memory is pageable, or is not; None: all.
        smaller_than: Only kinds whose median size is below so many bytes.

    Raises:
        MissingSignal: The copies of the window were not analysed, several devices worked in it, or its names do not
            tell pageable from pinned memory.
    """
    tables, streams = step.analysis.api_tables, step.analysis.streams
    if tables is None or streams is None:
        raise MissingSignal("the copies of the trace window could not be analysed")
    if len(streams.devices) != 1:
        raise MissingSignal(
            f"{len(streams.devices)} devices worked in the trace window: and their copies are not separated"
        )
    times = [row for row in tables.cuda_gpu_mem_time_sum if direction in row.name]
    sizes = {row.name: row for row in tables.cuda_gpu_mem_size_sum}
    if pageable is not None and any(not ("Pageable" in row.name or "Pinned" in row.name) for row in times):
        raise MissingSignal("the trace does not distinguish pageable from pinned memory")
    chosen = [
        row
        for row in times
        if (pageable is None or ("Pageable" in row.name) is pageable)
        and (math.isinf(smaller_than) or _median_bytes(sizes.get(row.name)) < smaller_than)
    ]
    total_us = sum(row.total_us for row in chosen)
    (device,) = streams.devices
    other_us = max(0.0, device.copy_us - total_us)
    return Copies(
        count=sum(row.count for row in chosen) / step.steps,
        total_ms=total_us / 1e3 / step.steps,
        total_bytes=sum((sizes[row.name].total_bytes or 0) for row in chosen if row.name in sizes) / step.steps,
        names=frozenset(row.name for row in chosen),
        exposed_ms=max(0.0, min(total_us, device.exposed_copy_us - other_us)) / 1e3 / step.steps,
    )


def pinned_bytes_per_s(metrics: Metrics, step: ExplainedStep) -> tuple[float, str]:
    """What copies of pinned memory to the device reach, and where that is from: the window, the link, or the least."""
    seen = copies(step, "HtoD", pageable=False)
    if seen.total_bytes >= LEAST_BYTES and seen.bytes_per_s is not None:
        return seen.bytes_per_s, "pinned copies of the same window"
    facts = metrics.devices[0].facts if len(metrics.devices) == 1 else None
    if facts is not None and facts.pcie_generation_max and facts.pcie_width_max:
        lane = _LANE_BYTES_PER_S.get(int(facts.pcie_generation_max))
        if lane is not None and possible(facts.pcie_width_max):
            link = f"PCI Express {facts.pcie_generation_max:.0f} x{facts.pcie_width_max:.0f}"
            return _REACHED_RATIO * lane * facts.pcie_width_max, f"three quarters of {link}"
    return PINNED_BYTES_PER_S, "what PCI Express 3.0 x16 reaches"


def megabytes(value: float) -> str:
    """A size for people: ``38.5 MB``."""
    return f"{value / 1e6:.3g} MB" if value < 999.5e6 else f"{value / 1e9:.3g} GB"


def _median_bytes(row: object) -> float:
    median = getattr(row, "median_bytes", None)
    return math.inf if median is None else float(median)
