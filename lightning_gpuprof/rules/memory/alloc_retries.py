"""Finds that the allocator had to give back its cache in order to serve an allocation."""

from __future__ import annotations

from dataclasses import dataclass

from lightning_gpuprof.model.finding import Evidence, Finding, Severity
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import BaseRule, steady_period_ms, threshold
from lightning_gpuprof.rules.memory import gpu_memory
from lightning_gpuprof.rules.memory.oom_risk import smaller_batch
from lightning_gpuprof.rules.wording import counted, percent


@dataclass(frozen=True, kw_only=True)
class AllocRetries(BaseRule):
    """Allocations failed at first: the allocator waited for the GPU, gave all cached memory back and tried again.

    ## What it means

    The GPU has no memory left for a new segment. torch then frees every cached segment, which waits for the device, and
    asks for new ones in the steps after it. One retry can take as long as many steps, and the next thing is an
    out-of-memory error.

    ## How it is measured

    The rise of the allocator's counter `num_alloc_retries` from the first reading after warm-up to the last, over 20
    steady steps at least. It is a warning from one in a hundred steps, information below. What it costs is known where
    a trace window has calls such as cudaMalloc and cudaFree in the device's idle time; by its lower bound it is a
    warning from a tenth of the step on, and critical from a fifth.

    ## When it is wrong

    - Retries before the run was steady are not counted.
    - A retry between the last reading and the end of the run is missed.

    ## What to do

    Let segments grow (`expandable_segments:True`), or need less: a smaller batch with accumulation. Emptying the cache
    by hand makes it worse: it is what a retry does.

    ## Example

    "12 allocations in 380 steady steps had to give cached memory back first: 99 % of the GPU was reserved."
    """

    id = "alloc-retries"
    specialises = ("cudamalloc-steady", "empty-cache-in-loop", "gpu-gaps")

    least_count: int = threshold(1, source="the rule catalogue: any in steady steps")
    warning_per_step: float = threshold(0.01, source="heuristic: one in a hundred steps")
    least_steps: int = threshold(20, source="the rule catalogue: 20 steps")

    def check(self, metrics: Metrics) -> Finding | None:
        """Judge the retries of steady steps."""
        memory = gpu_memory.allocator(metrics)
        steady_period_ms(metrics)
        steps = gpu_memory.require_steady_steps(memory, self.least_steps)
        retries = gpu_memory.counted(memory.retries_steady_count, "retries of the allocator")
        if retries < self.least_count:
            return None
        ratio = memory.peak_ratio
        full = "" if ratio is None else f": {percent(ratio)} of {memory.name} was reserved at the peak"
        setting = gpu_memory.expandable_advice(metrics)
        first = f"Set {setting} before the start" if setting else "Segments grow already (expandable_segments)"
        gain = gpu_memory.allocator_gain(metrics)
        level: Severity = "warning" if retries / steps >= self.warning_per_step else "info"
        return self.finding(
            severity=gpu_memory.cost_severity(metrics, gain, level),
            subject=memory.name,
            summary=f"{counted(retries, 'allocation')} in {counted(steps, 'steady step')} had to give cached memory "
            f"back first{full}.",
            advice=f"{first}; if it stays so, need less: {smaller_batch(metrics)}. torch.cuda.empty_cache() does not "
            "help.",
            evidence=(
                self.evidence("least_count", retries, "retries"),
                Evidence(name="steady steps", value=steps, limit=self.least_steps),
            ),
            gain=gain,
            confidence=0.9,
            explains=claims.ALLOCATOR,
        )
