"""The power supply or a hardware protection of the board slows down the GPU.

## What it means
The server's power supply can assert a signal that at least halves the GPU's clocks (`hw_power_brake`): a supply has
failed, or the chassis draws too much. The board's protection against sudden power draw shows as a hardware slowdown
that is neither heat nor brake.

## How it is measured
As `thermal-throttle`, also the gain. Two samples of the brake are enough, as no healthy server asserts it. A hardware
slowdown without a named reason also shows for an instant while clocks change: its lower bound decides.

## When it is wrong
- A brake shorter than the sampling interval is missed.
- Drivers that do not report the reasons (WSL, MIG): not evaluated.

## What to do
Have the administrator check power supplies, cables and the limit of the rack. Use another node until then.
"""

from lightning_gpuprof.rules.base import Finding, Metrics, measured, percent, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, quiet
from lightning_gpuprof.rules.hardware.gpu_rule import NO_REASONS, ClockRule, Gpu, held_severity, slow_words


def _held(*reasons: str) -> dict[str, object]:
    return {"throttle": tuple((reason, 0.75, 900.0) for reason in reasons)}


class PowerBrake(ClockRule):
    id = "power-brake"
    title = "A power brake throttles the GPU"
    specialises = ("low-clocks", "power-throttle", "thermal-throttle")

    least_samples: int = threshold(2, source="heuristic: one look may be an accident")
    least_slowdown_ratio: float = threshold(0.05, source="heuristic: 5 % of the busy samples")

    examples = (
        fires("the brake in 30 of 40 samples", "critical", "SM clock 900 MHz instead", gpu=_held("hw_power_brake")),
        fires(
            "a slowdown without a reason", "critical", "A hardware protection of the board", gpu=_held("hw_slowdown")
        ),
        quiet("the clock is free", gpu={}),
        looks_alike("the slowdown is for heat", gpu=_held("hw_slowdown", "hw_thermal")),
        looks_alike("it works at its power limit", gpu=_held("sw_power_cap")),
        NO_REASONS,
    )

    def judge(self, metrics: Metrics, gpu: Gpu) -> Finding | None:
        clocks = measured(gpu.clocks)
        metrics.require_steady()
        brake, slowdown = clocks.held.get("hw_power_brake"), clocks.unnamed_slowdown
        if brake is not None and brake.ratio * clocks.samples >= self.least_samples - 0.5:
            held, who = brake, "The power brake"
            limit = self.least_samples / clocks.samples
            judged = self.evidence("least_samples", held.ratio, "busy samples", "ratio", limit=limit)
        elif slowdown is not None and slowdown.lower_ratio >= self.least_slowdown_ratio:
            held, who = slowdown, "A hardware protection of the board"
            judged = self.evidence("least_slowdown_ratio", held.ratio, "busy samples")
        else:
            return None
        cost = clocks.cost_of(held)
        return self.finding(
            subject=gpu.device.title,
            severity="critical" if held_severity(metrics, held, cost) == "critical" else "warning",
            summary=f"{who} slowed {gpu.device.title} down in {percent(held.ratio)} of {clocks.samples:,} busy samples"
            f"{slow_words(clocks, held)}",
            advice=f"Have the administrator check the power supplies, cables and rack power limit of "
            f"{gpu.device.place}. Train on another node until then.",
            evidence=(judged, *self.clock_facts(gpu, clocks, held)),
            cost=cost,
        )
