"""Finds that the launch calls themselves are slow, whatever is launched."""

from __future__ import annotations

from dataclasses import dataclass

from lightning_gpuprof.model.finding import Finding
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.trace.api_tables import TimeRow
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import BaseRule, MissingSignal, gain, severity, threshold, worthwhile
from lightning_gpuprof.rules.launches.device_idle import confidence, remark
from lightning_gpuprof.rules.launches.late_launches import LateLaunches, late_launches
from lightning_gpuprof.rules.wording import millis


@dataclass(frozen=True, kw_only=True)
class SlowLaunchApi(BaseRule):
    """The call that launches a kernel takes long, and the device waits for it.

    ## What it means

    `cudaLaunchKernel` returns within 4 to 12 us under the profiler. If it takes much longer every time, the host is
    slow or shared, or launches are set to wait for their kernels (`CUDA_LAUNCH_BLOCKING=1`, left from debugging).

    ## How it is measured

    The median duration of the most frequent launch call of a trace window is 20 us or more, over at least 100 calls,
    without a full queue, and the idle time of `launch-bound` passes 10 % of the period with its lower bound. The gain
    is what the calls take above 10 us each, as far as the device is idle for want of launches. If the median call takes
    at least as long as the mean kernel and the queue never holds more than two works, launches wait for their kernels.

    ## When it is wrong

    - The profiler adds a few microseconds to each call; the threshold leaves room for it.
    - First launches of a kernel, which load it, are few and do not move the median.

    ## What to do

    Unset `CUDA_LAUNCH_BLOCKING`; give the training a CPU of its own; look for a debugger or a tool that intercepts
    CUDA.

    ## Example

    "cudaLaunchKernel takes 61.0 us at the median of 1,240 calls per step, as long as the kernels: unset
    CUDA_LAUNCH_BLOCKING"
    """

    id = "slow-launch-api"
    specialises = ("launch-bound",)

    least_median_us: float = threshold(20.0, source="heuristic: recorded traces of six GPU models have 4 to 12")
    usual_us: float = threshold(10.0, source="heuristic: what a call may take")
    least_calls: float = threshold(100.0, source="heuristic: calls in the window")
    least_ratio: float = threshold(0.10, source="TraceML: 0.10")

    def check(self, metrics: Metrics) -> Finding | None:
        """Judge the median of the launch calls."""
        found = late_launches(metrics)
        step, period_ms = found.step, found.step.period_ms
        tables, attribution = step.analysis.api_tables, step.analysis.attribution
        if tables is None or attribution is None:
            raise MissingSignal("the launch calls of the trace window could not be analysed")
        launches = [row for row in tables.cuda_api_sum if "LaunchKernel" in row.name]
        call = max(launches, key=lambda row: row.count, default=None)
        if call is None or call.count < self.least_calls or call.median_us < self.least_median_us:
            return None
        if attribution.full_queue_us > 0:
            return None
        excess_ms = (call.median_us - self.usual_us) * call.count / 1e3 / step.steps
        saved_ms, lower_ms = min(excess_ms, found.idle_ms), min(excess_ms, found.lower_ms)
        if lower_ms < self.least_ratio * period_ms or not worthwhile(saved_ms, period_ms):
            return None
        blocking = _waits_for_kernels(found, call)
        return self.finding(
            severity=severity(lower_ms / step.period_ms, metrics.steps.steady_count),
            subject=call.name,
            summary=(
                f"{call.name} takes {call.median_us:.1f} us at the median of {call.count / step.steps:,.0f} calls per "
                f"step{', as long as the kernels' if blocking else ''}; launches come late for {millis(found.idle_ms)} "
                f"of {millis(period_ms)}.{remark(step)}"
            ),
            advice=(
                "Unset CUDA_LAUNCH_BLOCKING: each launch waits until its kernel is done."
                if blocking
                else "Give the training thread a CPU of its own, and look for debuggers or tools that intercept CUDA: "
                f"a launch takes {call.median_us:.0f} us here, {self.usual_us:.0f} us are usual."
            ),
            evidence=(
                self.evidence("least_median_us", call.median_us, "median launch call", "us"),
                self.evidence("least_ratio", found.ratio, "idle for want of launches, share of the step"),
                *found.evidence(),
            ),
            gain=gain(saved_ms, lower_ms, period_ms),
            confidence=0.8 * confidence(step),
            explains=claims.LATE_LAUNCHES,
        )


def _waits_for_kernels(found: LateLaunches, call: TimeRow) -> bool:
    streams = found.step.analysis.streams
    longest = max((device.queue.max for device in streams.devices), default=0) if streams is not None else 0
    return 0 < longest <= 2 and call.average_us >= found.mean_kernel_us
