"""Finds that large copies from pinned memory reach a small part of what the PCIe link can do."""

from __future__ import annotations

from dataclasses import dataclass

from lightning_gpuprof.model.finding import Evidence, Finding
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.report import Device
from lightning_gpuprof.model.trace.api_tables import MemorySizeRow
from lightning_gpuprof.model.window import WindowFacts
from lightning_gpuprof.rules import base, claims
from lightning_gpuprof.rules.base import BaseRule, MissingSignal, steady_period_ms, threshold
from lightning_gpuprof.rules.hardware import gpus
from lightning_gpuprof.rules.hardware.pcie_degraded import link_gigatransfers
from lightning_gpuprof.rules.wording import millis, percent

_ENCODING = 128 / 130
"""Payload over bits on the wire since generation 3 (PCI Express Base Specification)."""

_PINNED = "HtoD (Pinned"


@dataclass(frozen=True, kw_only=True)
class H2dSlowLink(BaseRule):
    """Large copies from pinned memory are much slower than the PCIe link allows.

    ## What it means

    A large copy from pinned memory reaches about four fifths of what the link can carry. Half of that points to memory
    of the other processor socket, to a switch that several GPUs share, or to other traffic on the link.

    ## How it is measured

    In the trace window with most of them: bytes over time of copies from pinned memory, if they have 8 MiB at least
    on average and as many bytes as 3 of the largest. Small ones among them, such as labels, make the speed a lower
    bound, by a few percent. The ceiling is what the link carries at its best reading (NVML): transfers per second,
    times lanes, times 128/130. Below 50 % of it the rule speaks. R is the time of these copies per step that the
    ceiling would save; copies that run beside kernels cost nothing, so the gain's lower bound is 0. A warning from a
    tenth of the step.

    ## When it is wrong

    - Copies of several GPUs at the same time share the host's memory.
    - A link that is itself slower than it could be is `pcie-degraded`.
    - No window, no large pinned copies, or no link reading: not evaluated.

    ## What to do

    Bind the process to the processor socket of its GPU: `numactl --cpunodebind=N --membind=N`; `nvidia-smi topo -m`
    shows N.

    ## Example

    "Copies of 64 MiB from pinned memory reach 12.0 GB/s, 19 % of what PCIe 5 x16 carries."
    """

    id = "h2d-slow-link"

    reached_ratio: float = threshold(0.50, source="heuristic: four fifths are usual")
    least_bytes: int = threshold(8 * 2**20, source="the rule catalogue: 8 MiB, so that start-up does not count")
    least_copies: int = threshold(3, source="heuristic")

    def check(self, metrics: Metrics) -> Finding | None:
        """Judge the large copies of the windows."""
        devices = gpus.sampled_gpus(metrics)
        if len(devices) != 1:
            raise MissingSignal("which of several GPUs a copy went to is not told")
        period_ms = steady_period_ms(metrics)
        device = devices[0]
        ceiling = _ceiling_bytes_per_s(device)
        found = [(row, window) for window in metrics.windows if (row := self._large_copies(window)) is not None]
        if not found:
            raise MissingSignal(f"no window holds {self.least_copies} copies of 8 MiB or more from pinned memory")
        row, window = max(found, key=lambda pair: pair[0].total_bytes or 0)
        speed, total = row.bandwidth_bytes_per_s or 0.0, float(row.total_bytes or 0)
        base.require_possible("the speed of copies", speed, total, row.average_bytes or 0.0)
        if speed <= 0 or speed >= self.reached_ratio * ceiling:
            return None
        saved_ms = (total / speed - total / ceiling) * 1e3 / len(window.steps_us)
        saved_ms = min(saved_ms, period_ms)
        level = base.severity(saved_ms / period_ms, metrics.steps.steady_count)
        generation, width = gpus.largest(device, "pcie_generation") or 0.0, gpus.largest(device, "pcie_width") or 0.0
        return self.finding(
            severity="warning" if level == "critical" else level,
            subject=gpus.title(device),
            summary=f"Copies of {_sizes(row)} from pinned memory reach {speed / 1e9:.1f} GB/s, "
            f"{percent(speed / ceiling)} of what PCIe {generation:.0f} x{width:.0f} carries: {millis(saved_ms)} of "
            f"{millis(period_ms)} more than they would need.",
            advice=f"Bind the process to the processor socket of {gpus.place(device)}: numactl --cpunodebind=N "
            "--membind=N python ...; nvidia-smi topo -m shows N (NUMA affinity).",
            evidence=(
                self.evidence("reached_ratio", speed / ceiling, "speed of large pinned copies over the link's"),
                Evidence(name="copies", value=row.count, limit=self.least_copies),
                Evidence(name="ceiling", value=ceiling / 1e9, unit="GB/s"),
            ),
            gain=base.gain(saved_ms, 0.0, period_ms) if base.worthwhile(saved_ms, period_ms) else None,
            confidence=0.5,
            explains=claims.BATCH_COPIES,
        )

    def _large_copies(self, window: WindowFacts) -> MemorySizeRow | None:
        tables = window.analysis.api_tables if window.analysis is not None else None
        if tables is None or not window.steps_us:
            return None
        return next(
            (
                row
                for row in tables.cuda_gpu_mem_size_sum
                if _PINNED in row.name
                and row.sized_count == row.count >= self.least_copies
                and (row.average_bytes or 0.0) >= self.least_bytes
                and (row.total_bytes or 0) >= self.least_copies * (row.max_bytes or 0)
            ),
            None,
        )


def _sizes(row: MemorySizeRow) -> str:
    return gpus.gib(row.average_bytes or 0.0) + ("" if row.min_bytes == row.max_bytes else " on average")


def _ceiling_bytes_per_s(device: Device) -> float:
    generation, width = gpus.largest(device, "pcie_generation"), gpus.largest(device, "pcie_width")
    if generation is None or width is None:
        raise MissingSignal("the PCIe link was not measured")
    ceiling = link_gigatransfers(generation, width) * _ENCODING / 8 * 1e9
    if ceiling <= 0 or gpus.slow_readings(device) < 3:
        raise MissingSignal("the PCIe link was not measured often enough")
    return ceiling
