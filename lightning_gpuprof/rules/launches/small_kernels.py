"""A step launches over a thousand kernels, most of them shorter than their own launch.

## What it means
A kernel of 2 µs that takes 8 µs to launch leaves the GPU idle for 6 µs. Element-wise chains, loops over layers or time
steps in Python, and optimizers that update one parameter after the other make thousands of them.

## How it is measured
In a trace window, a step has more than 1,000 kernels, and more than half of them run for less than 10 µs. The cost,
which is also the gain, is the GPU's idle time right before these kernels, while the host was in the operator that
launched them. Scaled to untraced steps as for `launch-bound`, it must pass 10 % of the step, and the GPU must be busy
for less than 85 % of it.

## When it is wrong
- Python between the operators is not counted here; `launch-bound` has it.
- Of kernels with one name, some may be needed as they are.

## What to do
Fuse: `torch.compile`, `foreach` or `fused` optimizers, operators of torch instead of several of your own.
"""

from msgspec.structs import replace

from lightning_gpuprof.model.device_step import ExplainedStep
from lightning_gpuprof.model.trace.kernels import SavingRow
from lightning_gpuprof.rules.base import Finding, Metrics, MissingSignal, listed, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_applicable, not_evaluated, quiet
from lightning_gpuprof.rules.launches.late_launches import LaunchRule, fewer_launches, late_launches, launch_evidence

_LONGEST_NAME = 60


def _run(kernels: int = 1200, kernel_us: float = 3.0) -> dict[str, object]:
    """A run of an example."""
    return {"step": {"kernels": kernels, "kernel_us": kernel_us, "python_us": 0.0}, "traced": 3}


class SmallKernels(LaunchRule):
    id = "small-kernels"
    title = "Tiny kernels leave the GPU idle"
    specialises = ("launch-bound",)

    least_kernels: float = threshold(1000.0, source="heuristic: per step")
    least_small_ratio: float = threshold(0.5, source="heuristic: a median below 10 µs")
    least_ratio: float = threshold(0.10, source="TraceML: 0.10")
    most_busy_ratio: float = threshold(0.85, source="heuristic: only if the device is busy for less")

    examples = (
        fires("1,200 kernels of 3 µs run", "critical", "1,200 of 1,200 kernels", saves_ms=8.4, **_run()),
        fires("1,020 kernels run", "critical", "elementwise_kernel (1,020 per step)", **_run(1020)),
        quiet("960 kernels run", **_run(960)),
        quiet("kernels take 20 µs", **_run(kernel_us=20.0)),
        looks_alike("only tracing makes launches late", **_run(), period_ms=4.0),
        not_applicable("the model is on the CPU", "runs on the CPU"),
        not_evaluated("there is no trace window", "no trace window was recorded", run={"device.type": "cuda"}),
    )

    def judge(self, metrics: Metrics, step: ExplainedStep) -> Finding | None:
        late, facts = late_launches(metrics, step), step.analysis.kernels
        if facts is None:
            raise MissingSignal("the kernels of the trace window were not analysed")
        small = facts.small
        idle_ms = min(step.estimate_ms(small.launch_gap_us / 1e3 / step.steps), late.ms)
        idle = replace(late, ms=idle_ms, lower_ms=min(step.lower_ms(idle_ms), late.lower_ms))
        if step.kernels_per_step <= self.least_kernels or (small.count_ratio or 0.0) <= self.least_small_ratio:
            return None
        if step.busy_ms >= self.most_busy_ratio * step.period_ms or not idle.is_worth(self.least_ratio):
            return None
        rows = [row for row in facts.savings if row.kind == "launch gap"]
        named = [f"{_name(row)} ({row.count / step.steps:,.0f} per step)" for row in rows[:2]]
        most = f", mostly before {listed(named)}" if named else ""
        return self.of_step(
            step,
            idle,
            subject=_name(rows[0]) if rows else "small kernels",
            summary=f"{small.count / step.steps:,.0f} of {step.kernels_per_step:,.0f} kernels per step run for less "
            f"than {small.limit_us:.0f} µs. Launching them takes longer, and the GPU idles {idle}{most}.",
            advice=fewer_launches(metrics, step),
            evidence=(
                self.evidence("least_ratio", idle.ratio, "idle before small kernels, share of the step"),
                self.evidence("least_small_ratio", small.count_ratio or 0.0, "share of small kernels"),
                self.fact("small kernels, share of kernel time", small.total_ratio or 0.0, "ratio"),
                *launch_evidence(step),
            ),
        )


def _name(row: SavingRow) -> str:
    return row.name if len(row.name) <= _LONGEST_NAME else f"{row.name[: _LONGEST_NAME - 1]}…"
