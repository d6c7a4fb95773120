"""The PCIe link of the GPU never reached the generation or the width that GPU and slot support.

## What it means
A link with fewer lanes or a lower generation (card badly seated, riser, shared slot, old cable) moves data slowly.

## How it is measured
The driver (NVML) is asked in every tenth sample. An idle link saves power, so the best reading counts, and the GPU must
be busy in 20 samples. The cost is the time of copies to the device in a trace window, else of phase `h2d`, times 1 -
reached / possible bandwidth. Copies may overlap with kernels, so the lower bound of the gain is 0.

## When it is wrong
- A board that shares its lanes by design (two slots of x8) never does better.
- Virtual machines may show a link that is not the real one; GPUs on NVLink-C2C use PCIe little.

## What to do
Have the card reseated, its riser checked, and the lanes of its slot in the BIOS. Until then move fewer bytes.
"""

from lightning_gpuprof.model.finding import Evidence, Finding
from lightning_gpuprof.model.signals import require_possible
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import Metrics, MissingSignal, measured, millis, of_each_step, percent, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.hardware.gpu_rule import Gpu, GpuRule

_MOST, _LITTLE = "maximum of GPU and slot", "It hardly matters for this run, which copies little."
_SLOW = {"values": {"pcie_generation": 3.0, "pcie_width": 8.0}}


class PcieDegraded(GpuRule):
    id = "pcie-degraded"
    title = "The GPU's PCIe link is degraded"

    least_readings: int = threshold(3, source="heuristic: three readings")
    busy_ratio: float = threshold(0.5, source="heuristic: share of samples with a busy GPU: the link was in use")

    examples = (
        fires("copies take 20 ms of a step", "warning", "generation 3 x8", gpu=_SLOW, times_ms={"h2d": 20.0}),
        fires("copies take 0.1 ms", "info", "hardly matters", gpu=_SLOW),
        quiet("the link is fast", gpu={}),
        looks_alike("copies are slow over a fast link", gpu={}, times_ms={"h2d": 20.0}),
        not_evaluated("the GPU was mostly idle", "an idle link is slow", gpu={**_SLOW, "samples": 100}),
    )

    def judge(self, metrics: Metrics, gpu: Gpu) -> Finding | None:
        device, link, best = gpu.device, gpu.link, gpu.best_link
        if link is None or best is None:
            raise MissingSignal("the PCIe link or its maximum was not measured")
        require_possible("the PCIe link", link.generation, link.lanes, best.generation, best.lanes)
        if link.generation >= best.generation and link.lanes >= best.lanes:
            return None
        busy = measured(gpu.busy_samples)
        if gpu.slow_readings < self.least_readings or busy < self.busy_ratio * device.samples:
            raise MissingSignal("the PCIe link was rarely read while the GPU was busy, and an idle link is slow")
        speed = link.gigatransfers / max(best.gigatransfers, 1e-9)
        if not 0 < speed < 1:
            raise MissingSignal("the speed of the PCIe link is not a valid number")
        metrics.require_steady()
        copies_ms, words = metrics.copies_to_device_ms, "Copying to the GPU takes"
        if copies_ms is None:
            copies_ms, words = metrics.share_of("h2d").median_ms, "Copying the batch takes"
        cost = metrics.cost(copies_ms * (1 - speed), 0.0)
        effect = (
            f"At full bandwidth, copies would take {millis(cost.ms)} less per step." if cost.is_worth() else _LITTLE
        )
        return self.finding(
            severity=cost.possible_severity,
            subject=device.title,
            summary=f"The PCIe link of {device.title} never exceeded generation {link}. That is {percent(speed)} of "
            f"the bandwidth of {best}, which GPU and slot support. {words} {of_each_step(copies_ms, cost.step_ms)}.",
            advice=f"Have {device.place} reseated, and check its riser and the BIOS lane settings of its slot. "
            f"{effect}",
            evidence=(
                Evidence(name="PCIe generation", value=link.generation, limit=best.generation, source=_MOST),
                Evidence(name="PCIe lanes", value=link.lanes, limit=best.lanes, source=_MOST),
                self.evidence("least_readings", gpu.slow_readings, "readings"),
                self.fact("copies to the device per step", copies_ms, "ms"),
            ),
            cost=cost,
            confidence=0.6,
            explains=claims.BATCH_COPIES,
        )
