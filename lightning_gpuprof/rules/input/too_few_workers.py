"""The workers are always behind: when a step needs its batch, none is ready. More workers would help.

## What it means
Workers put finished batches into a queue. If it is empty at most fetches, they are the bottleneck, not the model.

## How it is measured
Two numbers must pass their thresholds: the share of steady steps whose fetch had to wait, and the lower bound of the
wait's share of the step minus the 3 ms that receiving a batch may cost.

The proposed number of workers is that of `single-process-loading`. The time to load a batch is measured in the workers;
if it was not, it is at most the step time times their number. Workers that mostly wait (less than half of their time on
a CPU or in its queue) may outnumber the CPUs. Others may not.

Workers that are behind often deliver at the same time. Then few steps wait, but for long, and the median shows nothing.
If such bursts were measured (verdict `processing` of the input pipeline), the mean step counts.

## When it is wrong
- If the workers already use all CPUs, the rule is silent: batches must become cheaper (`input-bound`,
  `loader-cpu-bound`).
- If batches were not timed in the workers, the number is an upper bound. If only some samples are slow, more
  prefetching helps as well (`input-jitter`).
- A wait below 3 ms may be the cost of receiving a batch from another process.

## What to do
Set the printed number. If it is above the number of CPUs, ignore DataLoader's warning.
"""

from lightning_gpuprof.model.loading import EMPTY_QUEUE_RATIO, MIN_WAIT_RATIO
from lightning_gpuprof.model.numbers import counted, percent
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import BaseRule, Finding, Metrics, MissingSignal, measured, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.input.loading import making_evidence, more_workers, wait_severity, wait_words, why_workers

_BEHIND = {
    "times_ms": {"data_wait": 150.0, "forward": 4.0, "backward": 5.0},
    "num_workers": 1,
    "usable_cpus": 2.0,
    "process_cpus": 0.1,
    "worker_cpus": 0.02,
    "fetch_waited_ratio": 0.98,
}
_BURSTS = {"items_ms": 99.0, "workers": 4, "worker_cpus": 0.1, "ordinary_wait_ms": 4.0, "burst": 0.72, "waited": 0.8}
_OFTEN = {"fetch_waited_ratio": 0.30}


class TooFewWorkers(BaseRule):
    id = "too-few-workers"
    title = "The DataLoader workers cannot keep up"
    needs = "workers"
    specialises = ("input-bound", "step-outliers")

    least_waited_ratio: float = threshold(EMPTY_QUEUE_RATIO, source="MindInsight: queue empty above 30 %")
    least_ratio: float = threshold(MIN_WAIT_RATIO, source="torch-tb-profiler: DataLoader above 5 %")

    examples = (
        fires(
            "one worker waits for its items",
            "critical",
            "num_workers=12). Why 12 ... on 2 CPUs this holds because loading",
            lacks="persistent_workers",
            saves_ms=149.5,
            **_BEHIND,
        ),
        fires(
            "it computes",
            "critical",
            "Why 2 ... and you have 2 CPUs",
            saves_ms=79.2,
            **{**_BEHIND, "worker_cpus": 0.95},
        ),
        fires(
            "its CPU time is not known", "critical", "Why 2 ... was not measured", **{**_BEHIND, "worker_cpus": None}
        ),
        fires("30 % of the steps waited", "critical", "ready in 30 % of the steps", **{**_BEHIND, **_OFTEN}),
        fires("four deliver at a time", "critical", "a step takes 35.7 ms and waits 25.7 ms", saves_ms=25.2, **_BURSTS),
        quiet("fewer steps waited", **{**_BEHIND, "fetch_waited_ratio": 0.299}),
        quiet("there are no workers", **{**_BEHIND, "num_workers": 0}),
        looks_alike("workers use all CPUs", **{**_BEHIND, "num_workers": 2, "worker_cpus": 1.9}),
        looks_alike(
            "the wait is the receipt of a batch",
            **{**_BEHIND, "times_ms": {"data_wait": 2.9, "forward": 4.0, "backward": 5.0}, "fetch_waited_ratio": 1.0},
        ),
        not_evaluated("the queue is not known", "had to wait", **{**_BEHIND, "fetch_waited_ratio": None}),
        not_evaluated("the loader is not torch's", "not a torch DataLoader", no_loader=True),
    )

    def check(self, metrics: Metrics) -> Finding | None:
        state = measured(metrics.loading)
        if state.num_workers == 0:
            return None
        bursts = state.bursts
        state = bursts or state
        if state.wait.lower_ratio < self.least_ratio:
            return None
        waited = metrics.fetch_waited_ratio
        if waited is None:
            raise MissingSignal("how many steps had to wait for a batch was not measured")
        if (waited < self.least_waited_ratio and bursts is None) or state.certain_ratio < self.least_ratio:
            return None
        plan = state.helpful_plan if bursts is None else state.better_plan
        if plan is None:
            return None
        steps = "the step" if bursts is None else "all steps"
        had_to_wait = "steps that had to wait"
        change = more_workers(metrics, state, plan.num_workers)
        return self.finding(
            severity=wait_severity(state.idle_ratio, state.certain_ratio, metrics.steps.steady_count),
            subject=state.dataset or "DataLoader",
            summary=f"{counted(state.num_workers, 'worker')} cannot keep up: "
            f"{wait_words(state, in_bursts=bursts is not None)}. "
            f"No batch was ready in {percent(waited)} of the steps{'' if bursts is None else ': they come in bursts'}.",
            advice=f"Use more workers: {change.added[0]}. {why_workers(metrics, state, change)}",
            evidence=(
                self.evidence("least_waited_ratio", waited, had_to_wait)
                if bursts is None
                else self.fact(had_to_wait, waited, "ratio"),
                self.evidence("least_ratio", state.wait.median_ratio, f"waiting for data, share of {steps}"),
                self.fact("num_workers", state.num_workers),
                *making_evidence(state),
                self.fact("usable CPUs", state.usable_cpus, "CPUs"),
                self.fact("CPUs used by the workers", metrics.cpu.worker_cpus, "CPUs"),
            ),
            cost=metrics.cost(plan.recoverable_ms, plan.lower_ms, step_ms=state.period_ms),
            confidence=0.9 if metrics.cpu.worker_cpus is not None else 0.6,
            explains=claims.WAIT_FOR_BATCHES if bursts is None else claims.OUTLIERS,
            phase="data_wait",
            change=change,
        )
