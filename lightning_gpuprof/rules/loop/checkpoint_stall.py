"""Finds that writing checkpoints takes a noticeable part of the run."""

from __future__ import annotations

import math
from dataclasses import dataclass

from lightning_gpuprof.model.finding import Evidence, Finding
from lightning_gpuprof.model.metrics import Metrics, Recurring
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import (
    MOSTLY_OUTSIDE_RATIO,
    MissingSignal,
    condition,
    gain,
    is_mostly_outside,
    outside_severity,
    possible,
    run_ms_per_step,
    threshold,
    worthwhile,
)
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.loop.stalls import Stall, StallRule
from lightning_gpuprof.rules.wording import counted, listed, percent


@dataclass(frozen=True, kw_only=True)
class CheckpointStall(StallRule):
    """Checkpoints are written on the training thread, and training waits for the disk.

    ## What it means

    A checkpoint is collected, serialised and written while no step runs. If that is slow or frequent, it is a
    noticeable part of the run although no single step shows it.

    ## How it is measured

    The time of all checkpoints, with the hooks `on_save_checkpoint`, over the wall time without set-up and tear-down.
    At least two checkpoints are needed, as the first may pay for directories and caches, or one that takes half of the
    run and a second. The proposed factor k is the smallest that brings the share to 1 %, at most 100; it is applied to
    the cadence that is set, in epochs or in steps. The gain is (1 - 1/k) of the time, spread over all steps; of a
    single checkpoint it is at most its time, and has no lower bound.

    ## When it is wrong

    - Rarer checkpoints lose more work when a run dies: weigh it against the printed share.
    - With an asynchronous checkpoint plugin only what remains on the training thread is counted, which is right.
    - One slow checkpoint that takes less than half of the run: not evaluated.

    ## What to do

    Save less often, save only weights, or write in the background (`AsyncCheckpointIO`), to a local disk first.
    """

    id = "checkpoint-stall"
    name = "checkpoints"

    least_ratio: float = threshold(0.05, source="heuristic: 5 % of the wall time")
    least_count: int = threshold(2, source="heuristic: the first save pays for caches and folders")
    wanted_ratio: float = threshold(0.01, source="heuristic: what checkpoints may cost")
    most_times_rarer: int = threshold(100, source="heuristic")

    examples = (
        fires("20 checkpoints take 6 s", "critical", "Save 20 times less often: for instance", checkpoint=(20, 6.0)),
        fires("4 checkpoints take 1.2 s of 22 s", "info", "4 checkpoints took 1.20 s", checkpoint=(4, 1.2)),
        quiet("they take 1 s of it", checkpoint=(4, 1.0)),
        quiet("there are none", checkpoint=(0, 0.0)),
        looks_alike("validation takes 9 s", validation=(4, 9.0)),
        not_evaluated("there is one slow checkpoint", "but 2 are needed", checkpoint=(1, 6.0)),
        not_evaluated("there are five steps", "5 steps were run", steps=5, validation=(0, 0.0), checkpoint=(4, 0.8)),
    )

    def part(self, metrics: Metrics) -> Recurring:
        """The checkpoints of the whole fit."""
        return metrics.checkpoint

    def judge(self, metrics: Metrics, stall: Stall) -> Finding | None:
        """Judge them, if they are enough to tell slow ones from a slow first one."""
        checkpoint, ratio = stall.part, stall.ratio
        most_of_it = is_mostly_outside(metrics) and ratio >= MOSTLY_OUTSIDE_RATIO
        if checkpoint.count < self.least_count and not most_of_it:
            raise MissingSignal(
                f"{counted(checkpoint.count, 'checkpoint')} took {percent(ratio)} of the wall time, but "
                f"{self.least_count} are needed to tell a slow write from a first one"
            )
        single = checkpoint.count == 1
        recoverable_ms = stall.saved_ms(metrics, 1.0 if single else 1 - 1 / stall.rarer)
        if not worthwhile(recoverable_ms, run_ms_per_step(metrics)):
            return None
        return self.finding(
            severity=outside_severity(metrics, ratio),
            subject=checkpoint.subject or "ModelCheckpoint",
            summary=f"{counted(checkpoint.count, 'checkpoint')} {stall.words(each=not single)}",
            advice=_advice_for_one(metrics) if single else _advice(metrics, rarer=stall.rarer),
            evidence=(
                self.evidence("least_ratio", ratio, "checkpoint share of the wall time"),
                Evidence(name="checkpoints", value=checkpoint.total_s, unit="s"),
                Evidence(name="wall time without set-up and tear-down", value=stall.total_s, unit="s"),
                Evidence(name="number of checkpoints", value=checkpoint.count, limit=self.least_count),
            ),
            gain=gain(recoverable_ms, 0.0 if single else recoverable_ms, run_ms_per_step(metrics)),
            confidence=0.9,
            explains=claims.CHECKPOINT,
        )


def _advice(metrics: Metrics, *, rarer: int) -> str:
    cadences = [
        f"ModelCheckpoint({name}={every * rarer}) instead of {every}"
        for name in ("every_n_epochs", "every_n_train_steps")
        if isinstance(every := condition(metrics, f"trainer.checkpoint_{name}"), int) and every > 0
    ]
    interval_s = condition(metrics, "trainer.checkpoint_train_time_interval_s")
    if not cadences and isinstance(interval_s, (int, float)) and possible(interval_s) and interval_s > 0:
        minutes = math.ceil(interval_s * rarer / 60)  # it excludes the others
        cadences = [f"ModelCheckpoint(train_time_interval=timedelta(minutes={minutes}))"]
    if not cadences:
        every = math.ceil(metrics.steps.optimizer_steps * rarer / metrics.checkpoint.count)
        cadences = [f"for instance ModelCheckpoint(every_n_train_steps={every})"]
    cheaper = "".join(f"; or {way}" for way in _cheaper(metrics))
    return f"Save {rarer} times less often: {listed(cadences)}{cheaper}."


def _advice_for_one(metrics: Metrics) -> str:
    ways = [*_cheaper(metrics), "none in a trial run: Trainer(enable_checkpointing=False)"]
    return f"Save {'; or '.join(ways)}."


def _cheaper(metrics: Metrics) -> list[str]:
    """What makes a checkpoint cheaper and is not on already."""
    ways = []
    if condition(metrics, "trainer.checkpoint_save_weights_only") is not True:
        ways.append("less: ModelCheckpoint(save_weights_only=True)")
    if "Async" not in str(condition(metrics, "trainer.checkpoint_io") or ""):
        ways.append("beside the training: Trainer(plugins=[AsyncCheckpointIO()]) from lightning.pytorch.plugins.io")
    return ways
