"""Finds that results are copied from the device to the host in every step."""

from __future__ import annotations

from dataclasses import dataclass

from lightning_gpuprof.model.device_step import ExplainedStep
from lightning_gpuprof.model.finding import Finding
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import BaseRule, gain, severity, threshold, worthwhile
from lightning_gpuprof.rules.launches.device_idle import confidence, explained_step, remark, step_evidence
from lightning_gpuprof.rules.transfers.device_copies import LEAST_BYTES, copies, megabytes
from lightning_gpuprof.rules.wording import millis


@dataclass(frozen=True, kw_only=True)
class D2hTraffic(BaseRule):
    """Large tensors are copied back to the host in every step.

    ## What it means

    Outputs that are collected with `.cpu()`, images that are logged, activations or optimizer states that are offloaded
    cross the link in every step, and the kernels behind them wait.

    ## How it is measured

    In a trace window: copies from the device to the host, at least 1 MiB per step, and of them what certainly no kernel
    covers. That time has to pass 5 % of the period; it is the gain. The idle time after the host's waits for them is
    not in it: `sync-points` has that.

    ## When it is wrong

    - Offloading by choice (DeepSpeed, FSDP with `cpu_offload`) is such traffic, and what it saves is memory.

    ## What to do

    Reduce on the device and copy the result; keep outputs there until the epoch ends; copy to pinned memory with
    `non_blocking=True` on a stream of its own.

    ## Example

    "Reduce on the device before copying at train.py(61): validation: 128 MB per step at 6.0 GB/s take 21.3 ms"
    """

    id = "d2h-traffic"

    least_bytes: float = threshold(float(LEAST_BYTES), source="the catalogue, as for h2d-pageable: 1 MiB per step")
    least_ratio: float = threshold(0.05, source="TraceLens: copies above 5 %")

    def check(self, metrics: Metrics) -> Finding | None:
        """Judge copies to the host."""
        step = explained_step(metrics)
        found = copies(step, "DtoH")
        if found.total_bytes < self.least_bytes or found.exposed_ms < self.least_ratio * step.period_ms:
            return None
        if not worthwhile(found.exposed_ms, step.period_ms):
            return None
        place = _place(step)
        at = f" at {place}" if place else ""
        return self.finding(
            severity=severity(found.exposed_ms / step.period_ms, metrics.steps.steady_count),
            subject=place or "outputs",
            summary=(
                f"{found.rate_words} per step are copied to the host{at}, and the device computes nothing for "
                f"{millis(found.exposed_ms)} of {millis(step.period_ms)} meanwhile.{remark(step)}"
            ),
            advice=(
                f"Reduce on the device before copying{at}: {found.rate_words} per step take {millis(found.total_ms)}. "
                "Do not append outputs; copy what is needed with non_blocking=True into pinned memory."
            ),
            evidence=(
                self.evidence(
                    "least_ratio", found.exposed_ms / step.period_ms, "exposed copies to the host, share of the step"
                ),
                self.evidence(
                    "least_bytes",
                    megabytes(found.total_bytes),
                    "bytes per step to the host",
                    limit=self.least_bytes / 1e6,
                ),
                *step_evidence(step),
            ),
            gain=gain(found.exposed_ms, found.exposed_ms, step.period_ms),
            confidence=0.8 * confidence(step),
            explains=claims.COPIES_TO_HOST,
        )


def _place(step: ExplainedStep) -> str:
    """Where the host waits longest for such a copy: the line, else the phase; empty if it waits for none."""
    points = step.analysis.sync_points
    sites = [site for site in points.sites if "DtoH" in (site.copy or "")] if points is not None else []
    if not sites:
        return ""
    longest = max(sites, key=lambda site: site.blocked_us)
    return longest.line.frame if longest.line is not None else longest.phase or ""
