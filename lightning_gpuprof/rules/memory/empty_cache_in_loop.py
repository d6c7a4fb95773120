"""Finds that cached memory is given back to the device again and again, although nothing needs it."""

from __future__ import annotations

from dataclasses import dataclass

from lightning_gpuprof.model.finding import Evidence, Finding, Severity
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import BaseRule, steady_period_ms, threshold
from lightning_gpuprof.rules.memory import gpu_memory
from lightning_gpuprof.rules.wording import counted

_COLLECTS = "garbage_collection_threshold"


@dataclass(frozen=True, kw_only=True)
class EmptyCacheInLoop(BaseRule):
    """Steady steps give segments of memory back to the device and ask for them again: somebody empties the cache.

    ## What it means

    `torch.cuda.empty_cache()` calls cudaFree for every unused segment, which waits for the device, and the next step
    pays for cudaMalloc. It frees no memory that tensors hold, and torch gives the cache back by itself when it has to.

    ## How it is measured

    The rises of the allocator's counters of cudaFree and cudaMalloc in steady steps (20 at least). Both are above one
    in ten steps, and no allocation had to be tried again: then nothing but a call gives segments back. A warning from
    one cudaFree per step; below that information. Where a trace window shows what these calls hold of the device's
    idle time, the lower bound of that makes it a warning from a tenth of the step on, and critical from a fifth.

    ## When it is wrong

    - `garbage_collection_threshold` in PYTORCH_CUDA_ALLOC_CONF gives segments back, too: then this rule is silent.
    - A library may call it for you; which line does is in a trace window with stacks.

    ## What to do

    Remove the call, or make it once before validation, where the sizes change.

    ## Example

    "380 steady steps gave 1,520 segments back to the device and took 1,520 new ones, although no memory was missing."
    """

    id = "empty-cache-in-loop"
    specialises = ("cudamalloc-steady", "gpu-gaps")

    least_per_step: float = threshold(0.1, source="the rule catalogue: one in ten steps")
    warning_per_step: float = threshold(1.0, source="heuristic: each step waits for the device")
    least_steps: int = threshold(20, source="the rule catalogue: 20 steps")

    def check(self, metrics: Metrics) -> Finding | None:
        """Judge what steady steps give back."""
        memory = gpu_memory.allocator(metrics)
        steady_period_ms(metrics)
        steps = gpu_memory.require_steady_steps(memory, self.least_steps)
        frees = gpu_memory.counted(memory.device_frees_steady_count, "calls of cudaFree")
        allocs = gpu_memory.counted(memory.device_allocs_steady_count, "calls of cudaMalloc")
        retries = gpu_memory.counted(memory.retries_steady_count, "retries of the allocator")
        if retries or min(frees, allocs) <= self.least_per_step * steps or _COLLECTS in gpu_memory.settings(metrics):
            return None
        gain = gpu_memory.allocator_gain(metrics)
        level: Severity = "warning" if frees >= self.warning_per_step * steps else "info"
        return self.finding(
            severity=gpu_memory.cost_severity(metrics, gain, level),
            subject=memory.name,
            summary=f"{counted(steps, 'steady step')} gave {counted(frees, 'segment')} back to {memory.name} and took "
            f"{allocs:,} new ones, although no memory was missing: the cache is emptied.",
            advice="Remove torch.cuda.empty_cache() from the training loop and its callbacks; torch gives cached "
            "memory back by itself when an allocation needs it.",
            evidence=(
                self.evidence("least_per_step", frees / steps, "cudaFree per step"),
                Evidence(name="cudaMalloc per step", value=allocs / steps, limit=self.least_per_step),
                Evidence(name="retries", value=retries),
                Evidence(name="steady steps", value=steps, limit=self.least_steps),
            ),
            gain=gain,
            confidence=0.8,
            explains=claims.ALLOCATOR,
        )
