"""Finds batches that are copied to the device from pageable memory, and what pinned memory would save."""

from __future__ import annotations

from dataclasses import dataclass

from lightning_gpuprof.model.finding import Evidence, Finding
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import BaseRule, gain, severity, threshold, worthwhile
from lightning_gpuprof.rules.launches.device_idle import confidence, explained_step, remark, step_evidence
from lightning_gpuprof.rules.transfers.device_copies import LEAST_BYTES, copies, megabytes, pinned_bytes_per_s
from lightning_gpuprof.rules.transfers.device_waits import waits
from lightning_gpuprof.rules.wording import millis


@dataclass(frozen=True, kw_only=True)
class H2dPageable(BaseRule):
    """Batches are copied to the device from pageable memory: slower, and the host waits for each copy.

    ## What it means

    The driver copies pageable memory through a small pinned buffer of its own, and the call returns when the copy is
    done. So the host also waits for all work that is queued before it. Lightning always copies with
    `non_blocking=True`, which has no effect on pageable memory: pinning is the only lever.

    ## How it is measured

    In a trace window: copies named `HtoD (Pageable -> Device)`, at least 1 MiB per step. What they cost is the time in
    which they run and no kernel does, and the idle time of the device that follows the host's wait for them (see
    `sync-points`); together at least 5 % of the period. The gain is that idle time, and of the exposed time what the
    same bytes take longer than from pinned memory: at the rate of pinned copies in the same window, else at three
    quarters of the device's PCI Express link, else at 12 GB/s.

    ## When it is wrong

    - The rate of pinned memory is an assumption unless the window holds such copies.
    - Copies within the model's phases are not the loader's: `host-tensor-creation` has their waits.
    - Traces of ROCm do not tell pageable from pinned memory; the rule is not evaluated there.

    ## What to do

    `DataLoader(..., pin_memory=True)`. A batch of a class of its own needs a method `pin_memory()` that returns it
    pinned, and `to(device, non_blocking=...)` that passes the argument on.

    ## Example

    "pin_memory is False: set DataLoader(..., pin_memory=True): 38.5 MB per step at 4.1 GB/s took 9.40 ms of 41.0 ms"
    """

    id = "h2d-pageable"

    least_bytes: float = threshold(float(LEAST_BYTES), source="the catalogue: 1 MiB per step; less is no batch")
    least_ratio: float = threshold(0.05, source="TraceLens: copies above 5 %")

    def check(self, metrics: Metrics) -> Finding | None:
        """Judge copies of pageable memory to the device."""
        step = explained_step(metrics)
        found = copies(step, "HtoD", pageable=True)
        if found.total_bytes < self.least_bytes:
            return None
        waited_ms = sum(wait.cost_ms for wait in waits(metrics, step, "batch upload"))
        cost_ms = found.exposed_ms + waited_ms
        cost_lower_ms = found.exposed_ms + step.lower_ms(waited_ms)
        pinned, source = pinned_bytes_per_s(metrics, step)
        faster_ms = min(found.exposed_ms, max(0.0, found.total_ms - found.total_bytes / pinned * 1e3))
        saved_ms, lower_ms = faster_ms + waited_ms, faster_ms + step.lower_ms(waited_ms)
        if cost_lower_ms < self.least_ratio * step.period_ms or not worthwhile(saved_ms, step.period_ms):
            return None
        return self.finding(
            severity=severity(lower_ms / step.period_ms, metrics.steps.steady_count),
            subject=metrics.loader.kind if metrics.loader is not None else "batch",
            summary=(
                f"Batches come from pageable memory, {found.rate_words} per step: the copies hold the device for "
                f"{millis(found.exposed_ms)} of {millis(step.period_ms)}, and it is idle for {millis(waited_ms)} after "
                f"the host has waited for them.{remark(step)}"
            ),
            advice=_advice(metrics),
            evidence=(
                self.evidence(
                    "least_ratio", cost_ms / step.period_ms, "copies and the idle time after them, share of the step"
                ),
                self.evidence(
                    "least_bytes", megabytes(found.total_bytes), "pageable bytes per step", limit=self.least_bytes / 1e6
                ),
                Evidence(name="rate of pinned memory", value=pinned / 1e9, unit="GB/s", source=source),
                *step_evidence(step),
            ),
            gain=gain(saved_ms, lower_ms, step.period_ms),
            confidence=0.8 * confidence(step),
            explains=claims.BATCH_COPIES,
        )


def _advice(metrics: Metrics) -> str:
    pinned = metrics.loader.pin_memory if metrics.loader is not None else None
    if pinned:
        return (
            "pin_memory is True, but what is copied is not pinned: a batch of a class of its own needs pin_memory() "
            "and to(device, non_blocking=...); tensors that are made after the loader need tensor.pin_memory()."
        )
    known = "pin_memory is False: set" if pinned is False else "Set"
    return f"{known} DataLoader(..., pin_memory=True); Lightning copies with non_blocking=True already."
