"""Finds that a good part of the device's time goes to copies that only change the layout of tensors."""

from __future__ import annotations

from dataclasses import dataclass

from lightning_gpuprof.model.device_step import ExplainedStep
from lightning_gpuprof.model.finding import Evidence, Finding
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.trace.operators import OperatorShapes
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import BaseRule, MissingSignal, condition, gain, severity, threshold, worthwhile
from lightning_gpuprof.rules.launches.device_idle import (
    confidence,
    explained_step,
    less_work_saves_ms,
    remark,
    step_evidence,
)
from lightning_gpuprof.rules.transfers.device_copies import copies
from lightning_gpuprof.rules.wording import listed, millis, percent


@dataclass(frozen=True, kw_only=True)
class CopyHeavy(BaseRule):
    """The device spends a good part of the step on copying tensors within its memory.

    ## What it means

    `contiguous()` after `permute` or `transpose`, `repeat`, `clone`, slices that are written back and conversions of
    types read and write whole tensors without computing anything.

    ## How it is measured

    In a trace window: the device time of `aten::copy_` without copies from and to the host. If shapes were recorded,
    only copies between tensors of one type count, since mixed precision has to convert. Without shapes a run in mixed
    precision is not judged. The time has to pass 10 % of the period. The gain is an upper bound: that time without the
    idle time in which launches come late, which would take its place.

    ## When it is wrong

    - Some copies are needed: a kernel that demands contiguous inputs can cost more without one.
    - Only the largest rows of the table by shapes are read, so the time is a lower bound.
    - Shapes do not tell copies from the host: none is named where these take more than a tenth as long.
    - It is silent where the device waits 15 % of the step for workers that are behind: they set the pace.

    ## What to do

    Keep one layout: drop `contiguous()` where the next operator takes strides, `expand` instead of `repeat`, write into
    slices of one tensor, `torch.compile` to fuse the copy into its neighbour.

    ## Example

    "4.20 ms of 31.0 ms go to copies within the device: most of 32x197x768 (bfloat16)"
    """

    id = "copy-heavy"

    least_ratio: float = threshold(0.10, source="the catalogue: 40 % is too late, warn from 10 %")

    most_outside_ratio: float = threshold(0.10, source="heuristic: more of the rows' time, and no shape is named")

    def check(self, metrics: Metrics) -> Finding | None:
        """Judge copies within the device."""
        step = explained_step(metrics)
        outside_ms = copies(step, "HtoD").total_ms + copies(step, "DtoH").total_ms
        all_ms, rows = _layout_ms(metrics, step)
        if outside_ms > self.most_outside_ratio * all_ms:
            rows = ()  # the largest may be the batch on its way to the device
        found_ms = max(0.0, all_ms - outside_ms)
        saved_ms = less_work_saves_ms(metrics, step, found_ms)
        if saved_ms < self.least_ratio * step.period_ms or not worthwhile(saved_ms, step.period_ms):
            return None
        shapes = [
            f"{_tensor(row)} ({percent(row.device_self_us / 1e3 / step.steps / all_ms)})"
            for row in rows[:2]
            if row.device_self_us
        ]
        most = f": most of {listed(shapes)}" if shapes else ""
        return self.finding(
            severity=severity(saved_ms / step.period_ms, metrics.steps.steady_count),
            subject=f"aten::copy_ {_tensor(rows[0])}" if rows else "aten::copy_",
            summary=(
                f"{millis(found_ms)} of {millis(step.period_ms)} go to copies within the device{most}.{remark(step)}"
            ),
            advice=(
                f"Find what copies{' ' + _tensor(rows[0]) if rows else ''}: contiguous() or reshape after permute, "
                "repeat, clone, slices that are written back. Keep one layout, use expand instead of repeat, or let "
                "torch.compile fuse the copy into its neighbour."
            ),
            evidence=(
                self.evidence("least_ratio", found_ms / step.period_ms, "copies within the device, share of the step"),
                Evidence(name="copies with the host per step", value=outside_ms, unit="ms"),
                *step_evidence(step),
            ),
            gain=gain(saved_ms, saved_ms, step.period_ms),
            confidence=0.5 * confidence(step),
            explains=claims.MEMORY_KERNELS,
        )


def _layout_ms(metrics: Metrics, step: ExplainedStep) -> tuple[float, tuple[OperatorShapes, ...]]:
    operators = step.analysis.operators
    if operators is None or operators.device_us is None:
        raise MissingSignal("the operators of the trace window could not be analysed")
    if operators.shapes is not None:
        rows = tuple(row for row in operators.shapes if row.operator == "aten::copy_" and _one_type(row))
        return sum(row.device_self_us or 0.0 for row in rows) / 1e3 / step.steps, rows
    precision = str(condition(metrics, "trainer.precision") or "")
    if "mixed" in precision or not precision:
        raise MissingSignal("the window was recorded without shapes, so conversions of types cannot be told apart")
    total_us = sum(row.device_self_us or 0.0 for row in operators.types if row.type == "copy_")
    return total_us / 1e3 / step.steps, ()


def _one_type(row: OperatorShapes) -> bool:
    return bool(row.dtype) and "," not in row.dtype


def _tensor(row: OperatorShapes) -> str:
    return f"{row.input_shape.split(', ')[0]} ({row.dtype})"
