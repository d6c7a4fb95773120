"""The GPU draws as much power as its limit allows, which holds its clocks down.

## What it means
Dense matrix products at the maximum clock would draw more power than a board may, so the driver lowers the clock
(`sw_power_cap`). Boards are built so: information only. It is a fault where somebody set a limit below the default, or
where the clock falls far although the tensor cores do little.

## How it is measured
As `thermal-throttle`. It is a warning if the median SM clock then is low **and** the limit is below its default or the
tensor cores did little. Only a lowered limit has a gain.

## When it is wrong
- Without performance counters (before Hopper) tensor core activity is unknown: information at the default limit.
- A limit may be lowered on purpose, for cooling or energy.
- At a higher limit the clocks may be throttled again: the gain is an upper bound.

## What to do
Have a lowered limit raised. At the default limit, work that needs less energy runs faster: fewer bytes moved, lower
precision, no work thrown away.
"""

from lightning_gpuprof.model.device import LOWERED_RATIO
from lightning_gpuprof.rules.base import Finding, Metrics, measured, percent, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, quiet
from lightning_gpuprof.rules.hardware.gpu_rule import NO_REASONS, ClockRule, Gpu, slow_words

_BUILT_SO = """No repair is needed: the board runs at its default power limit. Work that needs less energy runs \
faster: lower precision, fewer bytes moved, less padding."""
_FIND = """Find the kernels that draw the power on {at}: its tensor cores were active only {active} of the time. \
A trace window shows them: GpuProfiler(windows=[...])."""


def _capped(reason: str = "sw_power_cap", **values: float | None) -> dict[str, object]:
    return {"throttle": ((reason, 1.0, 1400.0),), "values": values}


class PowerThrottle(ClockRule):
    id = "power-throttle"
    title = "The power limit slows down the GPU"
    specialises = ("low-clocks",)

    least_ratio: float = threshold(0.20, source="heuristic: 20 % of the busy samples")
    low_clock_ratio: float = threshold(0.85, source="the method: below it clocks limit the run")
    dense_ratio: float = threshold(0.30, source="heuristic: tensor cores active from here on, a cap is to be expected")
    lowered_ratio: float = threshold(LOWERED_RATIO, source="heuristic: limit over default below which it was lowered")

    examples = (
        fires("the limit is 400 W of 700 W", "warning", "raise the limit from 400 W", gpu=_capped(power_limit_w=400.0)),
        fires("tensor cores do little", "warning", "active only 5.0 %", gpu=_capped(tensor_active_ratio=0.05)),
        fires("they work at the default limit", "info", "No repair is needed", gpu=_capped()),
        fires("their work is unknown", "info", "No repair is needed", gpu=_capped(tensor_active_ratio=None)),
        quiet("the clock is free", gpu={}),
        looks_alike("heat holds it down", gpu=_capped("sw_thermal", power_limit_w=400.0)),
        NO_REASONS,
    )

    def judge(self, metrics: Metrics, gpu: Gpu) -> Finding | None:
        clocks, device = measured(gpu.clocks), gpu.device
        held = clocks.held.get("sw_power_cap")
        if held is None or held.lower_ratio < self.least_ratio:
            return None
        limit, default = device.median("power_limit_w"), device.facts.power_limit_default_w
        lowered = device.power_limit_ratio is not None and device.power_limit_ratio < self.lowered_ratio
        tensor, slow = device.median("tensor_active_ratio"), clocks.of_highest(held.sm_clock_mhz)
        idle = tensor is not None and tensor < self.dense_ratio
        fault = (lowered or idle) and slow is not None and slow < self.low_clock_ratio
        share, at = f"in {percent(held.ratio)} of {clocks.samples:,} busy samples", device.place
        summary = f"{device.title} ran at its power limit{'' if limit is None else f' of {limit:,.0f} W'} {share}"
        advice = _FIND.format(at=at, active=percent(tensor or 0.0)) if idle else _BUILT_SO
        if lowered:
            was = f"The power limit of {device.title} is {limit:,.0f} W instead of {default:,.0f} W"
            summary, command = f"{was}. It throttled the clock {share}", f"nvidia-smi -i {at} -pl {default:.0f}"
            advice = f"Have the administrator raise the limit from {limit:,.0f} W (root): {command}"
        draws = None if device.busy is None else device.busy.power_median_w
        return self.finding(
            subject=device.title,
            severity="warning" if fault else "info",
            summary=f"{summary}{slow_words(clocks, held)}",
            advice=advice,
            evidence=(
                self.evidence("least_ratio", held.lower_ratio, "busy samples at the power limit"),
                self.fact("median power while busy", draws, "W"),
                self.fact("power limit", limit, "W"),
                self.fact("default power limit", default, "W"),
                *self.clock_facts(gpu, clocks, held),
            ),
            cost=clocks.cost_of(held) if lowered else None,
        )
