"""Finds that steady steps still ask the device for memory."""

from __future__ import annotations

from dataclasses import dataclass

from lightning_gpuprof.model.finding import Evidence, Finding
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import BaseRule, MissingSignal, steady_period_ms, threshold
from lightning_gpuprof.rules.memory import gpu_memory
from lightning_gpuprof.rules.memory.memory_leak import MemoryLeak
from lightning_gpuprof.rules.wording import counted


@dataclass(frozen=True, kw_only=True)
class CudamallocSteady(BaseRule):
    """Long after the start, steps still need new segments from the device.

    ## What it means

    In a run whose batches are alike the allocator's cache holds all that a step needs after a few steps. New segments
    later mean that sizes change from batch to batch. A call of cudaMalloc takes from some ten
    microseconds to milliseconds of the host's time.

    ## How it is measured

    The rise of the allocator's counter of cudaMalloc in steady steps (20 at least) is above one in ten steps, no
    allocation had to be tried again, segments are hardly given back, and memory does not grow (`memory-leak`). What it
    costs is known where a trace window has these calls in the device's idle time; the severity follows from that share,
    and is information otherwise.

    ## When it is wrong

    - Sequences of many lengths fill the cache slowly: it ends by itself, when the longest batches have been seen.
    - With expandable segments each step of growth counts, which is cheaper than a new segment.

    ## What to do

    Let segments grow, or make the sizes alike: pad to a few lengths, `drop_last=True`.

    ## Example

    "380 steady steps took 190 new segments from gpu0 (0.5 a step) and gave 0 back."
    """

    id = "cudamalloc-steady"
    specialises = ("gpu-gaps",)

    least_per_step: float = threshold(0.1, source="the rule catalogue: one in ten steps")
    least_steps: int = threshold(20, source="the rule catalogue: 20 steps")

    def check(self, metrics: Metrics) -> Finding | None:
        """Judge what steady steps take from the device."""
        memory = gpu_memory.allocator(metrics)
        steady_period_ms(metrics)
        steps = gpu_memory.require_steady_steps(memory, self.least_steps)
        allocs = gpu_memory.counted(memory.device_allocs_steady_count, "calls of cudaMalloc")
        retries = gpu_memory.counted(memory.retries_steady_count, "retries of the allocator")
        frees = gpu_memory.counted(memory.device_frees_steady_count, "calls of cudaFree")
        limit = self.least_per_step * steps
        if allocs <= limit or frees > limit or retries or _grows(metrics):  # the last three are other rules'
            return None
        gain = gpu_memory.allocator_gain(metrics)
        setting = gpu_memory.expandable_advice(metrics)
        first = f"Set {setting} before the start, and make" if setting else "Make"
        return self.finding(
            severity=gpu_memory.cost_severity(metrics, gain, "info"),
            subject=memory.name,
            summary=f"{counted(steps, 'steady step')} took {counted(allocs, 'new segment')} from {memory.name} "
            f"({allocs / steps:.2g} a step) and gave {frees:,} back.",
            advice=f"{first} the sizes of batches alike: pad to a few lengths, DataLoader(drop_last=True).",
            evidence=(
                self.evidence("least_per_step", allocs / steps, "cudaMalloc per step"),
                Evidence(name="steady steps", value=steps, limit=self.least_steps),
            ),
            gain=gain,
            confidence=0.8,
            explains=claims.ALLOCATOR,
        )


def _grows(metrics: Metrics) -> bool:
    try:
        return MemoryLeak().check(metrics) is not None
    except MissingSignal:
        return False
