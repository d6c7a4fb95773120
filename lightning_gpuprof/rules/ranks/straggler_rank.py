"""Some ranks reach the collectives later than the others, which wait for them in every step.

## What it means
Ranks meet when they reduce gradients. All have the same step time, because the fast ones wait there. What differs is
the time that each rank spends on its own before. Often it is rank 0, which alone logs, draws samples or has a callback
behind `rank_zero_only`: the finding then names it and the phase, `callbacks` or `logging`. The rule `checkpoint-stall`
covers its checkpoints.

## How it is measured
**The time of a rank** is its time in phases in which it waits for no other rank, in steps of the same number that are
steady on all ranks. It comes from the summaries that ranks leave in the run's folder, or from their journals. Only
durations are compared, so the clocks of the hosts need not agree. Ranks that left nothing readable are named beside the
table of the ranks.

- On a CPU, all phases count but the ranks' own synchronisation. The backward is split where the rank's own part ends
  and the wait for gradients begins. The share of other waits in collectives (FSDP, tensor-parallel layers, broadcasts
  of buffers) is sampled by looking at where the main thread is.
- On a device, only the wait for batches counts, because the host may wait for the device in any other phase.
- The devices' own timers are used as well, in steps in which they were read: a device idles in the phase in which its
  host was late, and waits for other ranks where they meet. Under `DDPStrategy`, ranks meet in the backward. Under other
  strategies they may meet anywhere in the model, so only the wait for batches, the move to the device, callbacks and
  logging count. The larger of the two costs counts.

**Late ranks** are those above the last large gap in the order of their times, at most half of all, so that all ranks of
a slow host are one finding. If no such set costs 5 % of the step, most ranks may be late: those above the largest gap
are then named, without a gain.

**The cause** of late ranks is named where the others differ in it: their main threads wait for a CPU longer, by half of
what they are late, or they are late in what a GPU computes, and its median SM clock while busy is 5 % below that of the
others' (both heuristic). Else the advice has the line of their code that most looks at the main thread found in the
phase.

**The gain** is what each step would be shorter without them: the longest time of any rank minus the longest of the
others. Its lower bound must pass a tenth of the step, and a late rank must be the slowest in at least 60 % of the
steps, and more often than chance explains (three standard errors). On a device, the gain is at most the time in which
this rank's device idles or only communicates, as far as a trace window shows it: a wait for a batch is free while the
device still has work. If the late rank itself writes the report, the time is that of the phase in which it is late, and
is not counted again by findings about that phase.

**A rank that is late in few steps** does not show in a median. It is named if it takes longer than any other for 5 %
of the steps' time in all, and for 80 % of the time in which any rank is late alone by as much, and if the run loses
more by it than by a rank that is late in each step. The same holds for all ranks of a host that are late together.
Summaries of a long run hold 512 steps and the 96 longest in which all ranks wait. The gain, on a CPU only, is that time
per mean step. Where other programs used the CPUs, it is information only.

**Outside of the steps**, the batches of each rank in validation are compared, from fetch to `on_validation_batch_end`,
and the hooks of setup and between epochs (these on a CPU only), without the sampled share of waits in collectives, over
the whole run. The rank that takes longest is named if it takes 5 % of the wall time longer than any other, and if the
run loses more by it than by a rank that is late in its steps. Between epochs, no more counts than this rank waits there
and in steps that take longer than usual. No gain is given for setup.

## When it is wrong
- Layers that synchronise in the forward (SyncBatchNorm) hide the difference: the rule is silent.
- On a device without a trace window, work may cover the wait: the confidence is lower.
- On devices, a slow backward of one rank (clocks, heat) looks like the wait of the others. `gpuprof trace` with the
  windows of all ranks shows it. Under strategies other than DDP, the same is true of all that the model does.
- On a CPU under strategies other than DDP, 20 looks at the main thread are needed, which takes 2 s of steps.
- Callbacks and logging of one rank that take less than a tenth of the step: see `callback-slow` and `logging-overhead`
  in the report of that rank.
- Ranks whose folders are not shared between hosts are compared after `gpuprof merge`, or at an address, only.

## What to do
Look at what the named phase does on the named ranks and hosts.
"""

