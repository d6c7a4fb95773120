"""NVLinks of the GPU failed and were restarted, or sent noticeably many broken packets.

## What it means
While a link is restarted, and while packets are sent again, collectives between GPUs wait. A cable, a baseboard or a
switch needs care.

## How it is measured
The driver's counters over all active links (NVML), last reading minus first. One recovery is a finding, as in NVIDIA's
health checks (DCGM). Broken packets (CRC) are normal below 100 a second. A warning if several ranks train together,
else information.

## When it is wrong
- GPUs without NVLink, or whose link errors the driver counts elsewhere: not evaluated with several ranks, else nothing
  to judge.
- Links that were down before the run are not seen.

## What to do
Have the links checked by whoever runs the server; use another node until then.
"""

from lightning_gpuprof.rules.base import Finding, Metrics, MissingSignal, NotApplicable, possible, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.hardware.gpu_rule import Gpu, GpuRule

_RANKS = {"trainer.world_size": 8}


def _with(**risen: float) -> dict[str, dict[str, float]]:
    return {"errors": risen}


class NvlinkDown(GpuRule):
    id = "nvlink-down"
    title = "A GPU's NVLinks have errors"

    least_recoveries: int = threshold(1, source="DCGM health checks: 1 NVLink error")
    least_crc_per_s: float = threshold(100.0, source="DCGM health checks: CRC errors matter from 100 a second")

    examples = (
        fires("a link recovered twice", "warning", "2 NVLink rec", gpu=_with(nvlink_recovery_count=2), run=_RANKS),
        fires("one rank hardly uses it", "info", "1 NVLink recovery", gpu=_with(nvlink_recovery_count=1)),
        fires("102 broken packets a second", "warning", "CRC errors", gpu=_with(nvlink_crc_count=2040), run=_RANKS),
        quiet("the links are healthy", gpu=_with(), run=_RANKS),
        looks_alike("the memory had errors", gpu=_with(ecc_uncorrected_count=5), run=_RANKS),
        not_evaluated("there are no counters", "no NVLink errors were counted", gpu={}, run=_RANKS),
    )

    def judge(self, metrics: Metrics, gpu: Gpu) -> Finding | None:
        device = gpu.device
        known = [c for c in device.errors if possible(c.first) and possible(c.last)]
        risen = {counter.name: max(0.0, counter.last - counter.first) for counter in known}
        recoveries, broken = risen.get("nvlink_recovery_count"), risen.get("nvlink_crc_count")
        train_s = metrics.wall.parts.get("train", 0.0)
        if (recoveries is None or broken is None) and not metrics.is_distributed:
            raise NotApplicable("no NVLink errors were counted, and a single rank hardly uses the links")
        if recoveries is None or broken is None or not (possible(train_s) and train_s > 0):
            raise MissingSignal("no NVLink errors were counted")
        crc_per_s = broken / train_s
        if recoveries < self.least_recoveries and crc_per_s < self.least_crc_per_s:
            return None
        many = f"{recoveries:,.0f} NVLink {'recovery' if recoveries == 1 else 'recoveries'}"
        if recoveries < self.least_recoveries:
            many = f"{crc_per_s:,.0f} NVLink packets with CRC errors per second"
        return self.finding(
            severity="warning" if metrics.is_distributed else "info",
            subject=device.title,
            summary=f"{device.title} had {many} during this run.",
            advice=f"Have the links of {device.place} checked, and train on another node until then: "
            f"nvidia-smi nvlink -e -i {device.place}",
            evidence=(
                self.evidence("least_recoveries", recoveries, "NVLink recoveries"),
                self.evidence("least_crc_per_s", crc_per_s, "NVLink packets with CRC errors", "/s"),
            ),
            confidence=0.9,
        )
