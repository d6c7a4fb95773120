"""The GPU is too hot and runs below the clock it would otherwise have.

## What it means
At a certain temperature the driver lowers the clocks step by step (`sw_thermal`); if that is not enough, the hardware
at least halves them (`hw_thermal`). Every kernel that computes takes longer, and so does the step.

## How it is measured
The driver's reasons for the clocks (NVML) in at least 20 samples with a busy GPU, and the 5 % lower bound (Wilson) of
the share of either reason. The lost speed is 1 - held / full: the median SM clock while the reason held, over that of
busy samples without any limit, else over the maximum clock. The gain is the lost speed over the busy time of a step;
its lower bound leaves out the time in which the GPU's memory worked, which a higher SM clock may not shorten. Heat that
the hardware had to stop is at least a warning; otherwise the lost share of the step decides.

## When it is wrong
- Limits shorter than the sampling interval are missed.
- Where the clock was never free the maximum stands for it, which a power limit may not allow: the gain is too high.
- Drivers that do not report the reasons (WSL, MIG): not evaluated.

## What to do
Have the cooling checked: fans, dust, inlet air, neighbouring cards. Until then use another node, and do not
compare times with runs on a cool GPU.
"""

from lightning_gpuprof.rules.base import Finding, Metrics, measured, millis, percent, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, quiet
from lightning_gpuprof.rules.hardware.gpu_rule import NO_REASONS, ClockRule, Gpu, held_severity, slow_words

_WORDS = {"sw_thermal": "the driver", "hw_thermal": "the hardware"}


def _held(reason: str, ratio: float, clock_mhz: float) -> dict[str, object]:
    return {"throttle": ((reason, ratio, clock_mhz),)}


class ThermalThrottle(ClockRule):
    id = "thermal-throttle"
    title = "The GPU is thermally throttled"
    specialises = ("low-clocks", "power-throttle")

    least_ratio: float = threshold(0.05, source="heuristic: 5 % of the busy samples")

    examples = (
        fires(
            "the GPU is hot all the time", "critical", "990 MHz instead of 1,980 MHz", gpu=_held("sw_thermal", 1.0, 990)
        ),
        fires(
            "the hardware throttles the GPU", "warning", "20 % of 40 busy samples", gpu=_held("hw_thermal", 0.2, 1950)
        ),
        fires("heat costs little", "info", "1,900 MHz", gpu=_held("sw_thermal", 0.5, 1900)),
        quiet("the clock is free", gpu={}),
        looks_alike("the power limit holds it down", gpu=_held("sw_power_cap", 1.0, 990)),
        NO_REASONS,
    )

    def judge(self, metrics: Metrics, gpu: Gpu) -> Finding | None:
        clocks, period_ms = measured(gpu.clocks), metrics.step_ms
        hot = [clocks.held[reason] for reason in _WORDS if reason in clocks.held]
        held = max(hot, key=lambda one: one.ratio, default=None)
        if held is None or held.lower_ratio < self.least_ratio:
            return None
        cost = clocks.cost_of(held)
        level, stopped = held_severity(metrics, held, cost), clocks.held.get("hw_thermal")
        if held.lost_ratio is None or (stopped is not None and stopped.lower_ratio >= self.least_ratio):
            level = "warning" if level == "info" else level
        bound = f" At its full clock a step takes {millis(period_ms - cost.saved_ms)} at best." if cost else ""
        hottest = gpu.device.largest("temperature_c")
        return self.finding(
            subject=gpu.device.title,
            severity=level,
            summary=f"{gpu.device.title} was too hot in {percent(held.ratio)} of {clocks.samples:,} busy samples"
            f"{'' if hottest is None else f', up to {hottest:.0f} °C'}"
            f"{slow_words(clocks, held)}",
            advice=f"Have the cooling of {gpu.device.place} checked: fans, dust, inlet air, neighbouring cards. "
            f"Train on another GPU until then.{bound}",
            evidence=(
                self.evidence("least_ratio", held.lower_ratio, "busy samples too hot"),
                *(self.fact(f"by {_WORDS[one.reason]}", one.ratio, "ratio") for one in hot),
                *self.clock_facts(gpu, clocks, held),
            ),
            cost=cost,
        )
