"""Finds that kernels have fewer blocks than the device has multiprocessors for much of the step."""

from __future__ import annotations

import math
from dataclasses import dataclass

from lightning_gpuprof.model.finding import Evidence, Finding
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.trace.kernels import SavingRow
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import (
    BaseRule,
    MissingSignal,
    condition,
    gain,
    threshold,
    worthwhile,
)
from lightning_gpuprof.rules.kernels.device_kernels import DeviceWindow, device_run, short_name
from lightning_gpuprof.rules.wording import listed, millis, percent


@dataclass(frozen=True, kw_only=True)
class LowOccupancy(BaseRule):
    """Kernels are launched with too few blocks to give each multiprocessor one.

    ## What it means

    A kernel with 30 blocks on a device of 108 multiprocessors leaves 78 of them idle, however long it runs. Larger
    tensors make more blocks.

    ## How it is measured

    In trace windows, from the geometry of launches (an estimate, not a counter): for kernels of 10 µs and more, their
    time times the share of multiprocessors that get no block. Communication does not count, nor do kernels whose saving
    by tensor cores would be larger. At least a tenth of the untraced step must be left idle so. The gain takes work
    that fills the device as possible. As nothing of it was measured, it is information, and its lower bound is 0.

    ## When it is wrong

    - Kernels that run at the same time on several streams fill the device together.
    - A batch that must stay as it is leaves nothing to do but joining small operators.
    - It is silent where the host sets the pace: then the device is idle for another reason.

    ## What to do

    A larger `batch_size` fills the device at the same time per step, so samples per second rise. Check the learning
    rate and the memory.

    ## Example

    "batch_size is 8: kernels of the longest rows give 31 % of the multiprocessors a block; try batch_size=24".
    """

    id = "low-occupancy"

    least_ratio: float = threshold(0.10, source="the method: a tenth of the step")

    def check(self, metrics: Metrics) -> Finding | None:
        """Judge the launches of all windows."""
        run = device_run(metrics)
        if run is None:
            return None
        if all(not w.kernels.fill.est_sm_efficiency_known_ratio for w in run.windows):
            raise MissingSignal("the trace does not tell with how many blocks kernels were launched")
        if run.host_sets_the_pace:
            return None
        idle = run.measure(lambda window: window.per_step_ms(sum(row.saving_us for row in _unfilled(window))))
        if idle.lower_ms < self.least_ratio * run.period_ms or not worthwhile(idle.ms, run.period_ms):
            return None
        rows = _unfilled(run.windows[0])
        spent_us, idle_us = sum(row.total_us for row in rows), sum(row.saving_us for row in rows)
        filled = 1.0 - idle_us / spent_us
        named = [short_name(row.name) for row in rows[:3]]
        batch = condition(metrics, "loader.batch_size")
        wanted = math.ceil(batch / filled) if isinstance(batch, int) and filled > 0 else None
        return self.finding(
            severity="info",
            subject=named[0],
            summary=(
                f"Kernels with fewer blocks than multiprocessors take "
                f"{millis(run.windows[0].per_step_ms(spent_us))} of a step of {millis(run.period_ms)} and give "
                f"{percent(filled)} of the multiprocessors a block (estimated from the launches): {listed(named)}."
            ),
            advice=(
                f"batch_size is {batch}: try {wanted}, if memory allows; a step then takes little longer, and "
                "samples/s rise. Check the learning rate for it."
                if wanted is not None
                else "Try a larger batch per rank, if memory allows; samples/s rise until the device is full."
            ),
            evidence=(
                self.evidence(
                    "least_ratio",
                    min(1.0, idle.ms / run.period_ms),
                    "time that idle multiprocessors stand for, share of the step",
                ),
                Evidence(name="multiprocessors with a block in these kernels", value=filled, unit="ratio"),
                Evidence(name="period", value=run.period_ms, unit="ms"),
            ),
            gain=gain(idle.ms, 0.0, run.period_ms),
            confidence=0.4,
            explains=claims.IDLE_MULTIPROCESSORS,
        )


def _unfilled(window: DeviceWindow) -> list[SavingRow]:
    return [row for row in window.kernels.savings if row.kind == "idle multiprocessors"]
