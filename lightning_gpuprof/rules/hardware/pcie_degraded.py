"""Finds that a GPU's PCIe link is slower than it could be."""

from __future__ import annotations

import math
from dataclasses import dataclass

from lightning_gpuprof.model.finding import Evidence, Finding, Severity
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.numbers import millis, percent
from lightning_gpuprof.model.report import Device
from lightning_gpuprof.rules import base, claims
from lightning_gpuprof.rules.base import MissingSignal, steady_period_ms, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.hardware import gpus

_GIGATRANSFERS = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0}
"""Per second and lane, by generation (PCI Express Base Specification)."""


_SLOW = {"values": {"pcie_generation": 3.0, "pcie_width": 8.0}}


@dataclass(frozen=True, kw_only=True)
class PcieDegraded(gpus.GpuRule):
    """The PCIe link of the GPU never reached the generation or the width that GPU and slot support.

    ## What it means

    A link with fewer lanes or a lower generation (a badly seated card, a riser, a shared slot, an old cable) moves
    batches, and gradients between GPUs without NVLink, more slowly by that factor.

    ## How it is measured

    The driver (NVML) is asked every tenth sample. An idle link saves power, so the best of at least three readings
    counts, and the GPU must be busy in half of all samples and in 20. The cost is the time of copies to the device in a
    trace window, else of phase `h2d`, times 1 - speed / best. A warning from a tenth of the step on, else information.
    Copies may run beside kernels, so the lower bound of the gain is 0.

    ## When it is wrong

    - A board that shares its lanes by design (two slots of x8) never does better.
    - Virtual machines may show a link that is not the real one.
    - GPUs that are attached in another way (NVLink-C2C) use PCIe little.

    ## What to do

    Have the seat of the card, slot, riser and the firmware's lanes checked. Until then move fewer bytes: uint8 images
    that are normalised on the GPU, pinned memory.
    """

    id = "pcie-degraded"
    title = "The PCIe link of the GPU is slower than it could be"

    least_readings: int = threshold(3, source="the rule catalogue: three readings")
    busy_ratio: float = threshold(
        0.5, source="heuristic: share of samples with a busy GPU, so that the link was in use"
    )

    examples = (
        fires("copies take 20 ms of a step", "warning", "generation 3 x8", gpu=_SLOW, times_ms={"h2d": 20.0}),
        fires("they take 0.1 ms", "info", "hardly matters", gpu=_SLOW),
        quiet("the link is fast", gpu={}),
        looks_alike("copies are slow over a fast link", gpu={}, times_ms={"h2d": 20.0}),
        not_evaluated("the GPU was mostly idle", "an idle link is slow", gpu={**_SLOW, "samples": 100}),
    )

    def judge(self, metrics: Metrics, device: Device) -> Finding | None:
        """Judge the link of a GPU."""
        generation, width = gpus.largest(device, "pcie_generation"), gpus.largest(device, "pcie_width")
        best, widest = device.facts.pcie_generation_max, device.facts.pcie_width_max
        if generation is None or width is None or best is None or widest is None:
            raise MissingSignal("the PCIe link or its maximum was not measured")
        base.require_possible("the PCIe link", generation, width, best, widest)
        if generation >= best and width >= widest:
            return None
        busy = gpus.require_busy(device)
        if gpus.slow_readings(device) < self.least_readings or busy < self.busy_ratio * device.samples:
            raise MissingSignal("the PCIe link was rarely read while the GPU was busy, and an idle link is slow")
        speed = link_gigatransfers(generation, width) / max(link_gigatransfers(best, widest), 1e-9)
        if not 0 < speed < 1:
            raise MissingSignal("the speed of the PCIe link is an impossible number")
        period_ms = steady_period_ms(metrics)
        moving_ms, words = _moving_ms(metrics)
        gain = base.worthwhile_gain(moving_ms * (1 - speed), 0.0, period_ms)
        level: Severity = base.severity(moving_ms * (1 - speed) / period_ms, metrics.steps.steady_count)
        return self.finding(
            severity="warning" if level == "critical" else level,
            subject=gpus.title(device),
            summary=f"The PCIe link of {gpus.title(device)} reached generation {_link(generation, width)}, "
            f"{percent(speed)} of the bandwidth of {_link(best, widest)} that GPU and slot support. {words} "
            f"{millis(moving_ms)} of each {millis(period_ms)} step.",
            advice=f"Have slot, riser and seat of {gpus.place(device)} checked, and its lanes in the firmware. "
            + (
                f"The copies of a step would take {millis(moving_ms * (1 - speed))} less."
                if gain is not None
                else "This run copies so little that it hardly matters."
            ),
            evidence=(
                Evidence(name="PCIe generation", value=generation, limit=best, source="maximum of GPU and slot"),
                Evidence(name="PCIe lanes", value=width, limit=widest, source="maximum of GPU and slot"),
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
