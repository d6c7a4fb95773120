"""Finds that gradient clipping takes a noticeable part of the steps."""

from __future__ import annotations

from dataclasses import dataclass

from lightning_gpuprof.model.finding import Evidence, Finding
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import (
    BaseRule,
    condition,
    ordinary_ratio,
    possible,
    steady_period_ms,
    step_share,
    threshold,
)
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.steps.host_time import counted_time
from lightning_gpuprof.rules.wording import millis, percent


@dataclass(frozen=True, kw_only=True)
class GradClipCost(BaseRule):
    """Clipping the gradients takes a noticeable part of the steps.

    ## What it means

    Clipping by norm reads all gradients, and scales them, before each optimizer step: with many small tensors, or a
    `configure_gradient_clipping` of one's own that loops over parameters or reads values (`.item()`), that takes as
    long as a good part of the backward pass.

    ## How it is measured

    The phase `clip` as a share of the period of steady steps: the lower bound of its median, with accumulated
    gradients its part of the total. 0.5 ms, which clipping a few dozen tensors costs on a slow CPU, are taken off
    before the share is compared with the threshold. The gain is the whole phase.

    ## When it is wrong

    - Clipping may be needed: the gain is that of a run without it.
    - On a device only the time counts in which the device is idle, which a trace window tells: not evaluated without
      one.
    - With `16-mixed` the gradients are unscaled in the same phase.

    ## What to do

    Leave it out if the norm never passes the limit (log it to see), clip fewer and larger tensors, or accumulate:
    clipping happens once per optimizer step. In a hook of one's own use `torch.nn.utils.clip_grad_norm_`, which
    handles all tensors together.
    """

    id = "grad-clip-cost"

    least_ratio: float = threshold(0.05, source="catalogue")
    fixed_ms: float = threshold(0.5, source="heuristic: 0.25 to 0.4 ms for 6 to 50 tensors on a slow CPU core")

    examples = (
        fires("clipping takes 10 ms of 60 ms", "warning", "10.0 ms of a step of 60.0 ms", times_ms={"clip": 10.0}),
        fires("it takes a twentieth and 0.5 ms", "info", "clip_grad_norm_", times_ms={"clip": 3.4}),
        quiet("it takes less", times_ms={"clip": 3.2}),
        quiet("nothing is clipped"),
        looks_alike("a GPU works meanwhile", times_ms={"clip": 10.0}, run={"device.type": "cuda"}, idle_ratio=0.02),
        not_evaluated(
            "no window shows the GPU", "no trace window", times_ms={"clip": 10.0}, run={"device.type": "cuda"}
        ),
    )

    def check(self, metrics: Metrics) -> Finding | None:
        """Judge the phase in which gradients are clipped."""
        period_ms = steady_period_ms(metrics)
        if "clip" not in metrics.shares:
            return None
        share = step_share(metrics, "clip")
        found_ratio = ordinary_ratio(metrics, share, "clip")
        if found_ratio - self.fixed_ms / period_ms < self.least_ratio:
            return None
        taken_ms = max(found_ratio, share.median_ratio) * period_ms
        time = counted_time(metrics, period_ms, ratio=found_ratio, taken_ms=taken_ms)
        if not time.is_worth(self.least_ratio, fixed_ms=self.fixed_ms):
            return None
        ratio = time.recoverable_ms / period_ms
        value = condition(metrics, "trainer.gradient_clip_val")
        limit = value if isinstance(value, (int, float)) and possible(value) else None
        tensors = condition(metrics, "model.parameter_tensors")
        what = f"{tensors:,} gradients" if isinstance(tensors, int) else "the gradients"
        algorithm = condition(metrics, "trainer.gradient_clip_algorithm") or "norm"
        how = f" by {algorithm} to {limit}" if limit else ""
        return self.finding(
            severity=time.severity(metrics.steps.steady_count, fixed_ms=self.fixed_ms),
            subject=f"gradient_clip_val={limit}" if limit else "configure_gradient_clipping",
            summary=(
                f"Clipping {what}{how} takes {millis(time.recoverable_ms)} of a step of {millis(period_ms)} "
                f"({percent(ratio)})."
            ),
            advice=_advice(metrics, limit),
            evidence=(
                self.evidence("least_ratio", ratio, "clipping share of the step"),
                Evidence(name="clipping per step", value=time.recoverable_ms, unit="ms"),
                *((Evidence(name="parameter tensors", value=tensors),) if isinstance(tensors, int) else ()),
            ),
            gain=time.gain,
            confidence=0.75,
            explains=claims.GRADIENT_CLIPPING,
        )


def _advice(metrics: Metrics, limit: object) -> str:
    accumulated = condition(metrics, "trainer.accumulate_grad_batches")
    now = accumulated if isinstance(accumulated, int) and accumulated > 0 else 1
    rarer = f"Trainer(accumulate_grad_batches={2 * now}) clips half as often"
    if not limit:
        return (
            "Look at configure_gradient_clipping: torch.nn.utils.clip_grad_norm_(self.parameters(), limit) handles all "
            f"tensors together and reads no value; {rarer}."
        )
    return (
        f"Log the norm that clip_grad_norm_ returns: if it stays below {limit}, leave gradient_clip_val={limit} out. "
        f"Else fewer and larger tensors help, and {rarer}."
    )