import math
from typing import NamedTuple

from lightning_gpuprof.model.clock_events import WORDS
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.numbers import capital, counted, mhz, millis, numbered, percent, seconds, size
from lightning_gpuprof.model.phases import OutsidePart, words_of
from lightning_gpuprof.model.rank_times import LateOutside, RankTimes
from lightning_gpuprof.rules.base import Finding, Phase, claims, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.ranks.rank_times import RankRule, lost_by_waiting, waiting_evidence

_LOOK: dict[Phase, str] = {
    "data_wait": "slower storage or CPUs of its host, another num_workers, or a shard with larger samples",
    "h2d": "larger batches, or a slower link of its GPU",
    "forward": "work in training_step on this rank only, or larger samples than on other ranks",
    "backward": "backward hooks or autograd functions on this rank only, larger samples, or a lower clock of its CPU",
    "optimizer": "work on this rank only, such as behind `if self.trainer.is_global_zero`",
    "zero_grad": "work on this rank only while gradients are cleared",
    "callbacks": "callbacks that run on this rank only",
    "logging": "values that are logged on this rank only: self.log(..., rank_zero_only=True), or loggers of rank 0",
}
_OUTSIDE: dict[OutsidePart, tuple[str, str, str]] = {
    "setup": ("in setup", "in hooks of setup", "setup, configure_model and on_fit_start"),
    "validation": (
        "in validation",
        "on its validation batches",
        "validation_step, on_validation_batch_end and the validation loader",
    ),
    "epoch_gap": ("between epochs", "in hooks between epochs", "on_train_epoch_end and on_train_epoch_start"),
}
"""Where a rank is late, on what it spends its time, and what to look at."""
_ON_IT_ONLY = "work that the other ranks do not do"
ALL_RATIO = 0.995
"""From here on a share is said as all."""


class _Late(NamedTuple):
    """Late ranks, and what a step of the run loses to them, whether or not that can be promised as a gain."""

    lost_ms: float
    finding: Finding


