"""The GPU runs out of kernels because the host launches them too slowly.

## What it means
Each operator takes 5 to 50 µs on the host, whatever its size. If the kernels are shorter than that, the GPU is done
before the next launch. A faster GPU does not help; fewer or larger launches do.

## How it is measured
The GPU's idle time is the untraced step time minus its busy time, which tracing does not change. Of that, the rule
takes the causes `launch` and `launch_latency` of a trace window: the GPU had run dry, and the host was on its way to
the next launch. It was in no fetch, callback, checkpoint, allocation or wait for the GPU.

Tracing slows launches down. So the lower bound is what remains of the idle time if every other cause takes as long as
in the window. The host's time outside of the model, and what follows a wait, do not count. The gain is the idle time.

## When it is wrong
- The bound is cautious. Waits for the GPU or for batches are reported first, and this rule fires once they are gone.
- Python between the operators counts, too: see `python-overhead`.
- A busy or slow CPU makes every launch late: see `cpu-contention`.

## What to do
Use `torch.compile(model, mode="reduce-overhead")`, a fused optimizer, a larger batch, or fewer and larger operators.
"""

from lightning_gpuprof.model.device_step import ExplainedStep
from lightning_gpuprof.rules.base import Finding, Metrics, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_applicable, not_evaluated, quiet
from lightning_gpuprof.rules.launches.late_launches import (
    IDLE_RATIO,
    LaunchRule,
    fewer_launches,
    late_launches,
    launch_evidence,
)

_SHORT = {"kernel_us": 3.0}
_EAGER, _COMPILED = {"compile.state": "none"}, {"compile.state": "module", "compile.mode": "default"}


class LaunchBound(LaunchRule):
    id = "launch-bound"
    title = "The host launches kernels too slowly"

    least_ratio: float = threshold(IDLE_RATIO, source="TraceLens: idle above 15 %; HTA: host wait")

    examples = (
        fires("300 kernels of 3 µs run", "critical", "only one every 15.", saves_ms=3.6, step=_SHORT, run=_EAGER),
        fires("the model is not compiled", "critical", 'mode="reduce-overhead"', step=_SHORT, run=_EAGER),
        fires(
            "AdamW is not fused", "critical", "AdamW(..., fused=True)", step=_SHORT, run={"model.optimizer": "AdamW"}
        ),
        fires("the model is compiled", "critical", "instead of 'default'", step=_SHORT, run=_COMPILED),
        fires("the batch is small", "critical", "batch_size=160", step=_SHORT),
        fires(
            "untraced steps take 1.4 ms", "critical", "of each 1.40 ms step", step=_SHORT, period_ms=1.4, phases_ms={}
        ),
        quiet("untraced steps take 1.02 ms", step=_SHORT, period_ms=1.02, phases_ms={}),
        quiet("kernels take 100 µs", step={}),
        looks_alike("the GPU waits for batches", step={"fetch_us": 60_000.0}),
        looks_alike("the host is busy elsewhere", step={"other_us": 40_000.0}),
        looks_alike("a value is read", step={"reads": {"training_step": 0.0}, "after_step_us": 900.0, "kernels": 30}),
        looks_alike("the loop takes most of the step", step=_SHORT, phases_ms={"loop": 3.2, "forward": 1.3}),
        not_applicable("the model is on the CPU", "runs on the CPU"),
        not_evaluated("there is no trace window", "no trace window was recorded", run={"device.type": "cuda"}),
    )

    def judge(self, metrics: Metrics, step: ExplainedStep) -> Finding | None:
        late = late_launches(metrics, step)
        if not late.is_worth(self.least_ratio):
            return None
        return self.of_step(
            step,
            late,
            subject="launches",
            summary=f"The GPU waits {late} for kernel launches. A kernel runs for {step.mean_kernel_us:.1f} µs on "
            f"average, but the host launches only one every {step.us_per_kernel:.1f} µs "
            f"({step.kernels_per_step:,.0f} per step).",
            advice=fewer_launches(metrics, step),
            evidence=(
                self.evidence("least_ratio", late.ratio, "waiting for launches, share of the step"),
                *launch_evidence(step),
            ),
        )
