"""The call that launches a kernel takes long, and the GPU waits for it.

## What it means
`cudaLaunchKernel` returns within 4 to 12 µs under the profiler. If it always takes much longer, the host is slow or
shared, or launches wait for their kernels (`CUDA_LAUNCH_BLOCKING=1`, left from debugging).

## How it is measured
Trace window: the most frequent launch call has a median of 20 µs or more over at least 100 calls, without a full queue,
and the certain idle time of `launch-bound` passes 10 % of the step. The gain is what the calls take above 10 µs each,
as far as the GPU waits for launches. If the median call takes as long as the mean kernel and the queue never holds more
than two kernels, launches wait for their kernels.

## When it is wrong
- The profiler adds a few microseconds to each call; the threshold leaves room for it.
- First launches of a kernel, which load it, are few and do not move the median.

## What to do
Unset `CUDA_LAUNCH_BLOCKING`, give the training a CPU of its own, look for debuggers or tools that intercept CUDA.
"""

from msgspec.structs import replace

from lightning_gpuprof.model.device_step import ExplainedStep
from lightning_gpuprof.rules.base import Change, Finding, Metrics, measured, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_applicable, not_evaluated, quiet
from lightning_gpuprof.rules.launches.late_launches import LaunchRule, late_launches, launch_evidence

_BLOCKING = "env.CUDA_LAUNCH_BLOCKING"


def _calls(call_us: float, *, kernel_us: float = 5.0, op_us: float | None = None) -> dict[str, float]:
    """Steps of an example."""
    op_us = call_us + 6.0 if op_us is None else op_us
    return {"kernels": 100, "call_us": call_us, "kernel_us": kernel_us, "op_us": op_us, "python_us": 0, "fetch_us": 0}


class SlowLaunchApi(LaunchRule):
    id = "slow-launch-api"
    title = "Kernel launch calls are slow"
    specialises = ("launch-bound",)
    certainty = 0.8

    least_median_us: float = threshold(20.0, source="heuristic: recorded traces of six GPU models have 4 to 12")
    usual_us: float = threshold(10.0, source="heuristic: what a call may take")
    least_calls: float = threshold(100.0, source="heuristic: calls in the window")
    least_ratio: float = threshold(0.10, source="TraceML: 0.10")

    examples = (
        fires("a launch takes 60 µs", "critical", "takes 60.0 µs", saves_ms=5, step=_calls(60)),
        fires("launches wait for kernels", "critical", "Unset CUDA_LAUNCH", step=_calls(45, kernel_us=40, op_us=90)),
        fires("a launch takes 20 µs", "critical", "usually takes 10 µs", step=_calls(20), run={_BLOCKING: None}),
        quiet("a launch takes 19 µs", step=_calls(19)),
        looks_alike("only the operators are slow", step=_calls(8, op_us=60)),
        looks_alike("the GPU is busy", step=_calls(60, kernel_us=100)),
        not_applicable("the model is on the CPU", "runs on the CPU"),
        not_evaluated("there is no trace window", "no trace window was recorded", run={"device.type": "cuda"}),
    )

    def judge(self, metrics: Metrics, step: ExplainedStep) -> Finding | None:
        late = late_launches(metrics, step)
        call = measured(step.launch_calls)
        if call is None or call.count < self.least_calls or call.median_us < self.least_median_us:
            return None
        excess_ms = (call.median_us - self.usual_us) * call.per_step / 1e3
        saved = replace(late, ms=min(excess_ms, late.ms), lower_ms=min(excess_ms, late.lower_ms))
        if not saved.is_worth(self.least_ratio):
            return None
        blocking = call.waits_for_kernels and metrics.run.get(_BLOCKING, "1") not in (None, "", "0")
        change = Change(remove=("CUDA_LAUNCH_BLOCKING=1",), add=("CUDA_LAUNCH_BLOCKING=0",)) if blocking else None
        return self.of_step(
            step,
            saved,
            subject=call.name,
            summary=f"{call.name} takes {call.median_us:.1f} µs (median of {call.per_step:,.0f} calls per "
            f"step){', at least as long as a kernel' if blocking else ''}. The GPU waits {late} for the next launch.",
            advice=(
                "Unset CUDA_LAUNCH_BLOCKING: each launch waits until its kernel is done."
                if blocking
                else "Give the main thread a CPU of its own, and look for debuggers or tools that intercept CUDA. "
                f"A launch usually takes {self.usual_us:.0f} µs."
            ),
            evidence=(
                self.evidence("least_median_us", call.median_us, "median launch call", "µs"),
                self.evidence("least_ratio", late.ratio, "waiting for launches, share of the step"),
                *launch_evidence(step),
            ),
            change=change,
        )
