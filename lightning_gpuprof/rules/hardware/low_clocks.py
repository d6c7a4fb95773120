"""The GPU is busy, but its clock is set far below its maximum.

## What it means
An administrator can set clocks (application clocks, locked clocks, a sync boost group), and they stay when the reason
is forgotten. Kernels that compute then take longer, although nothing is hot and power is left.

## How it is measured
The median SM clock (NVML) of busy samples, where the driver names application clocks or a sync boost group in many of
them (lower bound), or no reason in nearly all although the GPU is always busy. Silent where heat, power limit or brake
hold the clock. The gain is as in `thermal-throttle`.

## When it is wrong
- The maximum is a boost that some boards reach for moments only.
- Clocks may be set on purpose, for benchmarks or for equal GPUs.

## What to do
Have the administrator reset the clocks; this profiler changes no setting of a GPU.
"""

from lightning_gpuprof.model.device import MIN_SAMPLES
from lightning_gpuprof.model.finding import Evidence, Finding
from lightning_gpuprof.rules.base import Metrics, MissingSignal, measured, mhz, percent, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, quiet
from lightning_gpuprof.rules.hardware.gpu_rule import NO_REASONS, ClockRule, Gpu, GpuClocks

_SET = {
    "app_clocks": "application clocks are set (nvidia-smi -ac)",
    "sync_boost": "a sync boost group runs at the pace of its slowest GPU",
}
_UNNAMED = "the driver names no reason, so clocks are locked (nvidia-smi -lgc) or there is a fault"
_OTHERS = ("sw_power_cap", "sw_thermal", "hw_thermal", "hw_slowdown", "hw_power_brake")
"""Reasons that other rules report."""

_SLOW = {"clock_mhz": 1200.0, "throttle": (("app_clocks", 1.0, 1200.0),)}


class LowClocks(ClockRule):
    id = "low-clocks"
    title = "The GPU clock is set below its maximum"

    low_ratio: float = threshold(0.80, source="heuristic: SM clock over the highest one")
    unnamed_low_ratio: float = threshold(0.70, source="heuristic: healthy workstations stay at 0.8 of their boost")
    named_ratio: float = threshold(0.50, source="heuristic: half of the busy samples")
    unnamed_ratio: float = threshold(0.90, source="heuristic: share of busy samples without a limit")
    full_utilization_ratio: float = threshold(0.90, source="heuristic: below it a GPU may lower its clock by itself")
    others_ratio: float = threshold(0.20, source="heuristic: from here on, another rule applies")

    examples = (
        fires("application clocks are set", "warning", "1,200 MHz, 61 % of its max", gpu=_SLOW),
        quiet("the clock is high", gpu={}),
        looks_alike("heat holds it down", gpu={**_SLOW, "throttle": (("sw_thermal", 1.0, 1200.0),)}),
        NO_REASONS,
    )

    def judge(self, metrics: Metrics, gpu: Gpu) -> Finding | None:
        clocks, device = measured(gpu.clocks), gpu.device
        metrics.require_steady()
        ratio, held = clocks.of_highest(clocks.median_mhz), clocks.held
        if ratio is None:
            raise MissingSignal("the SM clock or its maximum was not measured")
        if ratio >= self.low_ratio or any(name in held and held[name].ratio >= self.others_ratio for name in _OTHERS):
            return None
        often = [held[name] for name in _SET if name in held and held[name].lower_ratio >= self.named_ratio]
        named = max(often, key=lambda one: one.ratio, default=None)
        if named is None and (ratio >= self.unnamed_low_ratio or not self._is_free_and_full(gpu, clocks)):
            return None
        cost, now, highest = clocks.cost(1.0 - ratio), clocks.median_mhz or 0.0, clocks.highest_mhz or 0.0
        return self.finding(
            severity="info" if cost is None else cost.possible_severity,
            subject=device.title,
            summary=f"While busy, {device.title} runs at an SM clock of {mhz(now)}, {percent(ratio)} of its maximum of "
            f"{mhz(highest)}: {_UNNAMED if named is None else _SET[named.reason]}.",
            advice=f"Have the administrator reset the clocks (root): `nvidia-smi -i {device.place} -rac`, then `-rgc`.",
            evidence=(
                self.evidence("low_ratio", ratio, "SM clock over the highest"),
                self.fact("median SM clock while busy", now, "MHz"),
                Evidence(name="busy samples", value=clocks.samples, limit=MIN_SAMPLES),
            ),
            cost=cost,
            confidence=0.8 if named is not None else 0.6,
        )

    def _is_free_and_full(self, gpu: Gpu, clocks: GpuClocks) -> bool:
        return (
            (gpu.device.median("utilization_ratio") or 0.0) >= self.full_utilization_ratio
            and sum(held.ratio for held in clocks.held.values()) <= 1 - self.unnamed_ratio + 1e-9
            and (gpu.device.distinct_samples or 0) >= MIN_SAMPLES
        )
