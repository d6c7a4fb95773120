"""Finds that pointwise kernels and reductions at the memory's bandwidth take most of the step of an eager model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lightning_gpuprof.model.finding import Evidence, Finding
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.trace.roofline import RooflineRow
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import (
    BaseRule,
    MissingSignal,
    condition,
    gain,
    threshold,
    worthwhile,
)
from lightning_gpuprof.rules.kernels.device_kernels import DeviceWindow, class_us, device_run
from lightning_gpuprof.rules.wording import listed, millis, percent

_CLASSES = ("elementwise", "norm/reduction")
_NAMED = 3


@dataclass(frozen=True, kw_only=True)
class MemoryBoundKernels(BaseRule):
    """Pointwise operators and reductions that only move data take a large part of the step, and nothing fuses them.

    ## What it means

    An addition, an activation, a normalisation reads its inputs from memory and writes its result back; the arithmetic
    is free beside that. In eager mode each operator does so by itself. A compiler joins them, so that what one writes
    the next need not read.

    ## How it is measured

    In trace windows: pointwise kernels, normalisations and reductions take at least 40 % of the untraced step, and
    those of them whose shapes are known reach on average at least 60 % of the memory's bandwidth (the measured one,
    else the data sheet's; the bytes are a lower bound). The gain at most: half of the pointwise time, which joining
    each with a neighbour would save; what a compiler joins is not known before, so its lower bound is 0 and the finding
    is information.

    ## When it is wrong

    - It is silent for compiled models, and where the host sets the pace.
    - A model that is mostly normalisation of huge tensors may be as fast as memory allows.

    ## What to do

    `torch.compile(self.model)`; `fused=True` of the optimizer; fused normalisation layers; half precision, which halves
    the bytes.

    ## Example

    "Pointwise kernels and reductions take 62 % of the step at 81 % of the memory's bandwidth … compile the model".
    """

    id = "memory-bound-kernels"

    least_ratio: float = threshold(0.40, source="the method")
    least_bandwidth_ratio: float = threshold(0.60, source="NVIDIA Visual Profiler, Nsight Compute: bound from 60 % on")
    fused_ratio: float = threshold(0.50, source="heuristic: joined with one neighbour, an operator moves half")

    def check(self, metrics: Metrics) -> Finding | None:
        """Judge the kernels of all windows."""
        run = device_run(metrics)
        if run is None:
            return None
        state = condition(metrics, "compile.state")
        if run.host_sets_the_pace or state not in (None, "none"):
            return None
        time = run.measure(lambda window: window.per_step_ms(class_us(window, *_CLASSES)))
        if time.lower_ms < self.least_ratio * run.period_ms:
            return None
        rows = [row for window in run.windows for row in _rows(window)]
        bandwidth = _bandwidth_ratio(rows, run.windows)
        if bandwidth is None:
            raise MissingSignal("the bytes of pointwise operators or the memory's bandwidth are not known")
        pointwise = run.measure(lambda window: window.per_step_ms(class_us(window, "elementwise")))
        saved_ms = self.fused_ratio * pointwise.ms
        if bandwidth < self.least_bandwidth_ratio or not worthwhile(saved_ms, run.period_ms):
            return None
        largest = list(dict.fromkeys(f"{row.operator} of {row.input_shape}" for row in rows))[:_NAMED]
        model = condition(metrics, "model.class")
        shown_ratio = min(1.0, time.ms / run.period_ms)
        return self.finding(
            severity="info",
            subject=largest[0],
            summary=(
                f"Pointwise kernels and reductions take {millis(time.ms)} of a step of {millis(run.period_ms)} "
                f"({percent(shown_ratio)}) at {percent(bandwidth)} of the memory's bandwidth: memory bounds them. "
                f"Longest: {listed(largest)}."
            ),
            advice=(
                f"Compile what holds them: torch.compile of the layers of {model or 'the model'} in configure_model "
                "joins pointwise operators, so that what one writes the next need not read."
            ),
            evidence=(
                self.evidence("least_ratio", shown_ratio, "pointwise kernels and reductions, share of the step"),
                self.evidence("least_bandwidth_ratio", bandwidth, "share of the memory's bandwidth"),
                Evidence(name="pointwise kernels per step", value=pointwise.ms, unit="ms"),
                Evidence(name="period", value=run.period_ms, unit="ms"),
            ),
            gain=gain(saved_ms, 0.0, run.period_ms),
            confidence=0.4,
            explains=claims.MEMORY_KERNELS,
        )


def _rows(window: DeviceWindow) -> list[RooflineRow]:
    roofline = window.analysis.roofline
    rows = roofline.rows if roofline is not None else ()
    return [row for row in rows if row.kind in _CLASSES and row.bytes_per_call and row.faster_than is None]


def _bandwidth_ratio(rows: Sequence[RooflineRow], windows: Sequence[DeviceWindow]) -> float | None:
    """Bytes over time of all rows, as a share of the memory's bandwidth."""
    peaks = [w.analysis.roofline.bytes_per_s for w in windows if w.analysis.roofline is not None]
    peak = next((one for one in peaks if one), None)
    seconds = sum(row.device_us for row in rows) / 1e6
    if peak is None or seconds <= 0:
        return None
    return sum((row.bytes_per_call or 0.0) * row.calls for row in rows) / seconds / peak
