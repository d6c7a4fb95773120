"""Each step fills the gradients with zeros instead of letting them go.

## What it means
torch sets gradients to None by default, and the next backward stores new ones. With `zero_grad(set_to_none=False)`, or
an override of `optimizer_zero_grad` that calls it, memory is written once to fill it with zeros, and backward reads the
zeros, adds to them and writes the sum. With large parameters and small batches that is a good part of the step.

## How it is measured
Once, in an early step: whether the optimizer's parameters still have gradients after `optimizer_zero_grad`. On a CPU,
filling takes the phase `zero_grad`: the lower bound of its median as a share of the steady steps, less 2 µs for each
tensor, which None takes as well. On a GPU it takes the time of what was launched there in a trace window.

Filling is one of four passes over the gradients' memory that None saves: the gain is at most four times its time, and
none of it is certain. With linear layers on a CPU, None saved 0.5 to 4 times the time of filling, but nothing with 32
gradients of 1 MB each: backward then computed all of them in one buffer that stayed in the cache.

## When it is wrong
- An override that keeps gradients on purpose, to accumulate them by hand, needs them. It takes no time, though.
- Optimizers skip a parameter without a gradient, but apply momentum and weight decay to one whose gradient is zero:
  parameters that only some steps use train differently then.
- With manual optimization the rule does not apply, as your code clears the gradients.

## What to do
Drop the override, or `set_to_none=False` in it.
"""

from lightning_gpuprof.rules.base import (
    BaseRule,
    Change,
    Cost,
    Finding,
    Metrics,
    MissingSignal,
    NotApplicable,
    claims,
    measured,
    millis,
    threshold,
)
from lightning_gpuprof.rules.examples import fires, looks_alike, not_applicable, not_evaluated, quiet
from lightning_gpuprof.rules.launches.step_rule import explained_step, less_work_saves_ms

_PASSES = 4
"""Over the memory of the gradients: one to fill them; two reads and a write to add to them."""
_NONE_MS = 0.002
"""Letting go of one gradient on a CPU. Measured: 1.2 to 1.9 µs for 800 small ones on a busy machine."""

_KEPT = {"model.gradients_kept": 40}
_FILLED = {"run": _KEPT, "times_ms": {"zero_grad": 6.0}}


class ZeroGradMemset(BaseRule):
    id = "zero-grad-memset"
    title = "Gradients are filled with zeros"
    certainty = 0.6
    explains = claims.ZEROS_IN_GRADIENTS

    least_ratio: float = threshold(0.02, source="heuristic: a quarter of what leaving it out saves at most")

    examples = (
        fires(
            "filling 40 gradients takes 6 ms",
            "warning",
            "Filling 40 gradients with zeros takes 5.92 ms ... set_to_none=True",
            saves_ms=23.7,
            **_FILLED,
        ),
        fires("it takes 2 ms", "info", "1.92 ms", run=_KEPT, times_ms={"zero_grad": 2.0}),
        fires("a GPU takes 2 of 32 ms", "info", "2.00 ms", run=_KEPT, period_ms=32.0, step={"zeros": (20, 100.0)}),
        quiet("it takes 1 ms", run=_KEPT, times_ms={"zero_grad": 1.0}),
        quiet("a GPU fills them for 0.2 ms", run=_KEPT, period_ms=30.2, step={"zeros": (2, 100.0)}),
        looks_alike("many gradients are set to None", run={"model.gradients_kept": 0}, times_ms={"zero_grad": 6.0}),
        not_evaluated("nobody looked at the gradients", "zero_grad left", times_ms={"zero_grad": 6.0}),
        not_evaluated(
            "no window shows the GPU",
            "no trace window",
            run={**_KEPT, "device.type": "cuda"},
            times_ms={"zero_grad": 6.0},
        ),
        not_applicable("the code clears them", "manual", run={"model.automatic_optimization": False}),
    )

    def check(self, metrics: Metrics) -> Finding | None:
        if metrics.condition("model.automatic_optimization") is False:
            raise NotApplicable("with manual optimization your code clears the gradients")
        metrics.require_steady()
        kept = metrics.number("model.gradients_kept")
        if kept == 0:
            return None
        filling, saved_ms = self._on_device(metrics) if metrics.is_cpu_only is False else self._on_cpu(metrics, kept)
        saved = metrics.cost(saved_ms, 0.0)
        if filling.lower_ratio < self.least_ratio or not saved.is_worth():
            return None
        if kept is None:
            raise MissingSignal("whether zero_grad left the gradients there is not known")
        change = Change(
            call="optimizer.zero_grad",
            arguments={"set_to_none": True},
            before={"set_to_none": False},
            place="in optimizer_zero_grad",
        )
        return self.finding(
            severity=filling.severity,
            subject="optimizer_zero_grad",
            summary=f"Filling {kept:,.0f} gradients with zeros takes {filling}, and backward then adds to the zeros "
            "instead of storing its gradients.",
            advice="Let the gradients go: drop the override of optimizer_zero_grad, or call "
            f"{change.added[0]} in it. At most, that saves {millis(saved.ms)} per step: filling, and reading and "
            "writing the gradients once more.",
            change=change,
            evidence=(
                self.evidence("least_ratio", filling.ratio, "filling with zeros, share of the step"),
                self.fact("gradients that zero_grad left", kept),
                self.fact("step time", filling.step_ms, "ms"),
            ),
            gain=saved.gain,
        )

    def _on_cpu(self, metrics: Metrics, kept: float | None) -> tuple[Cost, float]:
        """What filling takes, and what is saved without it at most in ms."""
        share, none_ms = metrics.share_of("zero_grad"), _NONE_MS * (kept or 0.0)
        lower_ms = share.lower_ratio * metrics.step_ms - none_ms
        filling = metrics.cost(max(0.0, share.median_ms - none_ms), max(0.0, lower_ms))
        return filling, _PASSES * filling.ms

    def _on_device(self, metrics: Metrics) -> tuple[Cost, float]:
        step = explained_step(metrics)
        ms = measured(step.device_ms_in("zero_grad"))
        return metrics.cost(ms, ms), less_work_saves_ms(metrics, step, _PASSES * ms)
