"""Finds that the device waits for the launches of very many very short kernels, and which ones."""

from __future__ import annotations

from dataclasses import dataclass

from lightning_gpuprof.model.finding import Evidence, Finding
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.trace.kernels import SavingRow
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import BaseRule, MissingSignal, gain, severity, threshold, worthwhile
from lightning_gpuprof.rules.launches.device_idle import confidence, remark
from lightning_gpuprof.rules.launches.late_launches import fewer_launches, late_launches
from lightning_gpuprof.rules.wording import listed, millis, percent

_LONGEST_NAME = 60


@dataclass(frozen=True, kw_only=True)
class SmallKernels(BaseRule):
    """A step launches over a thousand kernels, most of them shorter than their own launch.

    ## What it means

    A kernel of 2 us that costs 8 us to launch leaves the device idle for 6 us. Element-wise chains, loops over layers
    or time steps in Python, and optimizers that update one parameter after the other make thousands of them.

    ## How it is measured

    In a trace window: more than 1,000 kernels per step, more than half of them shorter than 10 us, and the idle time of
    the device directly before those, while the host was in the operator that launched them. That time, scaled to
    untraced steps as for `launch-bound` and held within its lower bound, has to pass 10 % of the period; the device
    must be busy for less than 85 % of it. The gain is that idle time.

    ## When it is wrong

    - Python code between the operators is not in it; `launch-bound` has it.
    - Of kernels with one name, some may be needed as they are.

    ## What to do

    Fuse: `torch.compile`, `foreach` or `fused` optimizers, operators of torch instead of several of one's own.

    ## Example

    "1,620 of 1,840 kernels per step are shorter than 10 us; the device is idle for 6.20 ms of 14.0 ms right before
    them: most before elementwise_kernel (940 per step)"
    """

    id = "small-kernels"
    specialises = ("launch-bound",)

    least_kernels: float = threshold(1000.0, source="heuristic: per step")
    least_small_ratio: float = threshold(0.5, source="heuristic: a median below 10 us")
    least_ratio: float = threshold(0.10, source="TraceML: 0.10")
    most_busy_ratio: float = threshold(0.85, source="the catalogue: only if the device is busy for less")

    def check(self, metrics: Metrics) -> Finding | None:
        """Judge kernels that are shorter than 10 us."""
        found = late_launches(metrics)
        step, facts = found.step, found.step.analysis.kernels
        if facts is None:
            raise MissingSignal("the kernels of the trace window were not analysed")
        small = facts.small
        idle_ms = min(step.estimate_ms(small.launch_gap_us / 1e3 / step.steps), found.idle_ms)
        lower_ms = min(step.lower_ms(idle_ms), found.lower_ms)
        if found.kernels <= self.least_kernels or (small.count_ratio or 0.0) <= self.least_small_ratio:
            return None
        if step.busy_ms >= self.most_busy_ratio * step.period_ms or lower_ms < self.least_ratio * step.period_ms:
            return None
        if not worthwhile(idle_ms, step.period_ms):
            return None
        rows = [row for row in facts.savings if row.kind == "launch gap"]
        return self.finding(
            severity=severity(lower_ms / step.period_ms, metrics.steps.steady_count),
            subject=_name(rows[0]) if rows else "small kernels",
            summary=(
                f"{small.count / step.steps:,.0f} of {found.kernels:,.0f} kernels per step are shorter than "
                f"{small.limit_us:.0f} us; the device is idle for {millis(idle_ms)} of {millis(step.period_ms)} right "
                f"before them{_most(rows, step.steps)}.{remark(step)}"
            ),
            advice=f"Fuse them. {fewer_launches(metrics, found)}",
            evidence=(
                self.evidence("least_ratio", idle_ms / step.period_ms, "idle before small kernels, share of the step"),
                Evidence(name="share of small kernels", value=small.count_ratio or 0.0, unit="ratio"),
                Evidence(
                    name="time of small kernels, of all kernels", value=percent(small.total_ratio or 0.0), unit=""
                ),
                *found.evidence(),
            ),
            gain=gain(idle_ms, lower_ms, step.period_ms),
            confidence=confidence(step),
            explains=claims.LATE_LAUNCHES,
        )


def _most(rows: list[SavingRow], steps: int) -> str:
    if not rows:
        return ""
    return ": most before " + listed([f"{_name(row)} ({row.count / steps:,.0f} per step)" for row in rows[:2]])


def _name(row: SavingRow) -> str:
    return row.name if len(row.name) <= _LONGEST_NAME else f"{row.name[: _LONGEST_NAME - 1]}…"
