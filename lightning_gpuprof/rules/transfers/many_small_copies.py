"""A step copies many small tensors to the GPU, each with a call of its own.

## What it means
A copy of a few kilobytes takes the host about 10 µs and the GPU a few, whatever its size; from pageable memory the host
also waits for each. A batch of lists, or of one tensor per field, makes dozens of them.

## How it is measured
Trace window: copies to the GPU of kinds whose median size is small. Their cost, which is also the gain, is the host
time of their calls as far as the GPU waits for late launches, plus the idle time after the host's waits for them (see
`sync-points`). Where their mean is not small, the waits may be for large copies and do not count.

## When it is wrong
- Small and large copies of one kind are distinguished by the median of the kind.
- `call_us` is what a call takes on ordinary machines, not a measurement of this one.

## What to do
Collate into few tensors, create constants once (`register_buffer`), and what the host does not know on the GPU.
"""

from lightning_gpuprof.model.device_step import ExplainedStep
from lightning_gpuprof.rules.base import Finding, Metrics, claims, decimal_size, measured, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, quiet
from lightning_gpuprof.rules.launches.step_rule import StepRule
from lightning_gpuprof.rules.transfers.wait_rule import UNTRACED


def _copied(count: int = 100, kind: str = "Pageable", kernel_us: float = 10.0, **copy: float) -> dict[str, object]:
    """Steps of an example: a hundred kernels after copies."""
    copies = {"kind": f"HtoD ({kind} -> Device)", "us": 2.0, "nbytes": 2000, "count": count, **copy}
    return {"kernels": 100, "kernel_us": kernel_us, "copy": copies, "op_us": 8.0, "python_us": 0.0, "fetch_us": 0.0}


class ManySmallCopies(StepRule):
    id = "many-small-copies"
    title = "The batch is copied in many small pieces"
    explains = claims.BATCH_COPIES
    certainty = 0.6

    least_copies: float = threshold(10.0, source="TraceLens: more than 10 per step")
    most_bytes: float = threshold(65536.0, source="heuristic: a median below 64 KiB")
    call_us: float = threshold(10.0, source="heuristic: host time of one copy")
    least_ratio: float = threshold(0.03, source="the least worthwhile gain")

    examples = (
        fires("100 copies of 2 kB are made", "critical", "100 small copies ... 2 kB on average", step=_copied()),
        fires("30 copies are made", "critical", "Collate the batch into few tensors", step=_copied(30, kernel_us=7.0)),
        quiet("10 copies are made", step=_copied(10, kernel_us=7.0)),
        quiet("nothing is copied", step={}),
        looks_alike("the host is far ahead", step=_copied(kind="Pinned", kernel_us=100.0), period_ms=10.4),
        looks_alike("copies are large", step=_copied(kind="Pinned", nbytes=400_000, us=20.0)),
        *UNTRACED,
    )

    def judge(self, metrics: Metrics, step: ExplainedStep) -> Finding | None:
        found = measured(step.copies).of("HtoD", smaller_than=self.most_bytes)
        if found.count <= self.least_copies:
            return None
        calls_ms = (found.count - self.least_copies) * self.call_us / 1e3
        calls_ms = min(calls_ms, step.cause_ms("launch", "launch_latency"))
        alike = found.total_bytes < self.most_bytes * found.count
        waits = step.waits_of("batch upload").waits if alike else ()
        cost_ms = calls_ms + sum(wait.cost_ms for wait in waits if wait.site.copy in found.names)
        cost = metrics.cost(cost_ms, step.lower_ms(cost_ms))
        if not cost.is_worth(self.least_ratio):
            return None
        average = f"They are {decimal_size(found.total_bytes / found.count)} on average."
        return self.of_step(
            step,
            cost,
            subject="batch",
            summary=f"{found.count:.0f} small copies to the GPU take {cost}. "
            f"{average if alike else 'A few copies among them are large.'}",
            advice="Collate the batch into few tensors. Create constants once: self.register_buffer(name, tensor).",
            evidence=(
                self.evidence("least_copies", found.count, "small copies per step"),
                self.evidence("least_ratio", cost.ratio, "their cost, share of the step"),
            ),
        )
