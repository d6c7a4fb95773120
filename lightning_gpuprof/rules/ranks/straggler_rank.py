"""Finds the rank that does more than the others before it meets them, in most of the steps."""

from __future__ import annotations

from dataclasses import dataclass

from lightning_gpuprof.model.finding import Evidence, Finding
from lightning_gpuprof.model.metrics import Metrics, RankShare
from lightning_gpuprof.model.numbers import counted, millis, percent
from lightning_gpuprof.model.phases import Phase
from lightning_gpuprof.model.signals import is_cpu_only, steady_period_ms
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import BaseRule, severity, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.ranks.rank_times import lost_by_waiting, rank_times

_LOOK: dict[Phase, str] = {
    "data_wait": "its loader: storage and CPUs of its host, num_workers there, a shard with larger samples",
    "h2d": "what it moves to the device, and the link of its slot",
    "forward": "what training_step does on this rank only, and how its samples differ",
    "optimizer": "what its optimizer step does, such as work behind `if self.trainer.is_global_zero`",
    "zero_grad": "what it does when gradients are cleared",
    "callbacks": "callbacks that work on this rank only",
    "logging": "what it logs that the others do not: self.log(..., rank_zero_only=True), loggers of rank 0",
}


@dataclass(frozen=True, kw_only=True)
class StragglerRank(BaseRule):
    """One rank takes longer than the others before it meets them, and all wait for it in every step.

    ## What it means
    Ranks meet in the reduction of gradients. Their step times are equal, because the quick ones wait there: what
    differs is the time that each spends on its own before.

    ## How it is measured
    From the journals of all ranks in the run's folder, for steps of the same number that are steady on all: the time in
    phases in which a rank waits for no other (on a CPU all but the backward and the ranks' own synchronisation; on a
    device only the wait for batches, because the host may wait for the device in any other), minus the median of the
    other ranks. The lower bound of its median share must pass a tenth of the step, and the rank must be the slowest
    in at least 60 % of the steps. Only durations are compared, so clocks of hosts need not agree. The gain is that
    time. On a device it is held below the time in which this rank's device is idle or only communicates, as far as a
    trace window has seen it: a wait for a batch costs nothing while the device still has work.

    ## When it is wrong
    - Layers that synchronise in the forward (SyncBatchNorm) hide the difference: then it is silent.
    - On a device without a trace window the wait may be covered by work: the confidence is lower.
    - A device that is slower than others (clocks, heat) is not seen by the host: `gpuprof trace` with the windows of
      all ranks tells.
    - Journals in folders that are not shared between hosts are not found; then it is not evaluated.

    ## What to do
    Look at what the named phase does on the named rank and host.

    """

    id = "straggler-rank"
    title = "One rank is slower than the others"

    least_ratio: float = threshold(0.10, source="TraceML")
    least_slowest_ratio: float = threshold(0.60, source="the method: the same rank in 60 % of the steps")

    examples = (
        fires(
            "rank 3 takes 12 ms longer in its forward",
            "critical",
            "Rank 3 on node1 takes 12.0 ms longer than the others in each 50.0 ms step, most of it in forward",
            saves_ms=12.0,
            ranks={"excess_ms": 12.0, "late": 3},
        ),
        fires("15 steps are steady on all ranks", "warning", "15 steps", ranks={"excess_ms": 12.0, "steps": 15}),
        quiet("the ranks are equal", ranks={"excess_ms": 0.5}),
        quiet("there is one rank"),
        looks_alike("ranks are late in turn", ranks={"excess_ms": 12.0, "slowest": 0.3}),
        not_evaluated("a journal is missing", "journals of all ranks", run={"trainer.world_size": 2}),
        not_evaluated("nine steps are", "9 steps", ranks={"excess_ms": 12.0, "steps": 9}),
    )

    def check(self, metrics: Metrics) -> Finding | None:
        """Judge the rank that takes most time on its own."""
        period_ms = steady_period_ms(metrics)
        times = rank_times(metrics)
        if times is None:
            return None
        late = max(times.ranks, key=lambda one: one.excess.lower_ratio)
        lost = lost_by_waiting(metrics, late.excess, period_ms)
        if late.slowest_ratio < self.least_slowest_ratio or not lost.is_worth(self.least_ratio):
            return None
        phase = max(late.excess_by_phase_ms, key=lambda one: late.excess_by_phase_ms[one])
        waiting = times.world_size - 1
        return self.finding(
            severity=severity(lost.lower_ratio, times.steps),
            subject=f"rank {late.rank}",
            summary=(
                f"Rank {late.rank} on {late.host} takes {millis(late.excess.median_ms)} longer than the others in each "
                f"{millis(period_ms)} step, most of it in {phase}. It is the slowest in {percent(late.slowest_ratio)} "
                f"of {counted(times.steps, 'step')}, and {counted(waiting, 'rank')} "
                f"{'waits' if waiting == 1 else 'wait'} for it."
            ),
            advice=_advice(late, phase),
            evidence=(
                self.evidence(
                    "least_ratio", late.excess.median_ratio, f"extra time of rank {late.rank}, share of the step"
                ),
                self.evidence("least_slowest_ratio", late.slowest_ratio, "steps in which it is the slowest"),
                Evidence(name="step time", value=period_ms, unit="ms"),
                *lost.evidence,
            ),
            gain=lost.gain,
            confidence=0.8 if is_cpu_only(metrics) or lost.waiting_ratio is not None else 0.5,
            explains=claims.COMMUNICATION,
        )


def _advice(late: RankShare, phase: Phase) -> str:
    return (
        f"Look at {phase} of rank {late.rank}: {_LOOK.get(phase, 'what it does there that the others do not')}. "
        f"Its journal is rank{late.rank}.jsonl in the run's folder."
    )
