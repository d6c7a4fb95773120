"""The memory that tensors hold on the GPU grows from step to step, at every point of the step.

## What it means
Something keeps tensors of past steps: a list of losses with their graphs, outputs that are gathered for the end of the
epoch, a metric that stores every prediction. It slows nothing down until memory is full, and then the run ends.

## How it is measured
Allocated bytes at the ends of phases after warm-up, each end compared only with itself: the median slope between all
pairs (Theil, Sen) and the seasonal Kendall test. From the second epoch on only growth from one epoch to the same
position in the next counts. Within the first epoch it is a warning only if the GPU would be full before the epoch ends;
critical if the run ended out of memory.

## When it is wrong
- What is gathered on purpose until the end of an epoch grows in this way: information only before a second epoch.
- Batches that get larger during the run grow at the end of forward, not at all ends; the median slope is then 0.

## What to do
Keep numbers, not tensors: `loss.detach()`, `.item()` now and then, `self.log`; empty lists at the end of the epoch. A
window with `TraceConfig(memory_snapshot=True)` names the lines that hold most.
"""

from lightning_gpuprof.model.code_place import in_words
from lightning_gpuprof.model.memory import Growth
from lightning_gpuprof.model.numbers import counted, gib, percent, possible
from lightning_gpuprof.rules.base import BaseRule, Finding, Metrics, MissingSignal, Severity, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.memory.memory_rule import MemoryUse, allocator, kept_items

_EPOCHS = 2
"""Epochs up to which what is gathered within one looks like a leak unless their positions are compared."""

_GROWS = {"bytes_per_step": 4 * 2**20}
_FAST = {"bytes_per_step": 400 * 2**20}
_END = {"message": "CUDA out of memory.", "phase": "forward"}


class MemoryLeak(BaseRule):
    id = "memory-leak"
    title = "GPU memory grows with every step"

    largest_p: float = threshold(0.01, source="heuristic: Mann-Kendall at 1 %")
    least_ratio: float = threshold(0.01, source="heuristic: 1 % growth")
    least_bytes: int = threshold(32 * 2**20, source="heuristic: 32 MiB")
    warning_ratio: float = threshold(0.05, source="SageMaker Debugger: 5 % growth")
    warning_bytes: int = threshold(100 * 2**20, source="TraceML: 100 MB growth")
    least_steps: int = threshold(50, source="heuristic: 50 steps")
    least_samples: int = threshold(20, source="heuristic: as many as for the use of a GPU")

    examples = (
        fires("4 MiB stay in each step", "warning", "4 MiB per step", allocator={}, growth=_GROWS),
        fires("the run ended of it", "critical", "400 MiB per step", allocator={}, growth=_FAST, end=_END),
        quiet("memory keeps its level", allocator={}, growth={"bytes_per_step": 0.0, "p_value": 0.8}),
        looks_alike("growth may be chance", allocator={}, growth={**_GROWS, "p_value": 0.02}),
        not_evaluated("memory was read 19 times", "19 times", allocator={}, growth={**_GROWS, "samples": 19}),
    )

    def check(self, metrics: Metrics) -> Finding | None:
        name = allocator(metrics).name
        growth = next((row for row in metrics.memory.growth if row.what == f"{name} allocated"), None)
        if growth is None or growth.steps < self.least_steps or growth.samples < self.least_samples:
            read, steps = (0, 0) if growth is None else (growth.samples, growth.steps)
            raise MissingSignal(
                f"the allocator was read {read} times over {steps} steps after warm-up ({self.least_samples} "
                f"reads over {self.least_steps} steps are needed)"
            )
        if not (possible(growth.first_bytes) and possible(growth.last_bytes) and possible(growth.p_value)):
            raise MissingSignal("the growth is not a valid number")
        grown, ratio = growth.kept_bytes, growth.kept_bytes / max(1.0, growth.first_bytes)
        if growth.p_value >= self.largest_p or grown < self.least_bytes or ratio < self.least_ratio:
            return None
        left = _steps_until_full(metrics, growth.kept_bytes_per_step)
        full = "" if left is None else f" It will be full after another {left:,.0f} steps."
        return self.finding(
            severity=self._severity(metrics, growth, ratio),
            subject=name,
            summary=f"Allocated memory of {name} grew by {gib(growth.kept_bytes_per_step)} per step, {gib(grown)} over "
            f"{counted(growth.steps, 'step')} ({percent(ratio)}).{full}",
            advice=kept_items(metrics)
            or "Keep loss.detach() instead of loss in lists and dicts, and empty them at the end of the epoch. "
            f"{_holders(metrics)}",
            evidence=(
                self.evidence("least_bytes", grown, "growth", "bytes"),
                self.evidence("least_ratio", ratio, "growth over the start"),
                self.evidence("largest_p", growth.p_value, "chance of it without growth"),
                self.evidence("least_samples", growth.samples, "readings"),
            ),
            confidence=0.9,
        )

    def _severity(self, metrics: Metrics, growth: Growth, ratio: float) -> Severity:
        if growth.kept_bytes < self.warning_bytes or ratio < self.warning_ratio:
            return "info"
        if metrics.memory.out_of_memory is not None:
            return "critical"
        return "info" if _may_end_with_the_epoch(metrics, growth) else "warning"


def _may_end_with_the_epoch(metrics: Metrics, growth: Growth) -> bool:
    """Whether it may be gathered on purpose until the epoch's end, as nothing shows it before the second epoch."""
    if growth.epochs is None or growth.epochs > _EPOCHS or growth.bytes_per_step_across_epochs is not None:
        return False
    full = _steps_until_full(metrics, growth.bytes_per_step)
    batches = metrics.number("trainer.num_training_batches")
    # Where the GPU is full before the epoch ends, it makes no difference.
    return full is None or batches is None or growth.steps + full >= batches


def _steps_until_full(metrics: Metrics, bytes_per_step: float) -> float | None:
    use = metrics.holders.use
    return use.steps_until_full(bytes_per_step) if isinstance(use, MemoryUse) else None


def _holders(metrics: Metrics) -> str:
    """What a history of allocations names as the largest holder, else how to get one."""
    for history in reversed(metrics.memory.histories):
        if history.at_peak:
            largest = history.at_peak[0]
            return f"At the peak of a window {in_words(largest.place)} held most ({gib(largest.held_bytes)})."
    return "To see which lines allocate most of it: GpuProfiler(trace=TraceConfig(memory_snapshot=True))"
