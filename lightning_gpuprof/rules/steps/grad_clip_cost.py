"""Clipping the gradients takes a noticeable part of the step.

## What it means
Clipping by norm reads and scales all gradients before each optimizer step. With many small tensors, or a custom
`configure_gradient_clipping` that loops over parameters or reads values (`.item()`), that takes as long as a good part
of the backward pass.

## How it is measured
The phase `clip` as a share of steady steps: the lower bound of its median, with accumulated gradients its part of the
total. 0.5 ms, which clipping a few dozen tensors costs on a slow CPU, are subtracted first. The gain is the whole
phase.

## When it is wrong
- Clipping may be needed: the gain is that of a run without it.
- On a GPU only the time counts in which the device is idle: not evaluated without a trace window.
- With `16-mixed` the gradients are unscaled in the same phase.

## What to do
Leave it out if the norm never reaches the limit (log it to see), clip fewer and larger tensors, or accumulate, as
clipping happens once per optimizer step. In a custom hook use `torch.nn.utils.clip_grad_norm_`, which handles all
tensors together.
"""

from lightning_gpuprof.rules.base import Advice, Cost, Finding, Metrics, Share, claims, setting, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.steps.host_time import PhaseRule


class GradClipCost(PhaseRule):
    id = "grad-clip-cost"
    phase = "clip"
    needs_window = True
    title = "Gradient clipping slows down the steps"

    least_ratio: float = threshold(0.05, source="heuristic")
    fixed_ms: float = threshold(0.5, source="heuristic: 0.25 to 0.4 ms for 6 to 50 tensors on a slow CPU core")

    examples = (
        fires("clipping takes 10 ms of 60 ms", "warning", "10.0 ms of each 60.0 ms step", times_ms={"clip": 10.0}),
        fires("clipping takes a twentieth and 0.5 ms", "info", "clip_grad_norm_", times_ms={"clip": 3.4}),
        quiet("clipping takes less", times_ms={"clip": 3.2}),
        quiet("nothing is clipped"),
        looks_alike(
            "a GPU is busy at that time", times_ms={"clip": 10.0}, run={"device.type": "cuda"}, idle_ratio=0.02
        ),
        not_evaluated("no window shows it", "no trace window", times_ms={"clip": 10.0}, run={"device.type": "cuda"}),
    )

    def part(self, metrics: Metrics) -> Share | None:
        """None where nothing is clipped."""
        return super().part(metrics) if self.phase in metrics.shares else None

    def judge(self, metrics: Metrics, found: Cost) -> Finding:
        limit = metrics.number("trainer.gradient_clip_val")
        tensors = metrics.positive("model.parameter_tensors")
        what = f"{tensors:,} gradients" if tensors else "the gradients"
        algorithm = metrics.condition("trainer.gradient_clip_algorithm") or "norm"
        how = f" by {algorithm} to {limit}" if limit else ""
        return self.finding(
            severity=found.severity_beyond(self.fixed_ms),
            subject=f"gradient_clip_val={limit}" if limit else "configure_gradient_clipping",
            summary=f"Clipping {what}{how} takes {found}.",
            advice=_advice(metrics, limit),
            evidence=(
                self.evidence("least_ratio", found.ratio, "clipping, share of the step"),
                self.fact("clipping per step", found.ms, "ms"),
                self.fact("parameter tensors", tensors),
            ),
            cost=found,
            confidence=0.75,
            explains=claims.GRADIENT_CLIPPING,
        )


def _advice(metrics: Metrics, limit: object) -> Advice:
    now = metrics.positive("trainer.accumulate_grad_batches") or 1
    change = setting("Trainer", accumulate_grad_batches=(now, 2 * now))
    rarer = f"To clip half as often: {change.added[0]}"
    if not limit:
        call = "torch.nn.utils.clip_grad_norm_(self.parameters(), limit)"
        why = "which handles all tensors together and does not wait for the device"
        return f"In configure_gradient_clipping use {call}, {why}. {rarer}", change
    log = f"Log the norm that clip_grad_norm_ returns: if it stays below {limit}, leave gradient_clip_val out."
    return f"{log} {rarer}", change
