"""The DataLoader has no workers: each batch is made on the main thread, between two steps.

## What it means
With `num_workers=0`, the model waits while a batch is read, decoded, augmented and collated. Worker processes do that
during the step.

## How it is measured
`num_workers` is 0, and the lower bound of the fetch's share of the step passes the threshold even without the 1 ms that
receiving a batch from a worker costs.

The proposed number of workers is ceil(P / C) + 1. P is the time to load a batch, measured inside the loader. C is the
step without the wait. If loading a batch is CPU work, or if that is not known, the number is at most the usable CPUs
(affinity and cgroup quota, divided by the ranks of the machine).

The step then takes at least T' = max(C + 0.5 ms, P / workers, (C + CPU time of a batch) / usable CPUs), and the gain is
at most T - T'. On a GPU it is also at most the time that the GPU idles; without a trace window, the finding is at most
a warning. Gains below 3 % of the step or 0.2 ms are not reported: indexing tensors in memory costs less than receiving
them from a worker.

## When it is wrong
- The dataset depends on the training, as a replay buffer does: workers would have copies. Datasets that hold the model
  are recognised and left alone.
- The CPU time of loading is known only within bounds: at most what the process used beyond one CPU, at least what it
  used beyond all torch threads. The proposal uses the first, and the bound of the gain the second.
- A step can become faster than C, because caches stay warm. The gain is then larger than the bound.
- If processes start by spawn, the dataset must be picklable. An iterable dataset must be sharded.

## What to do
Set the printed number, with `persistent_workers=True`, and with `pin_memory=True` if there is a GPU.
"""

from lightning_gpuprof.model.loading import MIN_WAIT_RATIO
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import BaseRule, Evidence, Finding, Metrics, measured, of_each_step, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.input.loading import (
    loading_left,
    making_evidence,
    more_workers,
    wait_severity,
    why_workers,
)

_SHORT = {"forward": 4.0, "backward": 5.0, "optimizer": 1.0, "zero_grad": 0.2, "loop": 1.0}
_SLOW = {
    "times_ms": {**_SHORT, "data_wait": 41.0},
    "num_workers": 0,
    "usable_cpus": 2.0,
    "process_cpus": 1.1,
    "worker_cpus": None,
}
_GPU = {"times_ms": {"forward": 60.0, "data_wait": 40.0}, "num_workers": 0, "run": {"device.type": "cuda"}}


class SingleProcessLoading(BaseRule):
    id = "single-process-loading"
    title = "Batches are loaded in the main process"
    specialises = ("input-bound",)

    least_ratio: float = threshold(MIN_WAIT_RATIO, source="torch-tb-profiler: DataLoader above 5 %")

    examples = (
        fires(
            "a batch takes 41 ms, the rest 12 ms",
            "critical",
            "num_workers=2, persistent_workers=True). Why 2: a batch costs 41.0 ms of CPU time and you have 2 CPUs.",
            lacks="pin_memory",
            saves_ms=26.45,  # two CPUs need half of a step that keeps one busy
            **_SLOW,
        ),
        fires("the wait is not computation", "critical", "Why 5", **{**_SLOW, "process_cpus": 0.23}, saves_ms=40.5),
        fires("CPU time is unknown", "critical", "Why 2 ... was not measured", **{**_SLOW, "process_cpus": None}),
        fires(
            "the model has two threads", "critical", "set_num_threads(1)", **{**_SLOW, "run": {"torch.num_threads": 2}}
        ),
        fires(
            "the GPU idles for 12 % of the step", "warning", "pin_memory=True", **_GPU, idle_ratio=0.12, saves_ms=15.5
        ),
        fires("what the GPU does is not known", "warning", "pin_memory=True", **_GPU),
        quiet("the GPU hardly idles", **_GPU, idle_ratio=0.01),
        quiet("there are two workers", **{**_SLOW, "num_workers": 2}),
        quiet("the fetch is short", num_workers=0),
        quiet("the fetch costs what a worker would", times_ms={"data_wait": 0.45, "forward": 0.8}, num_workers=0),
        looks_alike("one CPU must do all the work", **{**_SLOW, "usable_cpus": 1.0, "process_cpus": 1.0}),
        looks_alike("the dataset uses the model", **_SLOW, run={"loader.dataset_has_model": True}),
        not_evaluated("the loader is not torch's", "not a torch DataLoader", no_loader=True),
    )

    def check(self, metrics: Metrics) -> Finding | None:
        state = measured(metrics.loading)
        if state.num_workers != 0 or state.wait.lower_ratio < self.least_ratio:
            return None
        plan = state.helpful_plan
        if plan is None:
            return None
        change = more_workers(metrics, state, plan.num_workers)
        return self.finding(
            severity=wait_severity(state.idle_ratio, state.fixable_ratio, metrics.steps.steady_count),
            subject=state.dataset or "DataLoader",
            summary=f"Loading the batch in the main process takes {of_each_step(state.waited_ms, state.period_ms)}.",
            advice=f"Load batches in worker processes: {change.added[0]}. {why_workers(metrics, state, change)}",
            evidence=(
                Evidence(name="num_workers", value=0, limit=1, source="torch DataLoader: 0 loads on the main thread"),
                self.evidence("least_ratio", state.wait.median_ratio, "waiting for data, share of the step"),
                *making_evidence(state),
                self.fact("step without the wait", state.compute_ms, "ms"),
                self.fact("usable CPUs", state.usable_cpus, "CPUs"),
                self.fact("free CPUs", state.free_cpus, "CPUs"),
            ),
            cost=metrics.cost(plan.recoverable_ms, plan.lower_ms, step_ms=state.period_ms),
            confidence=0.9 if state.cpu_ms is not None else 0.7,
            leaves=loading_left(state, plan),
            explains=claims.WAIT_FOR_BATCHES,
            change=change,
        )
