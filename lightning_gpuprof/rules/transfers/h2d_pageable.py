"""Batches are copied to the GPU from pageable memory, which is slower and makes the host wait for each copy.

## What it means
The driver copies pageable memory through a small pinned buffer of its own. The call returns when the copy is done,
after everything that is queued on the GPU. Lightning always copies with `non_blocking=True`, which has no effect on
pageable memory.

## How it is measured
The rule looks for copies named `HtoD (Pageable -> Device)` in a trace window. Their cost is the time in which they run
and no kernel does, plus the time that the GPU idles after the host waited for them (see `sync-points`).

Two parts of that are certain: the idle time, and what the exposed bytes take longer than they would from pinned memory.
The rate of pinned memory is that of pinned copies in the same window, else three quarters of the PCIe link's, else 12
GB/s. The upper bound of the gain assumes the full rate of the link, or, if that is not known, pinned copies that take
no time.

## When it is wrong
- The rate of pinned memory is an assumption unless the window has such copies.
- Copies inside the model's phases do not come from the loader: see `host-tensor-creation`.
- Traces of ROCm do not distinguish pageable from pinned memory: not evaluated.

## What to do
Set `DataLoader(..., pin_memory=True)`. If a batch is a class of your own, give it a method `pin_memory()` that returns
it pinned, and a `to(device, non_blocking=...)` that passes the argument on.
"""

from msgspec.structs import replace

from lightning_gpuprof.model.device_copies import LEAST_BYTES
from lightning_gpuprof.model.device_step import ExplainedStep
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import Evidence, Finding, Metrics, measured, millis, setting, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.launches.step_rule import StepRule
from lightning_gpuprof.rules.transfers.wait_rule import UNTRACED


def _copied(
    us: float, nbytes: int, *, kind: str = "Pageable", after_us: float = 0.0, count: int = 1
) -> dict[str, object]:
    """A run of an example: 10 ms of kernels after the copy of a batch."""
    copy = {"kind": f"HtoD ({kind} -> Device)", "us": us, "nbytes": nbytes, "count": count, "after_us": after_us}
    return {"step": {"kernels": 100, "copy": copy}, "pin_memory": False}


_MB = 1_000_000
_SLOW = _copied(10_000, 40 * _MB)


class H2dPageable(StepRule):
    id = "h2d-pageable"
    title = "Batches are copied from pageable memory"
    explains = claims.BATCH_COPIES
    certainty = 0.8

    least_bytes: float = threshold(float(LEAST_BYTES), source="heuristic: 1 MiB per step; less is no batch")
    least_ratio: float = threshold(0.05, source="TraceLens: copies above 5 %")

    examples = (
        fires("40 MB take 10 ms", "critical", "40 MB at 4 GB/s", saves_ms=10, **_SLOW),
        fires("the loader does not pin", "critical", "DataLoader(..., pin_memory=True)", **_SLOW),
        fires("the loader pins", "critical", "although pin_memory=True", **{**_SLOW, "pin_memory": True}),
        fires(
            "the host is late after the copy",
            "warning",
            "idles",
            saves_ms=2.83,
            **_copied(1000, 12 * _MB, after_us=2000),
        ),
        fires("2 MB take 0.64 ms", "info", "2 MB", **_copied(640, 2 * _MB)),
        quiet("2 MB take 0.48 ms", **_copied(480, 2 * _MB)),
        quiet("nothing is copied", step={}),
        quiet("the batch is pinned", **_copied(10_000, 40 * _MB, kind="Pinned")),
        looks_alike("single values are copied", **_copied(100, 4096, count=20)),
        looks_alike("the copy is as fast as a pinned one", **_copied(2000, 26 * _MB)),
        not_evaluated("the kind of memory is not known", "pageable from pinned", **_copied(10_000, _MB, kind="Host")),
        *UNTRACED,
    )

    def judge(self, metrics: Metrics, step: ExplainedStep) -> Finding | None:
        copies = measured(step.copies)
        found = copies.of("HtoD", pageable=True)
        if found.total_bytes < self.least_bytes:
            return None
        waits, exposed_ms = step.waits_of("batch upload"), found.exposed_ms
        cost = metrics.cost(exposed_ms + waits.cost_ms, exposed_ms + waits.lower_ms)
        pinned, most = copies.pinned_bytes_per_s, copies.pinned_most_bytes_per_s
        faster_ms, most_ms = (
            min(exposed_ms, max(0.0, found.total_ms - found.total_bytes / rate * 1e3)) for rate in (pinned, most)
        )
        sure = metrics.cost(faster_ms + waits.cost_ms, faster_ms + waits.lower_ms)
        if cost.lower_ratio < self.least_ratio or not sure.is_worth():
            return None
        saved = replace(sure, ms=most_ms + waits.cost_ms)
        pins = metrics.loader.pin_memory if metrics.loader is not None else None
        change = None if pins else setting("DataLoader", pin_memory=(pins, True))
        advice = (
            "Pin the tensors that are copied: they are pageable although pin_memory=True. A custom batch class needs "
            "pin_memory() and to(device, non_blocking=...); tensors made later need tensor.pin_memory()."
        )
        if change is not None:
            advice = f"Pin the batches: {change.added[0]}. Lightning copies with non_blocking=True already."
        pinned_ms = exposed_ms - faster_ms
        idles = f" After them the GPU idles {millis(waits.cost_ms)}, because the host waited."
        moved_mb, least_mb = found.total_bytes / 1e6, self.least_bytes / 1e6
        return self.of_step(
            step,
            saved,
            subject=metrics.loader.kind if metrics.loader is not None else "batch",
            summary=f"The GPU waits {replace(cost, ms=exposed_ms)} for copies from pageable memory: {found}. "
            f"From pinned memory they would take {millis(pinned_ms)} or less."
            f"{idles if waits.cost_ms >= 0.01 * cost.step_ms else ''}",
            advice=advice,
            evidence=(
                self.evidence("least_ratio", cost.ratio, "copies and the idle time after them"),
                self.evidence("least_bytes", moved_mb, "copied from pageable memory per step", "MB", limit=least_mb),
                Evidence(name="rate of pinned memory", value=pinned / 1e9, unit="GB/s", source=copies.pinned_source),
            ),
            change=change,
        )