class StragglerRank(RankRule):
    id = "straggler-rank"
    title = "Some ranks are slower than the others"
    specialises = ("step-outliers", "validation-stall")

    least_ratio: float = threshold(0.10, source="TraceML")
    least_slowest_ratio: float = threshold(0.60, source="the method: the same rank in 60 % of the steps")

    least_rare_ratio: float = threshold(0.05, source="heuristic: 5 % of the steps' time, as for checkpoints")
    least_alone_ratio: float = threshold(0.80, source="heuristic: others are hardly ever late")
    most_rare_ratio: float = threshold(0.50, source="in more steps than that a median sees it")
    least_outside_ratio: float = threshold(0.05, source="heuristic: 5 % of the wall time, as for checkpoints")

    examples = (
        fires(
            "rank 3 takes 12 ms longer in its forward",
            "critical",
            "Rank 3 (host node1) takes 12.0 ms longer than the others in each 50.0 ms step, most of it in forward",
            saves_ms=12.0,
            ranks={"excess_ms": 12.0, "late": 3},
        ),
        fires(
            "a line of its forward is known",
            "critical",
            "Find what takes longer in forward on rank 3: mostly at train.py:12 augment",
            saves_ms=12.0,
            ranks={"excess_ms": 12.0, "late": 3, "site": "train.py:12 augment"},
        ),
        fires("15 steps are steady on all ranks", "warning", "15 steps", ranks={"excess_ms": 12.0, "steps": 15}),
        fires(
            "the two ranks of node1 take 12 ms longer",
            "critical",
            "Ranks 2 and 3 (all of host node1) take 12.0 ms longer than the others in each 50.0 ms step",
            saves_ms=12.0,
            ranks={"excess_ms": 12.0, "late": (2, 3)},
        ),
        fires(
            "all but rank 0 take 12 ms longer",
            "warning",
            "Find why rank 0 is faster than most ranks in forward",
            ranks={"excess_ms": 12.0, "late": (1, 2, 3)},
        ),
        fires(
            "other programs take the CPU of rank 1",
            "critical",
            "It waits for a CPU ... Find what else uses the CPUs of rank 1",
            saves_ms=12.0,
            ranks={"excess_ms": 12.0, "run_delay_ms": (11.0, 0.3)},
        ),
        fires(
            "the GPU of rank 1 has a lower clock",
            "critical",
            "Its GPU runs at 1,200 MHz, those of the others at 1,755 MHz ... Find what lowers the GPU clock on rank 1",
            saves_ms=12.0,
            ranks={"excess_ms": 12.0, "sm_clock_mhz": (1200.0, 1755.0)},
        ),
        fires(
            "the GPU of rank 1 is too hot",
            "critical",
            "Its GPU runs at 1,200 MHz, those of the others at 1,755 MHz: too hot (driver) in 80 % of its busy samples",
            saves_ms=12.0,
            ranks={"excess_ms": 12.0, "sm_clock_mhz": (1200.0, 1755.0), "throttled": ("sw_thermal", 0.8, 0.0)},
        ),
        fires(
            "the batches of rank 1 have longer rows",
            "critical",
            "Its batches have 2,048 tokens in a row, those of the others 512 ... Sort samples into batches",
            saves_ms=12.0,
            ranks={"excess_ms": 12.0, "batch_length": (2048.0, 512.0)},
        ),
        fires(
            "rank 1 loads with fewer workers",
            "critical",
            "Its DataLoader has 1 worker, those of the others 4 ... Use the same num_workers on all ranks",
            saves_ms=12.0,
            ranks={"excess_ms": 12.0, "phase": "data_wait", "workers": (1.0, 4.0)},
        ),
        fires(
            "rank 1 reads from disk",
            "critical",
            "It reads 114 MiB a second from disk, the others 0 B ... not in the page cache on rank 1",
            saves_ms=12.0,
            ranks={"excess_ms": 12.0, "phase": "data_wait", "read_bytes_per_s": (120e6, 0.0)},
        ),
        fires(
            "rank 1 takes 500 ms longer in every 50th step",
            "warning",
            "Rank 1 (host node0) takes 500 ms longer than any other in 2.0 % of 100 steps, most of it in callbacks",
            saves_ms=10.0,
            ranks={"excess_ms": 0.0, "rare_ms": 500.0},
        ),
        fires(
            "rank 2 takes 6 ms longer in each step, rank 1 takes 500 ms longer in every 50th step",
            "warning",
            "Rank 1 (host node0) takes 500 ms longer than any other in 2.0 % of 100 steps, most of it in callbacks",
            saves_ms=10.0,
            ranks={"excess_ms": 6.0, "late": 2, "rare_ms": 500.0},
        ),
        fires(
            "rank 2 takes 6 s longer in validation",
            "critical",
            "Rank 2 (host node1) spends 12.0 s on its validation batches, 6.00 s more than any other rank",
            ranks={"excess_ms": 0.0, "outside_s": 12.0},
        ),
        fires(
            "rank 2 takes 6 s longer in validation, rank 1 takes 6 ms longer in each step",
            "critical",
            "Rank 2 (host node1) spends 12.0 s on its validation batches, 6.00 s more than any other rank",
            ranks={"excess_ms": 6.0, "outside_s": 12.0},
        ),
        fires(
            "rank 1 takes 12 ms longer in each step, rank 2 takes 1.2 s longer in validation",
            "critical",
            "Rank 1 (host node0) takes 12.0 ms longer than the others in each 50.0 ms step",
            ranks={"excess_ms": 12.0, "outside_s": 2.4},
        ),
        quiet("rank 2 takes 0.2 s longer", ranks={"excess_ms": 0.0, "outside_s": 0.4}),
        fires(
            "rank 2 takes 6 s longer between epochs",
            "critical",
            "Rank 2 (host node1) spends 12.0 s in hooks between epochs, 6.00 s more than any other rank",
            saves_ms=15.0,
            wall_s={"train": 27.0},
            ranks={"excess_ms": 0.0, "outside_s": 12.0, "outside": "epoch_gap"},
        ),
        looks_alike(
            "rank 2 takes 6 s longer after the last epoch, so that no rank waits",
            ranks={"excess_ms": 0.0, "outside_s": 12.0, "outside": "epoch_gap"},
        ),
        looks_alike(
            "the report is of rank 2 itself, and no epoch follows",
            run={"rank": 2},
            ranks={"excess_ms": 0.0, "outside_s": 12.0, "outside": "epoch_gap"},
        ),
        fires(
            "rank 2 takes 6 s longer in setup",
            "warning",
            "Rank 2 (host node1) spends 12.0 s in hooks of setup, 6.00 s more than any other rank",
            ranks={"excess_ms": 0.0, "outside_s": 12.0, "outside": "setup"},
        ),
        looks_alike("every rank is late now and then", ranks={"excess_ms": 0.0, "rare_ms": 500.0, "alone_ratio": 0.3}),
        quiet("the ranks are equal", ranks={"excess_ms": 0.5}),
        quiet("there is one rank"),
        looks_alike("ranks are late in turn", ranks={"excess_ms": 12.0, "slowest": 0.3}),
        looks_alike(
            "of two ranks in 40 steps, chance makes one the slowest in 65 %",
            ranks={"excess_ms": 12.0, "slowest": 0.65, "ranks": 2, "steps": 40},
        ),
        not_evaluated("no other rank was found", "1 rank of 4", ranks={"excess_ms": 12.0, "alone": True}),
        not_evaluated("nine steps are", "9 steps", ranks={"excess_ms": 12.0, "steps": 9}),
    )

    def judge(self, metrics: Metrics, times: RankTimes) -> Finding | None:
        """The ranks that are late, where they cost the run most: in every step, in a few, or outside of them."""
        in_each = self._late_in_each_step(metrics, times)
        is_rare = times.rare is not None and times.rare.steps_ratio < self.most_rare_ratio
        now_and_then = self._late_now_and_then(metrics, times) if in_each is None or is_rare else None
        outside = {late.part: self._late_outside(metrics, times, late) for late in times.outside}
        in_setup = outside.pop("setup", None)
        found = [one for one in (in_each, now_and_then, *outside.values()) if one is not None]
        # A start that takes long has no gain: it must not hide what has one.
        best = max(found, key=lambda one: one.lost_ms) if found else in_setup
        return None if best is None else best.finding

    def _late_in_each_step(self, metrics: Metrics, times: RankTimes) -> _Late | None:
        """Ranks that are late in most steps."""
        late = times.late
        lost = lost_by_waiting(metrics, late.lost, times.steps)
        least = (
            self.least_slowest_ratio if times.most_are_late else max(self.least_slowest_ratio, _most_by_chance(times))
        )
        if late.slowest_ratio < least or not lost.is_worth(self.least_ratio):
            return None
        one = len(late.ranks) == 1
        whose = "it" if one else "one of them"
        name, waiting = times.late_name, len(times.ranks) - len(late.ranks)
        others = f"the other{'s' if waiting > 1 else ''}"
        wait = "the other waits for it." if waiting == 1 else f"{counted(waiting, 'rank')} wait for it."
        certainly = late.slowest_ratio >= ALL_RATIO
        in_steps = f"{'all' if certainly else f'{percent(late.slowest_ratio)} of'} {counted(times.steps, 'step')}"
        idle, cause = waiting_evidence(metrics), _cause(times)
        found = self.finding(
            severity="warning" if times.most_are_late else None,
            title=f"Rank {late.ranks[0]} is slower than {others}" if one else self.title,
            subject=numbered("rank", late.ranks),
            summary=(
                f"{capital(name)} {'takes' if one else 'take'} {millis(late.excess_ms)} longer than "
                f"{others} in each {millis(lost.step_ms)} step, most of it {_spent(late.phase)}. "
                f"{whose.capitalize()} is the slowest in {in_steps}, and {wait}{f' {cause.says}' if cause else ''}"
            ),
            advice=_advice(times, cause),
            evidence=(
                self.evidence("least_ratio", late.lost.median_ratio, f"lost to {name}, share of the step"),
                self.evidence(
                    "least_slowest_ratio", late.slowest_ratio, f"steps in which {whose} is the slowest", limit=least
                ),
                self.fact("step time", lost.step_ms, "ms"),
                self.fact("at the median rank's pace", lost.step_ms * (1 - times.above_median.median_ratio), "ms"),
                idle,
            ),
            cost=None if times.most_are_late else lost,
            confidence=0.8 if metrics.is_cpu_only or idle is not None else 0.5,
            # The time of a rank that is late itself is in its own phase, where other findings see it, too.
            explains=claims.of_phase(late.phase) if metrics.run.get("rank") in late.ranks else claims.COMMUNICATION,
        )
        return _Late(lost.saved_ms, found)

    def _late_now_and_then(self, metrics: Metrics, times: RankTimes) -> _Late | None:
        """Ranks that are late in few steps, but cost the run much; no median sees that."""
        rare = times.rare
        if rare is None or rare.of_all_ratio < self.least_alone_ratio or not rare.lost.is_worth(self.least_rare_ratio):
            return None
        one = len(rare.ranks) == 1
        name, lost = numbered("rank", rare.ranks), percent(rare.lost_ratio)
        found = self.finding(
            severity="info" if metrics.validity.conditional else None if metrics.is_cpu_only else "warning",
            title=f"{'One rank is' if one else 'Some ranks are'} slower now and then",
            subject=name,
            summary=(
                f"{capital(times.named(*rare.ranks))} {'takes' if one else 'take'} {millis(rare.excess_ms)} longer "
                f"than any other in {percent(rare.steps_ratio)} of {counted(rare.steps, 'step')}, most of it "
                f"{_spent(rare.phase)}. Waiting for {'it' if one else 'them'} takes {lost} of the steps' time."
            ),
            advice=f"Find what takes longer in {_place(rare.phase)} on {name} in these steps: "
            f"{_LOOK.get(rare.phase, _ON_IT_ONLY)}.",
            evidence=(
                self.evidence("least_rare_ratio", rare.lost_ratio, f"lost to {name}, share of the steps' time"),
                self.evidence("least_alone_ratio", rare.of_all_ratio, "share of all that ranks are late alone"),
                self.fact("mean step time", rare.step_ms, "ms"),
            ),
            cost=rare.lost if metrics.is_cpu_only else None,
            confidence=0.6,
            explains=claims.OUTLIERS,
        )
        return _Late(rare.lost.saved_ms, found)

    def _late_outside(self, metrics: Metrics, times: RankTimes, late: LateOutside) -> _Late | None:
        """A rank that takes longer outside of the steps, where the others wait at its end or in the next step."""
        of, whole_s = "training time (setup excluded)", metrics.run_s
        if late.part == "setup":
            of, whole_s = "wall time", whole_s + metrics.wall.parts.get("setup", 0.0)
        waiting_s = late.excess_s
        if late.part == "epoch_gap":
            # Nobody waits for this rank after the last epoch.
            own_s = sum(start.gap_s for start in metrics.epoch_starts)
            waiting_s = min(waiting_s, own_s if metrics.run.get("rank") == late.rank else _uneven_s(metrics))
        if (ratio := waiting_s / whole_s) < self.least_outside_ratio:
            return None
        where, spends, look = _OUTSIDE[late.part]
        cost = metrics.run_cost(waiting_s)
        found = self.finding(
            severity="warning" if late.part == "setup" else None,
            title=f"One rank is slower {where}",
            subject=f"rank {late.rank}",
            summary=(
                f"{capital(times.named(late.rank))} spends {seconds(late.total_s)} {spends}, {seconds(late.excess_s)} "
                f"more than any other rank. Waiting for it takes {percent(ratio)} of the {of}."
            ),
            advice=(
                f"Check {look} of rank {late.rank}: work that only this rank does, more or larger samples, slow "
                "storage, busy CPUs."
            ),
            evidence=(
                self.evidence("least_outside_ratio", ratio, f"waiting for it, share of the {of}"),
                self.fact(f"its time {spends}", late.total_s, "s"),
                self.fact("beyond the others", late.excess_s, "s"),
            ),
            cost=None if late.part == "setup" else cost,
            confidence=0.7,
            explains=claims.VALIDATION if late.part == "validation" else claims.LATE_RANK_OUTSIDE,
        )
        return _Late(cost.saved_ms, found)


