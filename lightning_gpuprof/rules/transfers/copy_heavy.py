"""The GPU spends a large part of the step copying tensors within its memory.

## What it means
`contiguous()` after `permute` or `transpose`, `repeat`, `clone`, slices that are written back and type conversions read
and write whole tensors without computing anything.

## How it is measured
Trace window: the device time of `aten::copy_` without copies from and to the host. If shapes were recorded, only copies
between tensors of one type count, since mixed precision has to convert; without shapes a run in mixed precision is not
judged. The gain is that time without the idle time in which launches come late, which would take its place.

## When it is wrong
- Some copies are needed: a kernel that demands contiguous inputs can be slower without one.
- Only the largest rows by shapes are known (a lower bound); none is named where copies from the host are a tenth.
- Silent where the GPU waits 15 % of the step for slow workers: they set the pace.

## What to do
Keep one layout: drop `contiguous()` where the next operator takes strides, use `expand` instead of `repeat`, write into
slices of one tensor, `torch.compile` to fuse the copy into its neighbour.
"""

from lightning_gpuprof.model.device_step import ExplainedStep
from lightning_gpuprof.model.trace.operators import OperatorShapes
from lightning_gpuprof.rules.base import Finding, Metrics, claims, listed, measured, percent, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.launches.step_rule import StepRule, less_work_saves_ms
from lightning_gpuprof.rules.transfers.wait_rule import UNTRACED

_BF16, _FLOAT = "c10::BFloat16", "float"


def _copied(
    us: float, types: tuple[str, str] | None = (_BF16, _BF16), precision: str = "bf16-mixed"
) -> dict[str, object]:
    """A run of an example: 10 ms of kernels, and 10 that copy."""
    step = {"kernels": 100, "layout": {"us": us, "types": types}}
    return {"step": step, "period_ms": 10.1 + us / 100, "run": {"trainer.precision": precision}}


class CopyHeavy(StepRule):
    id = "copy-heavy"
    title = "Copies within the GPU slow down the step"
    explains = claims.MEMORY_KERNELS
    certainty = 0.5

    least_ratio: float = threshold(0.10, source="heuristic: 40 % is too late, warn from 10 %")
    most_outside_ratio: float = threshold(0.10, source="heuristic: more of the rows' time, and no shape is named")

    examples = (
        fires("10 copies take 3 ms", "critical", "32x197x768 (bfloat16)", saves_ms=3, **_copied(300)),
        fires("copies take 1.25 ms", "warning", "Keep one memory layout", **_copied(125)),
        fires("precision is not mixed", "critical", "Copies within the GPU", **_copied(300, None, "32-true")),
        quiet("copies take 1 ms", **_copied(100)),
        looks_alike("mixed precision converts types", **_copied(300, (_BF16, _FLOAT))),
        not_evaluated("there are no shapes", "recorded without shapes", **_copied(300, None)),
        *UNTRACED,
    )

    def judge(self, metrics: Metrics, step: ExplainedStep) -> Finding | None:
        copies = measured(step.copies)
        outside_ms = copies.of("HtoD").total_ms + copies.of("DtoH").total_ms
        within = measured(copies.within)
        all_ms, rows = within.ms, within.rows
        if outside_ms > self.most_outside_ratio * all_ms:
            rows = ()  # the largest may be the batch on its way to the device
        found_ms = max(0.0, all_ms - outside_ms)
        saved_ms = less_work_saves_ms(metrics, step, found_ms)
        cost, saved = metrics.cost(found_ms, found_ms), metrics.cost(saved_ms, saved_ms)
        if not saved.is_worth(self.least_ratio):
            return None
        of_all = [(_tensor(row), (row.device_self_us or 0.0) / 1e3 / step.steps / all_ms) for row in rows[:2]]
        shapes = [f"{tensor} ({percent(ratio)})" for tensor, ratio in of_all if ratio]
        look = f" Find the code that copies {_tensor(rows[0])}." if rows else ""
        return self.of_step(
            step,
            saved,
            subject=f"aten::copy_ {_tensor(rows[0])}" if rows else "aten::copy_",
            summary=f"Copies within the GPU take {cost}{f', mostly of {listed(shapes)}' if shapes else ''}.",
            advice="Keep one memory layout: drop contiguous() or reshape after permute, use expand instead of repeat, "
            f"or let torch.compile fuse the copy.{look}",
            evidence=(
                self.evidence("least_ratio", cost.ratio, "copies within the GPU, share of the step"),
                self.fact("copies with the host per step", outside_ms, "ms"),
            ),
        )


def _tensor(row: OperatorShapes) -> str:
    return f"{row.input_shape.split(', ')[0]} ({row.dtype})"
