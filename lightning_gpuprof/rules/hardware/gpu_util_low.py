"""The GPU is idle for a large part of the time: a symptom, reported with its known causes.

## What it means
The driver's utilization is the share of time in which any kernel ran. Where it is low, the GPU waits, mostly for the
host: for batches, callbacks, validation, or launches that come too slowly.

## How it is measured
The mean utilization (NVML) over at least 20 distinct samples; its 95 % upper bound must be below 70 %. It is
information without a gain, which the rules of the causes have. Named are the idle causes of a trace window, else the
parts of the run and phases of the step that take a tenth of the time, each with the rule that judges it.

## When it is wrong
- Utilization is not efficiency: a high one proves nothing, see `util-misleading`.
- MIG devices and some virtual GPUs have none: not evaluated.
- Phases are host times. A wait is harmless while the GPU still has work queued.

## What to do
Look at the named rules. If there are none, a trace window shows what the host does before each launch.
"""

from lightning_gpuprof.model.device import MIN_SAMPLES
from lightning_gpuprof.model.host_time import BesideModel
from lightning_gpuprof.model.phases import PHASE_TERMS, words_of
from lightning_gpuprof.model.trace.idle import IDLE_CAUSE_TERMS
from lightning_gpuprof.rules.base import Evidence, Finding, Metrics, listed, measured, millis, percent, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.hardware.gpu_rule import Gpu, GpuRule

_RULE_OF = {"data_wait": "input-bound", "callbacks": "callback-slow", "logging": "logging-overhead"}
_RULE_OF_PART = {"validation": "validation-stall", "checkpoint": "checkpoint-stall", "epoch_gap": "worker-startup"}
_LOW = {"values": {"utilization_ratio": 0.3}}
_WAITS = {"data_wait": 100.0}


class GpuUtilLow(GpuRule):
    id = "gpu-util-low"
    title = "The GPU is idle much of the time"

    low_ratio: float = threshold(0.70, source="the method: below it a GPU is not the bottleneck (TensorBoard: 50 %)")
    named_ratio: float = threshold(0.10, source="heuristic: shares of the time that are named")

    examples = (
        fires("the GPU waits for batches", "info", "67 % of the step (input-bound)", gpu=_LOW, times_ms=_WAITS),
        fires("nothing explains it", "info", "Nothing measured explains 35.0 ms", gpu=_LOW),
        quiet("the GPU is busy", gpu={}),
        looks_alike("the GPU is full of small kernels", gpu={"values": {"sm_active_ratio": 0.1}}),
        not_evaluated("19 samples differ", "19 of the 20 distinct", gpu={"distinct": 19}),
    )

    def judge(self, metrics: Metrics, gpu: Gpu) -> Finding | None:
        name, found, distinct = gpu.device.title, measured(gpu.utilization), gpu.device.distinct_samples or 0
        period_ms, upper = metrics.step_ms, found.upper_mean(distinct)
        if upper >= self.low_ratio:
            return None
        causes = self._causes(metrics)
        idle_ms = (1 - found.mean) * period_ms
        unknown = f"Nothing measured explains {millis(idle_ms)} of idle time in each {millis(period_ms)} step."
        look = "Record a trace window to see what the host does before each launch: GpuProfiler(windows=[...])."
        return self.finding(
            subject=name,
            summary=f"{name} is busy {percent(found.mean)} of the time (at most {percent(upper)}). "
            + (f"Likely causes: {listed(causes)}." if causes else unknown),
            advice="Fix these causes first: utilization then rises by itself." if causes else look,
            evidence=(
                self.evidence("low_ratio", upper, "utilization"),
                Evidence(name="distinct samples", value=distinct, limit=MIN_SAMPLES),
            ),
            confidence=0.9,
        )

    def _causes(self, metrics: Metrics) -> list[str]:
        """Of a window, else the parts and phases in which the host is at something else than the model."""
        idle = [one for one in metrics.idle_causes if one.window_ratio >= self.named_ratio][:3]
        if idle:
            return [f"{percent(one.window_ratio)} of a window, {IDLE_CAUSE_TERMS[one.cause]}" for one in idle]
        return [_in_words(one) for one in metrics.beside_model if one.lower_ratio >= self.named_ratio]


def _in_words(one: BesideModel) -> str:
    if one.phase is None:
        return f"{one.name.replace('_', ' ')} {percent(one.ratio)} of the run ({_RULE_OF_PART[one.name]})"
    why = _RULE_OF.get(one.phase) or PHASE_TERMS[one.phase]
    return f"{words_of(one.phase)} {percent(one.ratio)} of the step ({why})"
