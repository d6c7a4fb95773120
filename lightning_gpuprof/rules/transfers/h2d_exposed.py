"""Finds batches whose copy to the device holds it up, although they come from pinned memory."""

from __future__ import annotations

from dataclasses import dataclass

from lightning_gpuprof.model.finding import Evidence, Finding
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import BaseRule, condition, gain, severity, threshold, worthwhile
from lightning_gpuprof.rules.launches.device_idle import (
    confidence,
    explained_step,
    less_work_saves_ms,
    remark,
    step_evidence,
)
from lightning_gpuprof.rules.transfers.device_copies import copies, megabytes
from lightning_gpuprof.rules.wording import millis


@dataclass(frozen=True, kw_only=True)
class H2dExposed(BaseRule):
    """The device copies the batch and computes nothing meanwhile, although the batch is in pinned memory.

    ## What it means

    Lightning copies the batch on the stream that computes: kernels of the step wait until the copy is done, and the
    copy waits for the kernels of the step before. Sized loaders get no prefetch to the device.

    ## How it is measured

    In a trace window: copies to the device that are not from pageable memory, and of them what certainly no kernel
    covers. That time has to pass 10 % of the period. The gain is that time without the idle time in which launches come
    late, which would take its place.

    ## When it is wrong

    - A copy that waits for kernels on another stream counts only while it runs.
    - It is silent where the device waits 15 % of the step for workers that are behind: they set the pace. If other host
      work does, a hidden copy gains less than the bound.

    ## What to do

    Copy fewer bytes: send `uint8` and normalise on the device, or a smaller float. Or copy the next batch on a stream
    of its own while this one is computed.

    ## Example

    "Send fewer bytes: 154 MB per step at 24.1 GB/s take 6.40 ms. As uint8 a float32 image has a quarter of them:
    normalise in on_after_batch_transfer"
    """

    id = "h2d-exposed"

    least_ratio: float = threshold(0.10, source="TraceML: 0.10")

    def check(self, metrics: Metrics) -> Finding | None:
        """Judge copies of pinned memory to the device."""
        step = explained_step(metrics)
        found = copies(step, "HtoD", pageable=False)
        saved_ms = less_work_saves_ms(metrics, step, found.exposed_ms)
        if saved_ms < self.least_ratio * step.period_ms or not worthwhile(saved_ms, step.period_ms):
            return None
        return self.finding(
            severity=severity(saved_ms / step.period_ms, metrics.steps.steady_count),
            subject="batch",
            summary=(
                f"The device copies {found.rate_words} per step and computes nothing for {millis(found.exposed_ms)} of "
                f"{millis(step.period_ms)} meanwhile.{remark(step)}"
            ),
            advice=_advice(metrics, found.rate_words, found.total_ms),
            evidence=(
                self.evidence("least_ratio", found.exposed_ms / step.period_ms, "exposed copies, share of the step"),
                Evidence(name="bytes per step", value=megabytes(found.total_bytes)),
                Evidence(name="copies per step", value=found.count),
                *step_evidence(step),
            ),
            gain=gain(saved_ms, saved_ms, step.period_ms),
            confidence=0.8 * confidence(step),
            explains=claims.BATCH_COPIES,
        )


def _advice(metrics: Metrics, rate_words: str, total_ms: float) -> str:
    text = f"Send fewer bytes: {rate_words} per step take {millis(total_ms)}."
    if "float32" in str(condition(metrics, "batch.dtypes") or ""):
        text += " As uint8 a float32 image has a quarter of them: normalise in on_after_batch_transfer."
    return f"{text} Or copy the next batch on a stream of its own (torch.cuda.Stream) while this one is computed."
