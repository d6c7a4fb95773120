"""Finds that the device waits for the host to launch its work."""

from __future__ import annotations

from dataclasses import dataclass

from lightning_gpuprof.model.finding import Finding
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import BaseRule, gain, severity, threshold
from lightning_gpuprof.rules.launches.device_idle import busy_words, confidence, remark
from lightning_gpuprof.rules.launches.late_launches import IDLE_RATIO, fewer_launches, late_launches


@dataclass(frozen=True, kw_only=True)
class LaunchBound(BaseRule):
    """The device runs out of work because the host launches too slowly: the host sets the pace of the step.

    ## What it means

    Each operator takes 5 to 50 us on the host, whatever its size. If the kernels are shorter than that, the device is
    done before the next launch comes. A faster device does not help, fewer or larger launches do.

    ## How it is measured

    The idle time of a step is the period of untraced steps without the busy time of the device, which tracing does not
    change. Of that, the causes `launch` and `launch_latency` of a trace window: stretches in which the device had run
    dry and the host was on its way to the next launch, in no fetch, callback, checkpoint, allocation or wait for the
    device. Tracing slows launches down, so the lower bound is what is left of the untraced idle time if every other
    cause takes as long as in the window, without the host's time outside of the model and without what follows a wait.
    It has to pass 15 % of the period. The gain is the idle time of that cause.

    ## When it is wrong

    - The bound is cautious: where waits for the device or for batches take much of the step as well, they are named
      first, and this shows when they are gone.
    - Python code between the operators counts: `python-overhead` says so where it is most of it.
    - A busy or slow CPU makes every launch late: see `cpu-contention`.

    ## What to do

    `torch.compile(model, mode="reduce-overhead")`, a fused optimizer, a larger batch, fewer and larger operators.

    ## Example

    "In 8.10 ms of a step of 12.0 ms (68 %) the device has no work because the next launch comes late: 1,240 kernels of
    3.1 us each, one every 9.7 us"
    """

    id = "launch-bound"

    least_ratio: float = threshold(IDLE_RATIO, source="TraceLens: idle above 15 %; HTA: host wait")

    def check(self, metrics: Metrics) -> Finding | None:
        """Judge the idle time before launches."""
        found = late_launches(metrics)
        if not found.passes(self.least_ratio):
            return None
        step = found.step
        words = found.words[0].upper() + found.words[1:]
        return self.finding(
            severity=severity(found.lower_ms / step.period_ms, metrics.steps.steady_count),
            subject="launches",
            summary=(
                f"{words}: {found.kernels:,.0f} kernels of {found.mean_kernel_us:.1f} us each, one every "
                f"{found.every_us:.1f} us; {busy_words(step)}.{remark(step)}"
            ),
            advice=fewer_launches(metrics, found),
            evidence=(
                self.evidence("least_ratio", found.ratio, "idle for want of launches, share of the step"),
                *found.evidence(),
            ),
            gain=gain(found.idle_ms, found.lower_ms, step.period_ms),
            confidence=confidence(step),
            explains=claims.LATE_LAUNCHES,
        )
