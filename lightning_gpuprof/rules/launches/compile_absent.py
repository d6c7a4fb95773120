"""The GPU waits for launches, and the model runs without `torch.compile`.

## What it means
`torch.compile` fuses kernels and removes Python; with CUDA graphs a whole graph is one launch.

## How it is measured
The idle time of `launch-bound` passes its threshold, and nothing was compiled at the first step or later. This is a
hint: the gain is that of `launch-bound`.

## When it is wrong
- A model with graph breaks or varying shapes compiles into many parts, or again and again, and gains less.

## What to do
`model = torch.compile(model, mode="reduce-overhead")` before `trainer.fit(model)`; `dynamic=True` if shapes vary.
"""

from lightning_gpuprof.model.device_step import ExplainedStep
from lightning_gpuprof.rules.base import Finding, Metrics, MissingSignal, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_applicable, not_evaluated, quiet
from lightning_gpuprof.rules.launches.late_launches import IDLE_RATIO, LaunchRule, compile_for_launches, late_launches
from lightning_gpuprof.rules.launches.step_rule import compiled, confidence

_SHORT = {"kernel_us": 3.0}
_EAGER = {"compile.state": "none"}


class CompileAbsent(LaunchRule):
    id = "compile-absent"
    title = "The model is not compiled"

    least_ratio: float = threshold(IDLE_RATIO, source="as launch-bound")

    examples = (
        fires("300 kernels of 3 µs run", "info", "300 launches per step", step=_SHORT, run=_EAGER),
        fires("steps take 1.4 ms", "info", "torch.compile", step=_SHORT, period_ms=1.4, phases_ms={}, run=_EAGER),
        quiet("steps take 1.02 ms", step=_SHORT, period_ms=1.02, phases_ms={}, run=_EAGER),
        quiet("a part of the model is compiled", step=_SHORT, run={"compile.state": "submodules"}),
        looks_alike("kernels take 100 µs", step={}, run=_EAGER),
        not_evaluated("the state of the compiler is not known", "whether the model is compiled", step=_SHORT),
        not_applicable("the model is on the CPU", "runs on the CPU"),
    )

    def judge(self, metrics: Metrics, step: ExplainedStep) -> Finding | None:
        late = late_launches(metrics, step)
        if not late.is_worth(self.least_ratio):
            return None
        state = compiled(metrics)
        if state is None:
            raise MissingSignal("whether the model is compiled is not known")
        if state:
            return None
        advice, change = compile_for_launches(metrics, step)
        return self.finding(
            subject="torch.compile",
            summary=f"The model is not compiled, and the GPU waits {late} for the next launch.",
            advice=f"{advice} torch.compile can fuse "
            f"{step.kernels_per_step:,.0f} launches per step. Check the gain with `gpuprof compare`.",
            evidence=(
                self.evidence("least_ratio", late.ratio, "waiting for launches, share of the step"),
                self.fact("compiled", "no"),
            ),
            confidence=confidence(step),
            change=change,
        )