def _most_by_chance(times: RankTimes) -> float:
    """Share of the steps in which one of as many would be the slowest by chance, with three standard errors."""
    chance = len(times.late.ranks) / max(1, len(times.ranks))
    return chance + 3 * math.sqrt(chance * (1 - chance) / max(1, times.steps))


def _uneven_s(metrics: Metrics) -> float:
    """What a rank can have waited for another one between epochs: there, or in steps that took longer than usual."""
    parts, period = metrics.wall.parts, metrics.steps.period_ms
    usual_s = 0.0 if period is None else metrics.steps.count * period.p05 / 1e3
    return max(0.0, parts.get("train", 0.0) - usual_s) + parts.get("epoch_gap", 0.0)


class _Cause(NamedTuple):
    """What late ranks differ in from the others, and the fix."""

    says: str
    fix: str


def _cause(times: RankTimes) -> _Cause | None:
    """Why ranks are late, where what was measured on each of them shows it."""
    late, whom = times.late, numbered("rank", times.late.ranks)
    one = len(late.ranks) == 1
    its = "Its" if one else "Their"
    if late.run_delay_ms is not None and late.is_starved:
        own, others = late.run_delay_ms
        return _Cause(
            f"{'It waits' if one else 'They wait'} for a CPU {millis(own)} in each step, the others {millis(others)}.",
            f"Find what else uses the CPUs of {whom}: other programs, more workers, or a cgroup with too few CPUs. "
            "Each rank needs one CPU per thread and worker.",
        )
    if late.sm_clock_mhz is not None and late.has_slow_gpu:
        own, others = late.sm_clock_mhz
        why = ""
        if late.throttled is not None:
            reason, ratio, _ = late.throttled
            why = f": {WORDS[reason]} in {percent(ratio)} of {its.lower()} busy samples"
        return _Cause(
            f"{its} {'GPU runs' if one else 'GPUs run'} at {mhz(own)}, those of the others at {mhz(others)}{why}.",
            f"Find what lowers the GPU clock on {whom} (`nvidia-smi -q -d PERFORMANCE` there): heat, a power limit, or "
            f"clocks that were set. Its report: `{times.report_of_late}`.",
        )
    if late.larger_batches is not None:
        what, more, usual = late.larger_batches
        return _Cause(
            f"{its} batches have {more:,.0f} {what}, those of the others {usual:,.0f}.",
            "Give all ranks the same batch size."
            if what == "samples"
            else "Sort samples into batches of similar length before dealing them out to ranks, so that all ranks get "
            "rows of the same length in each step.",
        )
    if late.workers is not None and late.has_fewer_workers:
        own, others = late.workers
        has = "DataLoader has" if one else "DataLoaders have"
        return _Cause(
            f"{its} {has} {counted(round(own), 'worker')}, those of the others {others:g}.",
            "Use the same num_workers on all ranks.",
        )
    if late.read_bytes_per_s is not None and late.reads_from_disk:
        own, others = late.read_bytes_per_s
        return _Cause(
            f"{'It reads' if one else 'They read'} {size(own)} a second from disk, the others {size(others)}.",
            f"Find why the files are not in the page cache on {whom}: less free memory on that host, or files read for "
            "the first time. Copy them to its local disk, or read them once before training.",
        )
    return None


def _spent(phase: Phase) -> str:
    words = words_of(phase)
    return f"in {phase}" if words == phase else words


def _place(phase: Phase) -> str:
    return "the DataLoader" if phase == "data_wait" else words_of(phase)


def _advice(times: RankTimes, cause: _Cause | None) -> str:
    late = times.late
    if times.most_are_late:
        quick = numbered("rank", (one.rank for one in times.ranks if one.rank not in late.ranks))
        return (
            f"Find why {quick} {'is' if quick.startswith('rank ') else 'are'} faster than most ranks in "
            f"{_place(late.phase)}: less data, skipped work, or faster hardware. No gain is given, because the other "
            "ranks may need that time."
        )
    if cause is not None:
        return cause.fix
    look = f"mostly at {late.site}" if late.site else _LOOK.get(late.phase, _ON_IT_ONLY)
    return (
        f"Find what takes longer in {_place(late.phase)} on {numbered('rank', late.ranks)}: {look}. "
        f"Its report: `{times.report_of_late}`."
    )
