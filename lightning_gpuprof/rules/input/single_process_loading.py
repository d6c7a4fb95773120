"""Finds that batches are made on the training thread although workers could make them beside the step."""

from __future__ import annotations

from dataclasses import dataclass

from lightning_gpuprof.model.change import Change
from lightning_gpuprof.model.finding import Evidence, Finding
from lightning_gpuprof.model.loading import LEAST_WAIT_RATIO
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.missing import measured
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import BaseRule, at_least, gain, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.input.loading import (
    batch_words,
    cap_words,
    code_line,
    cpu_words,
    making_evidence,
    sharding_words,
    wait_severity,
)
from lightning_gpuprof.rules.wording import millis

_SLOW = {
    "times_ms": {"data_wait": 41.0, "forward": 4.0, "backward": 5.0, "optimizer": 1.0, "zero_grad": 0.2, "loop": 1.0},
    "num_workers": 0,
    "usable_cpus": 2.0,
    "process_cpus": 1.1,
    "worker_cpus": None,
}


@dataclass(frozen=True, kw_only=True)
class SingleProcessLoading(BaseRule):
    """The DataLoader has no workers: each batch is made on the training thread, between two steps.

    ## What it means

    With `num_workers=0`, reading, decoding, augmenting and collating a batch happen inside the fetch, while the model
    waits. Worker processes make the next batches during the step.

    ## How it is measured

    The configured `num_workers` is 0 and the lower bound of the fetch's share W / T passes the threshold, also without
    the 1 ms that it costs to take a batch from a worker. The proposed
    number of workers is ceil(P / C) + 1, where P is the time that one batch takes to make, as measured
    inside of the loader (items and collation; else P = W), and C = T - W is the step
    without it. Where making a batch is CPU work, or where that was not measured, it is held to the usable CPUs
    (affinity and cgroup quota, divided by the ranks of the machine).

    The period that remains is T' = max(C + 0.5 ms, P / workers, (C + CPU work of a batch) / usable CPUs): the receipt
    of a batch from a worker, the workers' own pace, and the work that the same CPUs have to do in any case. The gain is
    R = min(W, T - T'); if it is below 3 % of the period or 0.2 ms, the rule is silent. That is so for tensors in
    memory, which cost less to index than to receive from another process. Receiving a batch may cost up to 3 ms:
    severity and the lower bound of the gain are without them.

    On a GPU the wait is free while the device has work: R is held below its idle time, which a trace window tells, and
    the rule is silent if that is below 5 % of the step. Without a window it is at most a warning.

    Silent where the dataset holds the model that is trained, as in reinforcement learning: workers would get copies
    that do not learn.

    ## When it is wrong

    - A dataset that depends on training in another way, such as a replay buffer that the steps fill, must stay in the
      training process as well.
    - Workers compete for the same CPUs as the step. T' contains that; if the CPU time of the process was not measured,
      all of the making of a batch is taken for CPU work.
    - The CPU work of the loading is known within bounds only: at most what the process used beyond one CPU during C, at
      least what it used beyond all torch threads during C and 5 ms of spinning afterwards. The first decides whether
      CPUs limit the number of workers, the second enters the bound of the gain.
    - A step that follows a long wait finds caches cold and threads asleep: it can become faster than C, and the gain
      larger than the bound.
    - The dataset must be picklable where processes are started by spawn, and an iterable dataset must share its samples
      between its workers (`torch.utils.data.get_worker_info`).

    ## What to do

    Set the printed number, with `persistent_workers=True`, and `pin_memory=True` if there is a GPU.
    """

    id = "single-process-loading"
    title = "Batches are loaded in the training process"
    specialises = ("input-bound",)

    least_ratio: float = threshold(LEAST_WAIT_RATIO, source="torch-tb-profiler: DataLoader above 5 %")

    examples = (
        fires("a batch takes 41 ms, the rest 12 ms", "critical", "set num_workers=2 (2 CPUs", **_SLOW),
        fires("the wait is no computation", "critical", "set num_workers=5", **{**_SLOW, "process_cpus": 0.23}),
        quiet("there are two workers", **{**_SLOW, "num_workers": 2}),
        quiet("the fetch is short", num_workers=0),
        looks_alike("one CPU must do all the work", **{**_SLOW, "usable_cpus": 1.0, "process_cpus": 1.0}),
        looks_alike("the dataset uses the model", **_SLOW, run={"loader.dataset_has_model": True}),
        not_evaluated("the loader is not torch's", "not a torch DataLoader", no_loader=True),
    )

    def check(self, metrics: Metrics) -> Finding | None:
        """Judge a loader without workers."""
        state = measured(metrics.loading)
        if state.num_workers != 0 or state.wait.lower_ratio < self.least_ratio:
            return None
        plan = state.helpful_plan
        if plan is None:
            return None
        evidence = [
            Evidence(name="num_workers", value=0, limit=1, source="torch DataLoader: 0 loads on the training thread"),
            self.evidence("least_ratio", state.wait.median_ratio, "data_wait share of the step"),
            *making_evidence(state),
            Evidence(name="step without the wait", value=state.compute_ms, unit="ms"),
            Evidence(name="usable CPUs", value=state.usable_cpus, unit="CPUs"),
        ]
        if state.free_cpus is not None:
            evidence.append(Evidence(name="free CPUs", value=state.free_cpus, unit="CPUs"))
        return self.finding(
            severity=wait_severity(state.idle_ratio, state.curable_ratio, metrics.steps.steady_count),
            subject=state.dataset or "DataLoader",
            summary=(
                f"Batches are made on the training thread (num_workers is 0): {at_least(state.wait)} of the step, "
                f"{millis(state.wait.median_ms)} of {millis(state.period_ms)}."
            ),
            advice=(
                f"num_workers is 0: set num_workers={plan.num_workers} ({cpu_words(state)}; {batch_words(state)}): "
                f"{code_line(state, plan.num_workers)}.{cap_words(state, plan.num_workers)}{sharding_words(state)}"
            ),
            evidence=tuple(evidence),
            gain=gain(plan.recoverable_ms, plan.lower_ms, state.period_ms),
            confidence=0.9 if state.cpu_ms is not None else 0.7,
            explains=claims.WAIT_FOR_BATCHES,
            change=Change(
                call="DataLoader",
                arguments={"num_workers": plan.num_workers, "persistent_workers": True},
                before={"num_workers": 0},
            ),
        )
