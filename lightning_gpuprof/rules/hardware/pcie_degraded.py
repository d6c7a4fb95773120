"""Finds that a GPU's PCIe link is slower than it could be."""

from __future__ import annotations

import math
from dataclasses import dataclass

from lightning_gpuprof.model.finding import Evidence, Finding, Severity
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.report import Device
from lightning_gpuprof.rules import base, claims
from lightning_gpuprof.rules.base import MissingSignal, steady_period_ms, threshold
from lightning_gpuprof.rules.hardware import gpus
from lightning_gpuprof.rules.wording import millis, percent

_GIGATRANSFERS = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0}
"""Per second and lane, by generation (PCI Express Base Specification)."""


@dataclass(frozen=True, kw_only=True)
class PcieDegraded(gpus.GpuRule):
    """The PCIe link of the GPU never reached the generation or the width that GPU and slot can do.

    ## What it means

    A link that was trained at fewer lanes or a lower generation (a card that does not sit well, a riser, a shared slot,
    an old cable) moves batches, and gradients between GPUs without NVLink, more slowly by that factor.

    ## How it is measured

    The driver (NVML) is asked in every tenth sample. A link saves power when it is idle, so its best reading counts, of
    three at least, while the GPU was busy in half of all samples and in 20. The time that it costs: copies to the
    device per step in a trace window, else the time of phase `h2d`, times 1 - now / best. It is a warning if that is a
    tenth of the step, else information. Copies that run beside kernels cost nothing, so the gain's lower bound is 0.

    ## When it is wrong

    - A board that shares its lanes by design (two slots of x8) never does better.
    - Virtual machines may show a link that is not the real one.
    - Systems whose GPU is attached in another way (NVLink-C2C) use PCIe little.

    ## What to do

    Have the card reseated, the slot and riser checked, the firmware's setting of lanes looked at. Meanwhile move fewer
    bytes: uint8 images that are normalised on the GPU, pinned memory.

    ## Example

    "The PCIe link of NVIDIA H200 (gpu0) was at generation 3 x8 at best; GPU and slot can do 5 x16: 12 % of the "
    "bandwidth."
    """

    id = "pcie-degraded"

    least_readings: int = threshold(3, source="the rule catalogue: three readings")
    busy_ratio: float = threshold(
        0.5, source="heuristic: share of samples with a busy GPU, so that the link was in use"
    )

    def judge(self, metrics: Metrics, device: Device) -> Finding | None:
        """Judge the link of a GPU."""
        generation, width = gpus.largest(device, "pcie_generation"), gpus.largest(device, "pcie_width")
        best, widest = device.facts.pcie_generation_max, device.facts.pcie_width_max
        if generation is None or width is None or best is None or widest is None:
            raise MissingSignal("the PCIe link, or what it can do, was not measured")
        base.require_possible("the PCIe link", generation, width, best, widest)
        if generation >= best and width >= widest:
            return None
        busy = gpus.require_busy(device)
        if gpus.slow_readings(device) < self.least_readings or busy < self.busy_ratio * device.samples:
            raise MissingSignal("the PCIe link was read too seldom while the GPU was busy: an idle link is slow")
        speed = link_gigatransfers(generation, width) / max(link_gigatransfers(best, widest), 1e-9)
        if not 0 < speed < 1:
            raise MissingSignal("the speed of the PCIe link is no possible number")
        period_ms = steady_period_ms(metrics)
        moving_ms, words = _moving_ms(metrics)
        gain = base.worthwhile_gain(moving_ms * (1 - speed), 0.0, period_ms)
        level: Severity = base.severity(moving_ms * (1 - speed) / period_ms, metrics.steps.steady_count)
        return self.finding(
            severity="warning" if level == "critical" else level,
            subject=gpus.title(device),
            summary=f"The PCIe link of {gpus.title(device)} was at generation {_link(generation, width)} at best; GPU "
            f"and slot can do {_link(best, widest)}: {percent(speed)} of the bandwidth. {words} {millis(moving_ms)} of "
            f"{millis(period_ms)}.",
            advice=f"Have slot, riser and seat of {gpus.place(device)} checked, and the firmware's setting of its lanes"
            + (
                f"; the copies of a step can get {millis(moving_ms * (1 - speed))} shorter."
                if gain is not None
                else "; this run moves so little that it hardly costs anything."
            ),
            evidence=(
                Evidence(
                    name="PCIe generation", value=generation, limit=best, source="the most that GPU and slot can do"
                ),
                Evidence(name="PCIe lanes", value=width, limit=widest, source="the most that GPU and slot can do"),
                self.evidence("least_readings", gpus.slow_readings(device), "readings"),
                Evidence(name="copies to the device per step", value=moving_ms, unit="ms"),
            ),
            gain=gain,
            confidence=0.6,
            explains=claims.BATCH_COPIES,
        )


def link_gigatransfers(generation: float, width: float) -> float:
    """Gigatransfers per second of a link over all lanes; 0 for a generation that is not known."""
    return _GIGATRANSFERS.get(round(generation), 0.0) * width if math.isfinite(generation) else 0.0


def _link(generation: float, width: float) -> str:
    return f"{generation:.0f} x{width:.0f}"


def _moving_ms(metrics: Metrics) -> tuple[float, str]:
    """Time per step of copies to the device, and what it is called."""
    found = [copied for window in metrics.windows if (copied := gpus.copies_ms(window)) is not None]
    if found:
        return sorted(found)[len(found) // 2], "Copies to the device take"
    share = metrics.share("h2d")
    if share is None or not base.usable(share):
        raise MissingSignal("the time of copies to the device was not measured")
    return share.median_ms, "Moving the batch takes"
