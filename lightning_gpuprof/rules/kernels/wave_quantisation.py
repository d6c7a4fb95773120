"""Finds long products whose last wave of blocks leaves a large part of the device empty."""

from __future__ import annotations

import math
from dataclasses import dataclass

from lightning_gpuprof.model.finding import Evidence, Finding
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.trace.kernels import KernelRow
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import (
    BaseRule,
    MissingSignal,
    condition,
    gain,
    threshold,
    worthwhile,
)
from lightning_gpuprof.rules.kernels.device_kernels import DeviceWindow, Measured, device_run, short_name
from lightning_gpuprof.rules.wording import listed, millis, percent


@dataclass(frozen=True, kw_only=True)
class WaveQuantisation(BaseRule):
    """A product or convolution needs a little more than a whole number of waves, and the last one is mostly empty.

    ## What it means

    A device runs as many blocks at a time as fit: a wave. 1.1 waves take as long as 2, if all blocks take equally long.

    ## How it is measured

    In trace windows, from the geometry of launches (an estimate, not a counter): kernels that multiply matrices, with
    less than 8 waves, of which each takes at least 5 % of the untraced step, and whose last wave leaves more than a
    quarter of the room of all waves empty. The gain is that part of their time, of which at least half has to be
    worthwhile, because blocks that end early make room for the next kernel's. As nothing of it was measured, it is
    information, and its lower bound is 0.

    ## When it is wrong

    - Kernels that split work unevenly, or choose their number of blocks themselves (persistent kernels), do not behave
      so; those with exactly one wave are never named.
    - It is silent where the host sets the pace.

    ## What to do

    The number of blocks grows with the batch and the feature sizes: the printed batch size fills the waves of the named
    kernel, if its blocks are along the batch. Try it: the library may choose another kernel.

    ## Example

    "… runs 1.2 waves: the last leaves 40 % empty. batch_size is 32: try 26 or 53".
    """

    id = "wave-quantisation"

    least_ratio: float = threshold(0.05, source="the method: kernels of at least 5 % of the step")
    least_tail_ratio: float = threshold(0.25, source="NVIDIA, Matrix Multiplication Background: wave quantization")
    most_waves: float = threshold(8.0, source="the method")
    certain_ratio: float = threshold(0.5, source="heuristic")

    def check(self, metrics: Metrics) -> Finding | None:
        """Judge the longest products of all windows."""
        run = device_run(metrics)
        if run is None:
            return None
        if all(w.kernels.fill.waves_known_ratio in (None, 0.0) for w in run.windows):
            raise MissingSignal("the trace does not tell how many blocks the device holds at a time")
        if run.host_sets_the_pace:
            return None
        found = [[row for row in w.kernels.kernels if self._uneven(w, row, run.period_ms)] for w in run.windows]
        saved = Measured.over(
            [
                w.per_step_ms(sum(row.total_us * (row.tail_ratio or 0.0) for row in rows))
                for w, rows in zip(run.windows, found, strict=True)
            ]
        )
        if not all(found) or not worthwhile(self.certain_ratio * saved.lower_ms, run.period_ms):
            return None
        window, rows = run.windows[0], found[0]
        worst = max(rows, key=lambda row: row.total_us * (row.tail_ratio or 0.0))
        waves, tail = worst.waves or 0.0, worst.tail_ratio or 0.0
        others = [f"{short_name(row.name)} ({row.waves or 0.0:.2g} waves)" for row in rows if row is not worst][:3]
        spent_ms = window.per_step_ms(worst.total_us)
        return self.finding(
            severity="info",
            subject=short_name(worst.name),
            summary=(
                f"{short_name(worst.name)} takes {millis(spent_ms)} of a step of {millis(run.period_ms)} in "
                f"{waves:.2g} waves of blocks; the last leaves {percent(tail)} of their room empty (estimated from the "
                "launches)." + (f" Likewise: {listed(others)}." if others else "")
            ),
            advice=_advice(metrics, waves),
            evidence=(
                self.evidence("least_tail_ratio", tail, "room of the waves that stays empty"),
                Evidence(name="waves", value=waves, limit=self.most_waves),
                Evidence(name="empty room of all such kernels, per step", value=saved.ms, unit="ms"),
                Evidence(name="period", value=run.period_ms, unit="ms"),
            ),
            gain=gain(saved.ms, 0.0, run.period_ms),
            confidence=0.4,
            explains=claims.MATRIX_KERNELS,
        )

    def _uneven(self, window: DeviceWindow, row: KernelRow, period_ms: float) -> bool:
        return (
            row.tensor_cores is not None
            and row.waves is not None
            and 1.0 < row.waves < self.most_waves
            and (row.tail_ratio or 0.0) > self.least_tail_ratio
            and window.per_step_ms(row.total_us) >= self.least_ratio * period_ms
        )


def _advice(metrics: Metrics, waves: float) -> str:
    batch = condition(metrics, "loader.batch_size")
    if isinstance(batch, int):
        down, up = math.floor(batch * math.floor(waves) / waves), math.floor(batch * math.ceil(waves) / waves)
        if 0 < down < batch < up:
            return (
                f"batch_size is {batch}: try {down} or {up}, which make whole waves if the kernel's blocks are along "
                "the batch, and compare samples/s; a feature size shifts them likewise."
            )
    return "Try a batch or feature size that makes whole waves, and compare samples/s."
