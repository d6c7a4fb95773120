"""Kernels are launched with too few blocks to give each multiprocessor one.

## What it means
A kernel with 30 blocks on a device of 108 multiprocessors leaves 78 of them idle. Larger tensors make more blocks.

## How it is measured
Trace windows, from the launch geometry (an estimate, not a counter): for kernels of 10 µs and more, their time times
the share of multiprocessors without a block. Communication does not count, nor do kernels that would gain more from
tensor cores. What a fuller device gains is not measured: information, and the gain's lower bound is 0.

## When it is wrong
- Kernels that run at the same time on several streams fill the device together.

## What to do
A larger `batch_size` takes about the same time per step. Check the memory and the learning rate.
"""

import math

from msgspec.structs import replace

from lightning_gpuprof.model.device_kernels import DeviceRun, short_name
from lightning_gpuprof.rules.base import Finding, Metrics, MissingSignal, claims, listed, percent, setting, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.kernels.kernel_rule import UNTRACED, KernelRule


def _run(ms: float, blocks: int, kernel: str = "tensor core gemm") -> dict[str, object]:
    """A run of an example: a kernel of so many blocks, and pointwise ones."""
    return {"kernels": {kernel: (ms, blocks), "pointwise": 49 - ms}}


class LowOccupancy(KernelRule):
    id = "low-occupancy"
    title = "Kernels are too small to fill the GPU"
    explains = claims.IDLE_MULTIPROCESSORS
    certainty = 0.4
    what = "idle multiprocessors, share of the step"

    least_ratio: float = threshold(0.10, source="the method: a tenth of the step")

    examples = (
        fires("27 blocks run on 108 multiprocessors", "info", "(..., batch_size=128)", saves_ms=22.5, **_run(30, 27)),
        fires("such kernels run for 6.8 of 50 ms", "info", "25 %", **_run(6.8, 27)),
        quiet("such kernels run for 6.6 of 50 ms", **_run(6.6, 27)),
        quiet("each multiprocessor has a block", **_run(30, 108)),
        looks_alike("communication needs few blocks", **_run(30, 24, "all-reduce")),
        looks_alike("the host is the bottleneck", kernels={"tensor core gemm": (30, 27)}),
        not_evaluated("the GPU is not known", "blocks", kernels={"tensor core gemm": 48}, device="unknown"),
        UNTRACED,
    )

    def require(self, metrics: Metrics, run: DeviceRun) -> None:
        if all(not w.kernels.fill.est_sm_efficiency_known_ratio for w in run.windows):
            raise MissingSignal("the trace does not say with how many blocks kernels were launched")

    def judge(self, metrics: Metrics, run: DeviceRun) -> Finding | None:
        idle = run.per_step(lambda window: sum(row.saving_us for row in window.unfilled))
        if not self.is_long(idle) or not idle.is_worth():
            return None
        window, rows = run.windows[0], run.windows[0].unfilled
        spent_us, idle_us = sum(row.total_us for row in rows), sum(row.saving_us for row in rows)
        filled, named = 1.0 - idle_us / spent_us, [short_name(row.name) for row in rows[:3]]
        batch = metrics.positive("loader.batch_size")
        change = setting("DataLoader", batch_size=(batch, math.ceil(batch / filled))) if batch and filled > 0 else None
        larger = " per rank" if change is None else f": {change.added[0]}"
        return self.of_kernels(
            run,
            subject=named[0],
            summary="Kernels with fewer blocks than the GPU has SMs take "
            f"{replace(idle, ms=window.per_step_ms(spent_us))}. They use {percent(filled)} of the "
            f"SMs (estimated from the launches): {listed(named)}.",
            advice=f"Try a larger batch{larger}. The step takes little longer until the GPU is full, so samples/s "
            "rise. Check the memory and the learning rate.",
            time=idle,
            evidence=(self.fact("multiprocessors with a block in these kernels", filled, "ratio"),),
            cost=idle.uncertain,
            change=change,
        )
