"""Finds that a step copies many small tensors to the device one by one."""

from __future__ import annotations

from dataclasses import dataclass

from lightning_gpuprof.model.finding import Finding
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import BaseRule, gain, severity, threshold, worthwhile
from lightning_gpuprof.rules.launches.device_idle import confidence, explained_step, remark, step_evidence
from lightning_gpuprof.rules.transfers.device_copies import Copies, copies
from lightning_gpuprof.rules.transfers.device_waits import waits
from lightning_gpuprof.rules.wording import millis, percent


@dataclass(frozen=True, kw_only=True)
class ManySmallCopies(BaseRule):
    """A step copies many small tensors to the device, each with a call of its own.

    ## What it means

    A copy of a few kilobytes costs the host about 10 us and the device a few, whatever its size; from pageable memory
    the host also waits for each. A batch of lists, or of one tensor per field, makes dozens of them.

    ## How it is measured

    In a trace window: copies to the device of kinds whose median size is below 64 KiB, more than 10 per step. What
    they cost is 10 us for each of them as far as the device waits for late launches at all, and the idle time that
    follows the host's waits for copies of these kinds (see `sync-points`): at least 3 % of the period. Where their mean
    is 64 KiB or more there are large ones among them that the waits may be for: then these do not count. The gain is
    that.

    ## When it is wrong

    - Small and large copies of one kind are told by the median of the kind.
    - 10 us is what a call costs the host on ordinary machines, not a measurement of this one.

    ## What to do

    Collate into few tensors, make constants once (`register_buffer`), and what the host does not know on the device.

    ## Example

    "Collate into few tensors: 64 copies per step have a median below 64 KiB"
    """

    id = "many-small-copies"

    least_copies: float = threshold(10.0, source="TraceLens: more than 10 per step")
    most_bytes: float = threshold(65536.0, source="the catalogue: a median below 64 KiB")
    call_us: float = threshold(10.0, source="the catalogue: host time of one copy")
    least_ratio: float = threshold(0.03, source="the least worthwhile gain")

    def check(self, metrics: Metrics) -> Finding | None:
        """Judge small copies to the device."""
        step = explained_step(metrics)
        found = copies(step, "HtoD", smaller_than=self.most_bytes)
        if found.count <= self.least_copies:
            return None
        late_ms = step.cause_ms("launch", "launch_latency")
        calls_ms = min((found.count - self.least_copies) * self.call_us / 1e3, late_ms)
        alike = found.total_bytes < self.most_bytes * found.count
        waited = waits(metrics, step, "batch upload") if alike else ()
        cost_ms = calls_ms + sum(wait.cost_ms for wait in waited if wait.site.copy in found.names)
        lower_ms = step.lower_ms(cost_ms)
        if lower_ms < self.least_ratio * step.period_ms or not worthwhile(cost_ms, step.period_ms):
            return None
        return self.finding(
            severity=severity(lower_ms / step.period_ms, metrics.steps.steady_count),
            subject="batch",
            summary=(
                f"{found.count:.0f} {_told(found, alike)}, cost "
                f"{millis(cost_ms)} of {millis(step.period_ms)} ({percent(cost_ms / step.period_ms)}).{remark(step)}"
            ),
            advice=(
                f"Collate into few tensors: {found.count:.0f} copies per step have a median below 64 KiB. Make "
                "constants once: self.register_buffer(name, tensor)."
            ),
            evidence=(
                self.evidence("least_copies", found.count, "small copies per step"),
                self.evidence("least_ratio", cost_ms / step.period_ms, "their cost, share of the step"),
                *step_evidence(step),
            ),
            gain=gain(cost_ms, lower_ms, step.period_ms),
            confidence=0.6 * confidence(step),
            explains=claims.BATCH_COPIES,
        )


def _told(found: Copies, alike: bool) -> str:
    if not alike:
        return "copies to the device per step, most of them small"
    return f"small copies to the device per step, {found.total_bytes / found.count / 1e3:.3g} kB on average"
