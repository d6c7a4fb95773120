"""Finds that the DataLoader has workers, that their queue is empty most of the time, and that more would help."""

from __future__ import annotations

from dataclasses import dataclass

from lightning_gpuprof.model.finding import Evidence, Finding
from lightning_gpuprof.model.loading import EMPTY_QUEUE_RATIO, LEAST_WAIT_RATIO
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.missing import measured
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import (
    BaseRule,
    MissingSignal,
    at_least,
    gain,
    threshold,
)
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.input.loading import (
    batch_words,
    cap_words,
    code_line,
    cpu_words,
    making_evidence,
    wait_severity,
)
from lightning_gpuprof.rules.wording import counted, millis, percent

_BEHIND = {
    "times_ms": {"data_wait": 150.0, "forward": 4.0, "backward": 5.0},
    "num_workers": 1,
    "usable_cpus": 2.0,
    "process_cpus": 0.1,
    "worker_cpus": 0.02,
    "fetch_waited_ratio": 0.98,
}


@dataclass(frozen=True, kw_only=True)
class TooFewWorkers(BaseRule):
    """The workers are always behind: when a step wants its batch, none is ready, and more workers would help.

    ## What it means

    Workers put finished batches into a queue. If the queue is empty at most fetches, the workers set the pace of the
    training, not the model.

    ## How it is measured

    There is at least one worker; the share of steady steps whose fetch had to wait passes the threshold; the lower
    bound of the wait's share of the step passes 5 %, also without the 3 ms that taking a batch from a worker may cost
    although the queue is full. P, the time that one batch takes a worker, is measured in the workers (items
    and collation); where it is not, it is n * T at most, with all n workers at work all the time.
    The proposed number is ceil(P / C) + 1 with the step without its wait C = T - W; where the workers are CPU work (at
    least half of their time, waiting for a CPU with it), or where that was not measured, not more than the usable CPUs;
    if that cap binds, the text says so. The gain is R = min(W, T - T') as on the page of `single-process-loading`, and
    on a GPU the device's idle time bounds it likewise.

    Several workers that are behind often hand over their batches at about the same time: then few steps wait, but for
    long, and medians show nothing, or only a wait that may be the price of a fetch. Where the input pipeline was
    measured from inside and found such bursts (its verdict is `processing`), W and T are those of a mean step, and the
    lower bound of the wait's share of the time of all steps has to pass.

    ## When it is wrong

    - It is silent if the proposal is not more than the workers that are there, for example if they already use all
      CPUs: then batches must become cheaper, which `input-bound` says.
    - P is an upper bound where it was not measured in the workers. If single samples are slow rather than all, fewer
      workers and more prefetching do as well.
    - Very short steps: a wait of less than 3 ms cannot be told from the price of taking a batch from another process.

    ## What to do

    Set the printed number. If the workers mostly wait for storage, more of them than CPUs are right; the warning that
    DataLoader prints then does not apply.
    """

    id = "too-few-workers"
    specialises = ("input-bound", "step-outliers")

    least_waited_ratio: float = threshold(EMPTY_QUEUE_RATIO, source="MindInsight: queue empty above 30 %")
    least_ratio: float = threshold(LEAST_WAIT_RATIO, source="torch-tb-profiler: DataLoader above 5 %")

    examples = (
        fires("one worker waits for its items", "critical", "num_workers is 1: set num_workers=12", **_BEHIND),
        fires("it computes on one of two CPUs", "critical", "set num_workers=2 ", **{**_BEHIND, "worker_cpus": 0.95}),
        fires("its CPU time is not known", "critical", "was not measured", **{**_BEHIND, "worker_cpus": None}),
        fires("the queue is empty at 30 % of steps", "critical", "set num", **{**_BEHIND, "fetch_waited_ratio": 0.30}),
        quiet("it is empty at fewer", **{**_BEHIND, "fetch_waited_ratio": 0.299}),
        quiet("there are no workers", **{**_BEHIND, "num_workers": 0}),
        looks_alike("workers use all CPUs", **{**_BEHIND, "num_workers": 2, "worker_cpus": 1.9}),
        looks_alike(
            "the wait is the receipt of a batch",
            **{**_BEHIND, "times_ms": {"data_wait": 2.9, "forward": 4.0, "backward": 5.0}, "fetch_waited_ratio": 1.0},
        ),
        not_evaluated("the queue is not known", "no batch ready", **{**_BEHIND, "fetch_waited_ratio": None}),
        not_evaluated("the loader is not torch's", "not a torch DataLoader", no_loader=True),
    )

    def check(self, metrics: Metrics) -> Finding | None:
        """Judge a loader with workers."""
        state = measured(metrics.loading)
        if state.num_workers == 0:
            return None
        bursts = state.bursts
        state = bursts or state
        if state.wait.lower_ratio < self.least_ratio:
            return None
        waited = metrics.fetch_waited_ratio
        if waited is None:
            raise MissingSignal("the share of steps that found no batch ready was not measured")
        certain = state.certain_ratio if bursts is None else bursts.certain_ratio
        if (waited < self.least_waited_ratio and bursts is None) or certain < self.least_ratio:
            return None
        plan = state.helpful_plan if bursts is None else state.better_plan
        if plan is None:
            return None
        evidence = [
            self.evidence("least_waited_ratio", waited, "steps that found no batch ready")
            if bursts is None
            else Evidence(name="steps that found no batch ready", value=waited, unit="ratio"),
            self.evidence(
                "least_ratio",
                state.wait.median_ratio,
                "data_wait share of the step" if bursts is None else "data_wait share of all steps",
            ),
            Evidence(name="num_workers", value=state.num_workers),
            *making_evidence(state),
            Evidence(name="usable CPUs", value=state.usable_cpus, unit="CPUs"),
        ]
        if metrics.cpu.worker_cpus is not None:
            evidence.append(Evidence(name="CPUs used by the workers", value=metrics.cpu.worker_cpus, unit="CPUs"))
        average = "" if bursts is None else " on average"
        waits = cap_words(state, plan.num_workers)
        if state.cpu_bound is False:
            waits = f" The workers mostly wait rather than compute, so more of them than CPUs are right.{waits}"
        return self.finding(
            severity=wait_severity(state.idle_ratio, certain, metrics.steps.steady_count),
            subject=state.dataset or "DataLoader",
            summary=(
                f"{counted(state.num_workers, 'worker')} cannot keep up: {percent(waited)} of the steps found no batch "
                f"ready, and {at_least(state.wait)} of the {'step' if bursts is None else 'time of all steps'} "
                f"({millis(state.wait.median_ms)} of {millis(state.period_ms)}{average}) "
                f"is wait.{'' if bursts is None else ' Batches come in bursts: several at a time, then none.'}"
            ),
            advice=(
                f"num_workers is {state.num_workers}: set num_workers={plan.num_workers} ({cpu_words(state)}; "
                f"{batch_words(state)}): {code_line(state, plan.num_workers)}.{waits}"
            ),
            evidence=tuple(evidence),
            gain=gain(plan.recoverable_ms, plan.lower_ms, state.period_ms),
            confidence=0.9 if metrics.cpu.worker_cpus is not None else 0.6,
            explains=claims.WAIT_FOR_BATCHES if bursts is None else claims.OUTLIERS,
        )
