"""Finds that kernels have fewer blocks than the device has multiprocessors for much of the step."""

from __future__ import annotations

import math
from dataclasses import dataclass

from lightning_gpuprof.model.change import Change
from lightning_gpuprof.model.device_kernels import DeviceRun, DeviceWindow, Measured, short_name
from lightning_gpuprof.model.finding import Evidence, Finding
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.numbers import listed, percent
from lightning_gpuprof.model.trace.kernels import SavingRow
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import MissingSignal, condition, threshold, worthwhile
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.kernels.kernel_rule import KernelRule, of_every_step, share_of_step


@dataclass(frozen=True, kw_only=True)
class LowOccupancy(KernelRule):
    """Kernels are launched with too few blocks to give each multiprocessor one.

    ## What it means

    A kernel with 30 blocks on a device of 108 multiprocessors leaves 78 of them idle, however long it runs. Larger
    tensors make more blocks.

    ## How it is measured

    Trace windows, from the launch geometry (an estimate, not a counter): for kernels of 10 µs and more, their time
    times the share of multiprocessors without a block. Communication does not count, nor do kernels that would gain
    more from tensor cores. The gain assumes that the device can be filled. It is not measured, so this is information,
    and the gain's lower bound is 0.

    ## When it is wrong

    - Kernels that run at the same time on several streams fill the device together.
    - Silent where the host sets the pace: then the device idles for another reason.

    ## What to do

    A larger `batch_size` takes about the same time per step, so samples per second rise. Check the memory and the
    learning rate.
    """

    id = "low-occupancy"
    title = "Kernels are too small to fill the GPU"
    explains = claims.IDLE_MULTIPROCESSORS
    certainty = 0.4

    least_ratio: float = threshold(0.10, source="the method: a tenth of the step")

    examples = (
        fires(
            "27 blocks run on 108 multiprocessors",
            "info",
            "DataLoader(..., batch_size=128)",
            saves_ms=22.5,
            kernels={"tensor core gemm": (30, 27), "pointwise": 19},
        ),
        fires("they run for 6.8 of 50 ms", "info", "25 %", kernels={"tensor core gemm": (6.8, 27), "pointwise": 42}),
        quiet("they run for 6.6 of 50 ms", kernels={"tensor core gemm": (6.6, 27), "pointwise": 42}),
        quiet("each multiprocessor has a block", kernels={"tensor core gemm": (30, 108), "pointwise": 19}),
        looks_alike("communication needs few blocks", kernels={"all-reduce": (30, 24), "pointwise": 19}),
        looks_alike("the host sets the pace", kernels={"tensor core gemm": (30, 27)}),
        not_evaluated("the GPU is not known", "blocks", kernels={"tensor core gemm": 48}, device="unknown"),
        not_evaluated("there is no trace window", "no trace window", run={"device.type": "cuda"}),
    )

    def require(self, metrics: Metrics, run: DeviceRun) -> None:
        """Blocks and multiprocessors have to be known."""
        if all(not w.kernels.fill.est_sm_efficiency_known_ratio for w in run.windows):
            raise MissingSignal("the trace does not say with how many blocks kernels were launched")

    def judge(self, metrics: Metrics, run: DeviceRun) -> Finding | None:
        """Judge the launches."""
        idle = run.measure(lambda window: window.per_step_ms(sum(row.saving_us for row in _unfilled(window))))
        if idle.lower_ms < self.least_ratio * run.period_ms or not worthwhile(idle.ms, run.period_ms):
            return None
        window = run.windows[0]
        rows = _unfilled(window)
        spent_us, idle_us = sum(row.total_us for row in rows), sum(row.saving_us for row in rows)
        spent_ms = window.per_step_ms(spent_us)
        filled = 1.0 - idle_us / spent_us
        named = [short_name(row.name) for row in rows[:3]]
        batch = condition(metrics, "loader.batch_size")
        change = None
        if isinstance(batch, int) and filled > 0:
            wanted = math.ceil(batch / filled)
            change = Change(call="DataLoader", arguments={"batch_size": wanted}, before={"batch_size": batch})
        larger = "Try a larger batch" + (f": {change.added[0]}" if change is not None else " per rank")
        return self.of_kernels(
            metrics,
            run,
            subject=named[0],
            summary=(
                f"Kernels with fewer blocks than multiprocessors take {of_every_step(spent_ms, run)}. "
                f"They use {percent(filled)} of the multiprocessors (estimated from the launches): {listed(named)}."
            ),
            advice=(
                f"{larger}. The step takes little longer until the GPU is full, so samples/s rise. Check the "
                "memory and the learning rate."
            ),
            evidence=(
                self.evidence("least_ratio", share_of_step(idle.ms, run), "idle multiprocessors, share of the step"),
                Evidence(name="multiprocessors with a block in these kernels", value=filled, unit="ratio"),
            ),
            saved=Measured(ms=idle.ms, lower_ms=0.0),
            change=change,
        )


def _unfilled(window: DeviceWindow) -> list[SavingRow]:
    return [row for row in window.kernels.savings if row.kind == "idle multiprocessors"]
