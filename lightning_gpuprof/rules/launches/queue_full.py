"""The launch queue is full: the host is ahead of the GPU, and its time in launches costs nothing.

## What it means
CUDA queues about a thousand launches and then blocks the next one until the GPU has begun an earlier one. A profile of
the host shows long launches, or a long forward and backward pass, although nothing is slow there: the GPU sets the
pace.

## How it is measured
Trace window: launches that took more than three times the median while a thousand kernels were queued, and a GPU that
idles for at most a tenth of an untraced step. Information only. Unlike in other rules, a window counts in which the GPU
still runs what was launched before it.

## When it is wrong
- ROCm's queue grows instead of blocking the host: nothing is reported there.

## What to do
Nothing on the host. Look at the kernels: precision, tensor cores, fused operators.
"""

from lightning_gpuprof.rules.base import BaseRule, Finding, Metrics, MissingSignal, millis, percent, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_applicable, not_evaluated, quiet
from lightning_gpuprof.rules.launches.step_rule import confidence, seen_step, step_evidence

_FULL = {"kernels": 500, "fetch_us": 10.0}


class QueueFull(BaseRule):
    id = "queue-full"
    title = "The host is far ahead of the GPU"

    least_queue: float = threshold(1000.0, source="HTA: a queue of 1,024")
    most_idle_ratio: float = threshold(0.10, source="heuristic: of the untraced step")

    examples = (
        fires("500 kernels of 100 µs run", "info", "The GPU is the bottleneck", step=_FULL, period_ms=50.2),
        fires("the GPU idles 9.1 %", "info", "Do not optimise the host", step=_FULL, period_ms=55.0),
        quiet("the GPU idles 10.7 %", step=_FULL, period_ms=56.0),
        quiet("the queue has room", step={**_FULL, "kernels": 100}, period_ms=10.1),
        looks_alike("launches come late", step={**_FULL, "kernel_us": 3.0}),
        not_applicable("the model is on the CPU", "runs on the CPU"),
        not_evaluated("there is no trace window", "no trace window was recorded", run={"device.type": "cuda"}),
    )

    def check(self, metrics: Metrics) -> Finding | None:
        step = seen_step(metrics)
        analysis = None if step.window is None else step.window.analysis
        if analysis is None or analysis.attribution is None or analysis.streams is None:
            raise MissingSignal("the queue of the trace window could not be analysed")
        longest = max((device.queue.max for device in analysis.streams.devices), default=0)
        held_ms = analysis.attribution.full_queue_us / 1e3 / step.steps
        if held_ms <= 0 or longest < self.least_queue or step.idle_ratio > self.most_idle_ratio:
            return None
        return self.finding(
            subject="launches",
            summary=f"The host is up to {longest:,} kernels ahead of the GPU and waits {millis(held_ms)} per traced "
            "step in launches. The GPU is the bottleneck.",
            advice="Do not optimise the host: its launches only wait for the GPU. Look at the kernels: "
            f"the GPU idles only {percent(step.idle_ratio)} of the step.",
            evidence=(
                self.evidence("least_queue", float(longest), "longest queue"),
                self.fact("host held in launches per traced step", held_ms, "ms"),
                self.evidence("most_idle_ratio", step.idle_ratio, "GPU idle, share of the step"),
                *step_evidence(step),
            ),
            confidence=confidence(step),
        )
