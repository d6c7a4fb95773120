"""Tells that the host is so far ahead of the device that it has to wait in its launches: a healthy state."""

from __future__ import annotations

from dataclasses import dataclass

from lightning_gpuprof.model.finding import Evidence, Finding
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules.base import BaseRule, MissingSignal, threshold
from lightning_gpuprof.rules.launches.device_idle import busy_words, confidence, seen_step, step_evidence
from lightning_gpuprof.rules.wording import millis, percent


@dataclass(frozen=True, kw_only=True)
class QueueFull(BaseRule):
    """The queue of launches is full: the host is ahead, and the time that it spends in launches is no cost.

    ## What it means

    CUDA takes about a thousand launches and then holds the host in the next one until the device has begun an earlier
    one. A profile of the host then shows long launches, or long forward and backward phases, although nothing is slow
    there: the device sets the pace.

    ## How it is measured

    In a trace window: launches that took more than three times the median while a thousand works were waiting, and a
    device that is idle for at most a tenth of an untraced step. This is an information, without a gain. A window in
    which the device still works off what was launched before it counts here, unlike in other rules.

    ## When it is wrong

    - ROCm's queue grows instead of holding the host: nothing is said there.

    ## What to do

    Nothing on the host. Look at the kernels: precision, tensor cores, fused operators.

    ## Example

    "The host is over 1,000 launches ahead and waits 37.6 ms per traced step in launches: the device sets the pace"
    """

    id = "queue-full"

    least_queue: float = threshold(1000.0, source="HTA: a queue of 1,024")
    most_idle_ratio: float = threshold(0.10, source="heuristic: of the untraced step")

    def check(self, metrics: Metrics) -> Finding | None:
        """Look whether launches waited for a place in the queue."""
        step = seen_step(metrics)
        analysis = None if step.window is None else step.window.analysis
        if analysis is None or analysis.attribution is None or analysis.streams is None:
            raise MissingSignal("the queue of the trace window could not be analysed")
        attribution, streams = analysis.attribution, analysis.streams
        longest = max((device.queue.max for device in streams.devices), default=0)
        held_ms = attribution.full_queue_us / 1e3 / step.steps
        idle_ratio = step.idle_ratio
        if held_ms <= 0 or longest < self.least_queue or idle_ratio > self.most_idle_ratio:
            return None
        return self.finding(
            severity="info",
            subject="launches",
            summary=(
                f"The host is up to {longest:,} works ahead of the device and waits {millis(held_ms)} per traced step "
                f"in launches: the device sets the pace ({busy_words(step)})."
            ),
            advice=(
                "Nothing to gain on the host: time in launches and in the phases that hold them is waiting for the "
                f"device, which is idle for {percent(idle_ratio)} of the step. Look at its kernels."
            ),
            evidence=(
                Evidence(name="longest queue", value=float(longest), limit=self.least_queue, source="HTA"),
                Evidence(name="host held in launches per traced step", value=held_ms, unit="ms"),
                Evidence(name="idle share of the step", value=idle_ratio, unit="ratio", limit=self.most_idle_ratio),
                *step_evidence(step),
            ),
            confidence=confidence(step),
        )
