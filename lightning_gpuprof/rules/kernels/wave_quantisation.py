"""A product or convolution needs a little more than a whole number of waves, and the last one is mostly empty.

## What it means
A GPU runs as many blocks at a time as fit: a wave. 1.1 waves take as long as 2 if all blocks take equally long.

## How it is measured
Trace windows, from the launch geometry (an estimate, not a counter): long matrix kernels with few waves, of whose slots
many are empty. The gain is that part of their time; half of it has to be worthwhile, because blocks that end early make
room for the next kernel. It is not measured, so this is information, and the gain's lower bound is 0.

## When it is wrong
- Kernels that split work unevenly or choose their number of blocks themselves (persistent kernels, exactly one wave)
  behave differently.

## What to do
Blocks grow with the batch and the feature sizes. The advised batch sizes fill the waves if the blocks are along the
batch. Try it: the library may choose another kernel.
"""

import math

from msgspec.structs import replace

from lightning_gpuprof.model.device_kernels import DeviceRun, DeviceWindow, short_name
from lightning_gpuprof.model.trace.kernels import KernelRow
from lightning_gpuprof.rules.base import Finding, Metrics, MissingSignal, claims, listed, percent, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.kernels.kernel_rule import UNTRACED, KernelRule

_WAVE = 864
"""Blocks of the examples' kernels that an A100 runs at a time."""


def _waves(number: float) -> dict[str, object]:
    """A run of an example whose products have so many waves."""
    return {"kernels": {"tensor core gemm": (30, round(number * _WAVE)), "pointwise": 19}}


class WaveQuantisation(KernelRule):
    id = "wave-quantisation"
    title = "The last wave leaves the GPU half empty"
    explains = claims.MATRIX_KERNELS
    certainty = 0.4

    least_ratio: float = threshold(0.05, source="the method: kernels of at least 5 % of the step")
    least_tail_ratio: float = threshold(0.25, source="NVIDIA, Matrix Multiplication Background: wave quantization")
    most_waves: float = threshold(8.0, source="the method")
    certain_ratio: float = threshold(0.5, source="heuristic")

    examples = (
        fires("a product has 1.2 waves", "info", "batch_size=26 or 53 instead of 32", saves_ms=12, **_waves(1.2)),
        fires("the kernel has 1.49 waves", "info", "1.5 waves", **_waves(1.49)),
        quiet("the kernel has 1.51 waves", **_waves(1.51)),
        quiet("the kernel has 2 waves", **_waves(2)),
        quiet("the kernel has 9.1 waves", **_waves(9.1)),
        looks_alike("the kernel has exactly one wave", **_waves(1)),
        looks_alike("the kernel has 0.9 waves", **_waves(0.9)),
        looks_alike("a pointwise kernel has 1.2 waves", kernels={"pointwise": (48, round(1.2 * _WAVE))}),
        looks_alike("the host is the bottleneck", kernels={"tensor core gemm": (30, round(1.2 * _WAVE))}),
        not_evaluated("the GPU is not known", "blocks", kernels={"tensor core gemm": 48}, device="unknown"),
        UNTRACED,
    )

    def require(self, metrics: Metrics, run: DeviceRun) -> None:
        if all(w.kernels.fill.waves_known_ratio in (None, 0.0) for w in run.windows):
            raise MissingSignal("the trace does not say how many blocks the device runs at a time")

    def judge(self, metrics: Metrics, run: DeviceRun) -> Finding | None:
        saved = run.per_step(lambda window: sum(map(_empty_us, self._uneven(window, run))))
        found = [self._uneven(window, run) for window in run.windows]
        if not all(found) or not saved.certain.part(self.certain_ratio).is_worth():
            return None
        window, rows = run.windows[0], found[0]
        worst = max(rows, key=_empty_us)
        waves, tail, name = worst.waves or 0.0, worst.tail_ratio or 0.0, short_name(worst.name)
        others = [f"{short_name(row.name)} ({row.waves or 0.0:.2g} waves)" for row in rows if row is not worst][:3]
        return self.of_kernels(
            run,
            subject=name,
            summary=f"{name} takes {replace(saved, ms=window.per_step_ms(worst.total_us))}. It runs "
            f"{waves:.2g} waves of blocks and leaves {percent(tail)} of their slots empty (estimated from "
            "the launches)." + (f" Likewise: {listed(others)}." if others else ""),
            advice=_advice(metrics.condition("loader.batch_size"), waves),
            evidence=(
                self.evidence("least_tail_ratio", tail, "empty slots of the waves"),
                self.evidence("most_waves", waves, "waves"),
                self.fact("time that empty slots stand for, per step", saved.ms, "ms"),
            ),
            cost=saved.uncertain,
        )

    def _uneven(self, window: DeviceWindow, run: DeviceRun) -> list[KernelRow]:
        return [
            row
            for row in window.kernels.kernels
            if row.tensor_cores is not None
            and row.waves is not None
            and 1.0 < row.waves < self.most_waves
            and (row.tail_ratio or 0.0) > self.least_tail_ratio
            and window.per_step_ms(row.total_us) >= self.least_ratio * run.period_ms
        ]


def _empty_us(row: KernelRow) -> float:
    return row.total_us * (row.tail_ratio or 0.0)


def _advice(batch: object, waves: float) -> str:
    if isinstance(batch, int):
        down, up = math.floor(batch * math.floor(waves) / waves), math.floor(batch * math.ceil(waves) / waves)
        if 0 < down < batch < up:
            return (
                f"Try batch_size={down} or {up} instead of {batch}, and compare samples/s. They fill whole waves if "
                "the blocks run along the batch. Another feature size has the same effect."
            )
    return "Try a batch or feature size that fills whole waves, and compare samples/s."
