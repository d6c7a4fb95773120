"""This profiler itself costs a noticeable part of the run.

## What it means
Timing the phases costs microseconds per step. Sampling uses some of a CPU beside the training. Trace windows slow down
the steps that they record. All of it is measured and listed under `overhead` in the report.

## How it is measured
Three shares are compared with a threshold each:

- timing, as a share of the steady step: a lower bound, because actions that repeat within a step count once;
- sampling and the journal, as a share of one CPU;
- trace windows, as a share of the run: beginning and ending them, and how much longer traced steps, and those during
  the analysis of a trace, took than the steady steps around them. Validation, checkpoints, waits for data and the first
  steps of an epoch do not count.

A run shorter than 20 s is not judged, because one-time costs are a large part of it. The finding is information only:
numbers about steady steps do not include the windows' part.

## When it is wrong
- On a crowded machine, the profiler's own code waits for a CPU, too, and costs more.
- Where other programs took its CPUs, trace windows are not judged: a stall while one is open may be theirs.

## What to do
Use fewer or shorter windows, longer sampling intervals, or `GpuProfiler(enabled=False)` for runs without a report.
"""

from lightning_gpuprof.model.numbers import capital, listed, possible, seconds
from lightning_gpuprof.model.report import Validity
from lightning_gpuprof.rules.base import BaseRule, Finding, Metrics, MissingSignal, NotApplicable, percent, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_applicable, not_evaluated, quiet


def _cost(step_ratio: float | None, *, beside_others: bool = False, **more: float) -> dict[str, object]:
    validity = Validity(ok=True, conditional=beside_others)
    return {"metrics": {"overhead": {"share_of_step_ratio": step_ratio, **more}, "validity": validity}}


class ProfilerOverhead(BaseRule):
    id = "profiler-overhead"
    title = "The profiler itself slows down the run"

    least_step_ratio: float = threshold(0.01, source="heuristic: sampling mode above 1 %")
    least_background_ratio: float = threshold(0.02, source="heuristic: of one CPU")
    least_window_ratio: float = threshold(0.05, source="heuristic: of the run")
    least_run_s: float = threshold(20.0, source="heuristic: dense sampling and one window are much of a short run")

    examples = (
        fires("windows take 4 of 21 s", "info", "took 4.00 s of 21.2 s ... Record", **_cost(0.001, windows_s=4.0)),
        fires("it samples", "info", "3.0 % of the step ... 5.0 % of a CPU", **_cost(0.03, background_cpu_ratio=0.05)),
        fires("timing takes 1 % of the step", "info", "1.0 %", **_cost(0.0101)),
        quiet("the profiler takes less", **_cost(0.0099)),
        not_applicable("a run of 5 s begins", "less than 20 s", steps=100, **_cost(0.2)),
        looks_alike("others stall the steps of a window", **_cost(0.001, windows_s=4.0, beside_others=True)),
        not_evaluated("its cost is not known", "own cost", **_cost(None)),
    )

    def check(self, metrics: Metrics) -> Finding | None:
        total_s = metrics.run_s
        step, background = metrics.overhead.get("share_of_step_ratio"), metrics.overhead.get("background_cpu_ratio")
        windows_s = None if metrics.validity.conditional else metrics.overhead.get("windows_s")
        if step is None or not possible(step):
            raise MissingSignal("the profiler's own cost per step was not measured")
        if total_s < self.least_run_s:
            raise NotApplicable(f"the run took less than {self.least_run_s:g} s")
        window_ratio = min(1.0, windows_s / total_s) if windows_s is not None and possible(windows_s) else 0.0
        background_ratio = background if background is not None and possible(background) else 0.0
        parts, advice = [], []
        if step >= self.least_step_ratio:
            parts.append(f"timing takes {percent(step)} of the step")
            advice.append("set GpuProfiler(enabled=False) in runs that you do not measure, or make steps longer")
        if background_ratio >= self.least_background_ratio:
            parts.append(f"sampling takes {percent(background_ratio)} of a CPU")
            advice += ["sample less often: GpuProfiler(host=HostConfig(interval_s=5), nvml=NvmlConfig(interval_s=5))"]
        if window_ratio >= self.least_window_ratio:
            parts.append(f"trace windows took {seconds(window_ratio * total_s)} of {seconds(total_s)}")
            advice.append("record fewer or shorter windows: GpuProfiler(windows=[...], trace=TraceConfig(active=2))")
        if not parts:
            return None
        return self.finding(
            subject="GpuProfiler",
            summary=f"This profiler's own cost: {listed(parts)}.",
            advice=f"{capital('; '.join(advice))}.",
            evidence=(
                self.evidence("least_step_ratio", step, "timing of the step"),
                self.evidence("least_background_ratio", background_ratio, "sampling of a CPU"),
                self.evidence("least_window_ratio", window_ratio, "windows of the run"),
            ),
            confidence=0.8,
        )
