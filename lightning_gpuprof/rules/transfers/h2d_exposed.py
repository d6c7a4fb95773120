"""The GPU waits for the batch copy, although the batch is in pinned memory.

## What it means
Lightning copies the batch on the compute stream: kernels of the step wait for the copy, and the copy waits for the
kernels of the step before. Loaders with a length are not prefetched to the device.

## How it is measured
From a trace window: the time of copies to the GPU, except from pageable memory, during which certainly no kernel runs.
The gain is that time minus the idle time in which launches come late, which would take its place.

## When it is wrong
- A copy that waits for kernels on another stream counts only while it runs.
- Silent where the GPU waits 15 % of the step for slow workers: they set the pace. If other host work does, a hidden
  copy gains less than the bound.

## What to do
Copy fewer bytes: send `uint8` and normalise on the GPU, or use a smaller float. Or prefetch the next batch on a
separate stream during the step.
"""

from lightning_gpuprof.model.device_step import ExplainedStep
from lightning_gpuprof.rules.base import Finding, Metrics, claims, decimal_size, measured, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, quiet
from lightning_gpuprof.rules.launches.step_rule import StepRule, less_work_saves_ms
from lightning_gpuprof.rules.transfers.wait_rule import UNTRACED


def _copied(us: float = 4000.0, megabytes: int = 100, *, kind: str = "Pinned", **step: float) -> dict[str, object]:
    """Steps of an example: 10 ms of kernels after the copy of a batch."""
    copy = {"kind": f"HtoD ({kind} -> Device)", "us": us, "nbytes": megabytes * 1_000_000}
    return {"kernels": 100, "copy": copy, **step}


_FLOATS = {"batch.dtypes": "float32, int64"}


class H2dExposed(StepRule):
    id = "h2d-exposed"
    title = "The GPU waits for the batch copy"
    explains = claims.BATCH_COPIES
    certainty = 0.8

    least_ratio: float = threshold(0.10, source="TraceML: 0.10")

    examples = (
        fires("100 MB take 4 ms", "critical", "100 MB at 25 GB/s", saves_ms=4, step=_copied(), period_ms=14.1),
        fires("the batch is in float32", "critical", "uint8", step=_copied(), period_ms=14.1, run=_FLOATS),
        fires("copies take 1.3 ms", "warning", "The GPU waits 1.30 ms", step=_copied(1300, 20), period_ms=11.4),
        quiet("copies take 1 ms", step=_copied(1000, 20), period_ms=11.1),
        quiet("nothing is copied", step={}),
        looks_alike("the batch is in pageable memory", step=_copied(4000, 20, kind="Pageable")),
        looks_alike("launches come late", step=_copied(1000, 20, kernel_us=2, python_us=60)),
        *UNTRACED,
    )

    def judge(self, metrics: Metrics, step: ExplainedStep) -> Finding | None:
        found = measured(step.copies).of("HtoD", pageable=False)
        saved_ms = less_work_saves_ms(metrics, step, found.exposed_ms)
        exposed, saved = metrics.cost(found.exposed_ms, found.exposed_ms), metrics.cost(saved_ms, saved_ms)
        if not saved.is_worth(self.least_ratio):
            return None
        floats = "float32" in str(metrics.condition("batch.dtypes") or "")
        fewer = ": images as uint8, normalised in on_after_batch_transfer, take a quarter of float32" if floats else ""
        return self.of_step(
            step,
            saved,
            subject="batch",
            summary=f"The GPU waits {exposed} for the batch copy: {found}.",
            advice=f"Send fewer bytes{fewer}. Or prefetch the next batch during the step, on a separate "
            "torch.cuda.Stream.",
            evidence=(
                self.evidence("least_ratio", exposed.ratio, "exposed copies, share of the step"),
                self.fact("bytes per step", decimal_size(found.total_bytes)),
                self.fact("copies per step", found.count),
            ),
        )
