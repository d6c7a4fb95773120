"""In each step a different rank takes longest, and all others wait for it.

## What it means
If batches differ in work (lengths, sizes, numbers of objects), each step takes as long as the largest batch of any
rank, although all ranks have the same work over many steps.

## How it is measured
From the summaries of all ranks in the run's folder, for steps of the same number that are steady on all: of each step
the longest time that a rank spends on its own (page of `straggler-rank`) minus what it would be if every rank's work
were always its usual share, as a share of the step time. Ranks that always do more have a larger share, so they count
as stragglers and not here. The lower bound of the median must pass a tenth of the step, and no rank may be the slowest
in 60 % of the steps. The gain is that time, on a device held as for `straggler-rank`.

## When it is wrong
- On a device only the wait for batches is seen; batches that differ in the work of kernels are not.
- Ranks that compete for the CPUs of one host are late in turn, too.

## What to do
Give all ranks batches of about the same work in a step: a distributed sampler that sorts samples into buckets by
length, or batches by tokens rather than by samples.
"""

from lightning_gpuprof.model.rank_times import RankTimes
from lightning_gpuprof.rules.base import Finding, Metrics, claims, counted, listed, millis, percent, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.ranks.rank_times import RankRule, lost_by_waiting, waiting_evidence


class LoadImbalance(RankRule):
    id = "load-imbalance"
    title = "Ranks have unequal work in each step"

    least_ratio: float = threshold(0.10, source="the method: a tenth of the step")
    most_slowest_ratio: float = threshold(0.60, source="the method: the same rank in 60 % of the steps")

    examples = (
        fires(
            "the slowest of four takes 12 ms longer than with equal work",
            "critical",
            "Each 50.0 ms step takes 12.0 ms longer than with equal work ... rank 1 in 28 %",
            saves_ms=12.0,
            ranks={"excess_ms": 0.0, "slowest": 0.28, "imbalance_ms": 12.0},
        ),
        quiet("the ranks are equal", ranks={"excess_ms": 0.0, "slowest": 0.25, "imbalance_ms": 0.5}),
        quiet("there is one rank"),
        looks_alike("one rank is always late", ranks={"excess_ms": 16.0, "imbalance_ms": 12.0}),
        not_evaluated("no other rank was found", "1 rank of 4", ranks={"excess_ms": 0.0, "alone": True}),
        not_evaluated("nine steps are", "9 steps", ranks={"excess_ms": 0.0, "imbalance_ms": 12.0, "steps": 9}),
    )

    def judge(self, metrics: Metrics, times: RankTimes) -> Finding | None:
        in_turn = sorted(times.ranks, key=lambda one: -one.slowest_ratio)
        slowest_ratio = in_turn[0].slowest_ratio
        lost = lost_by_waiting(metrics, times.imbalance, times.steps)
        if slowest_ratio >= self.most_slowest_ratio or not lost.is_worth(self.least_ratio):
            return None
        waiting = waiting_evidence(metrics)
        turns = listed([f"rank {one.rank} in {percent(one.slowest_ratio)}" for one in in_turn[:4]])
        sampler, batch = metrics.condition("loader.sampler"), metrics.condition("loader.batch_size")
        now = f" The sampler is {sampler}, with {batch} samples per batch." if sampler and batch else ""
        return self.finding(
            subject="batches of the ranks",
            summary=(
                f"Each {millis(lost.step_ms)} step takes {millis(times.imbalance.median_ms)} longer than with equal "
                f"work. The slowest rank changes: {turns} of {counted(times.steps, 'step')}."
            ),
            advice=(
                "Use a distributed sampler that gives all ranks the same amount of work in a step: bucket samples by "
                f"length, or limit tokens rather than samples.{now}"
            ),
            evidence=(
                self.evidence("least_ratio", times.imbalance.median_ratio, "lost to unequal work, share of the step"),
                self.evidence(
                    "most_slowest_ratio", slowest_ratio, f"steps in which rank {in_turn[0].rank} is the slowest"
                ),
                self.fact("step time", lost.step_ms, "ms"),
                waiting,
            ),
            cost=lost,
            confidence=0.6 if metrics.is_cpu_only or waiting is not None else 0.4,
            explains=claims.COMMUNICATION,
        )
