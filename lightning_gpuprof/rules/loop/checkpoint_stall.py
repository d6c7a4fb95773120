"""Checkpoints are written on the main thread, and training waits for the disk.

## What it means
A checkpoint is collected, serialised and written while no step runs. No single step shows that time.

## How it is measured
The time of all checkpoints, with the hooks `on_save_checkpoint`, over the wall time without setup and teardown. Two
checkpoints are needed, as the first may pay for folders and caches, or one that takes half of the run and a second. The
proposed cadence brings the share to 1 %, rounded up, and leaves at least one checkpoint, near the end of the run. The
gain is the time of the checkpoints that it leaves out, spread over all steps. The size of the last checkpoint over the
median time is the rate at which they are saved, serialisation and hooks included; below 100 MB/s of 10 MB or more, the
finding names the storage.

## When it is wrong
- Rarer checkpoints lose more work when a run crashes: weigh it against the share.
- With an asynchronous checkpoint plugin only what remains on the main thread is counted, which is right.
- A rate is low where hooks or the serialisation take the time, and not the disk: `dd` shows what the disk can do.
- One slow checkpoint that takes less than half of the run: not evaluated.

## What to do
Save less often, save only weights, or write in the background (`AsyncCheckpointIO`), to a local disk first.
"""

import math

from lightning_gpuprof.model.metrics import Metrics, Recurring
from lightning_gpuprof.model.numbers import capital
from lightning_gpuprof.model.signals import MOSTLY_OUTSIDE_RATIO
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import (
    Change,
    Evidence,
    Finding,
    MissingSignal,
    counted,
    decimal_size,
    percent,
    seconds,
    threshold,
)
from lightning_gpuprof.rules.callbacks import checkpoint_change, checkpoints_after, lost_by_a_crash
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.loop.stalls import Stall, StallRule

_EPOCHS = {"trainer.checkpoint_every_n_epochs": 1}
_STEPS = {"trainer.checkpoint_every_n_train_steps": 20}
_SECONDS = {"trainer.checkpoint_train_time_interval_s": 1.0}

_CHEAP = {"trainer.checkpoint_save_weights_only": True, "trainer.checkpoint_io": "AsyncCheckpointIO"}
_ONE = {"steps": 8, "steady": 0, "epochs": 1, "validation": (0, 0.0), "checkpoint": (1, 3.0), "run": _STEPS}
_ONE |= {"lacks": "every_n", "saves_ms": 375.0}


class CheckpointStall(StallRule):
    id = "checkpoint-stall"
    title = "Checkpointing blocks training"
    name = "checkpoints"

    least_ratio: float = threshold(0.05, source="heuristic: 5 % of the wall time")
    least_count: int = threshold(2, source="heuristic: the first save pays for caches and folders")
    wanted_ratio: float = threshold(0.01, source="heuristic: what checkpoints may cost")
    most_times_rarer: int = threshold(1000, source="heuristic")
    least_bytes_per_s: float = threshold(100e6, source="heuristic: a local disk writes 100 MB/s and more")
    least_bytes: int = threshold(10_000_000, source="heuristic: smaller files take their time for other reasons")

    examples = (
        fires(
            "20 take 6 s",
            "critical",
            "Remaining cost: 1 checkpoint in the run, about 300 ms.",
            saves_ms=14.25,
            checkpoint=(20, 6.0),
        ),
        fires(
            "no plugin is set",
            "critical",
            "every_n_train_steps=400). Why 400: ... AsyncCheckpointIO",
            checkpoint=(20, 6.0),
        ),
        fires("every epoch saves", "critical", "every_n_epochs=20", epochs=20, checkpoint=(20, 6.0), run=_EPOCHS),
        fires("every 20 steps save", "critical", "every_n_train_steps=400", checkpoint=(20, 6.0), run=_STEPS),
        fires("20 take 1.3 s", "info", "Remaining cost: 2 checkpoints in the run", checkpoint=(20, 1.3)),
        fires("the last steps are saved", "info", "up to 200 steps instead of 20", checkpoint=(20, 1.3), run=_STEPS),
        fires("every second saves", "critical", "timedelta(seconds=20)", checkpoint=(20, 6.0), run=_SECONDS),
        fires(
            "weights, in the background", "critical", "Save less often", lacks=" Or ", checkpoint=(20, 6.0), run=_CHEAP
        ),
        fires(
            "one takes most of it",
            "warning",
            "1 checkpoint was written: 3.00 s, 88 % of ... Save only the weights",
            **_ONE,
        ),
        fires(
            "4 checkpoints take 1.2 s of 22 s",
            "info",
            "4 checkpoints were written, 300 ms each: 1.20 s in",
            checkpoint=(4, 1.2),
        ),
        fires(
            "seven ranks wait",
            "critical",
            "Rank 0 writes, and 7 ranks wait for it",
            checkpoint=(20, 6.0),
            run={"trainer.world_size": 8, "trainer.strategy": "DDPStrategy"},
        ),
        fires(
            "each has 15 MB",
            "critical",
            "15 MB at 50 MB/s ... a local disk first: ModelCheckpoint(dirpath=...)",
            checkpoint=(20, 6.0),
            run={"checkpoint.bytes": 15_000_000},
        ),
        quiet("checkpoints take 1 s of it", checkpoint=(4, 1.0)),
        quiet("there are none", checkpoint=(0, 0.0)),
        looks_alike("validation takes 9 s", validation=(4, 9.0)),
        not_evaluated("there is one slow checkpoint", "but 2 are needed", checkpoint=(1, 6.0)),
        not_evaluated("there are five steps", "5 steps were run", steps=5, validation=(0, 0.0), checkpoint=(4, 0.8)),
    )

    def part(self, metrics: Metrics) -> Recurring:
        """The checkpoints of the whole fit."""
        return metrics.checkpoint

    def judge(self, metrics: Metrics, stall: Stall) -> Finding | None:
        checkpoint, ratio = stall.part, stall.ratio
        most_of_it = metrics.is_mostly_outside and ratio >= MOSTLY_OUTSIDE_RATIO
        if checkpoint.count < self.least_count and not most_of_it:
            raise MissingSignal(
                f"{counted(checkpoint.count, 'checkpoint')} took {percent(ratio)} of the wall time, but "
                f"{self.least_count} are needed to distinguish a slow write from a first one"
            )
        steps = math.ceil(metrics.steps.optimizer_steps * stall.rarer / checkpoint.count)
        change = checkpoint_change(metrics, stall.rarer, otherwise=steps)
        left = checkpoints_after(metrics, change, checkpoint.count, stall.rarer)
        single = left == 0 or checkpoint.count == 1
        rarer, left = (None, 0) if single else (change, left)
        saved = stall.cost.part(max(0.0, 1 - left / checkpoint.count))
        if not saved.is_worth():
            return None
        ways = [] if rarer is None else [self._rarer(metrics, stall, rarer, left)]
        ways += _cheaper(metrics)
        rate = self._bytes_per_s(metrics, checkpoint)
        if rate is not None and rate < self.least_bytes_per_s:
            ways.append("save to a local disk first: ModelCheckpoint(dirpath=...)")
        if single:
            ways.append("save none in a trial run: Trainer(..., enable_checkpointing=False)")
        was = "was" if checkpoint.count == 1 else "were"
        return self.finding(
            severity=stall.cost.severity,
            subject=checkpoint.subject or "ModelCheckpoint",
            summary=stall.words(f"{counted(checkpoint.count, 'checkpoint')} {was} written", each=not single)
            + self._rate(metrics, checkpoint)
            + _who_waits(metrics),
            advice=f"{capital('. Or '.join(ways))}.",
            change=rarer,
            evidence=(
                self.evidence("least_ratio", ratio, "checkpoints, share of the training time"),
                self.fact("checkpoints", checkpoint.total_s, "s"),
                self.fact("wall time without setup and teardown", stall.total_s, "s"),
                Evidence(name="number of checkpoints", value=checkpoint.count, limit=self.least_count),
                None if rate is None else self.evidence("least_bytes_per_s", rate, "saved", "bytes/s"),
            ),
            cost=saved.uncertain if single else saved,
            leaves=f"{counted(left, 'checkpoint')} in the run, about {seconds(checkpoint.total_s / checkpoint.count)}"
            f"{' each' if left > 1 else ''}"
            if left
            else "",
            confidence=0.9,
            explains=claims.CHECKPOINT,
        )

    def _bytes_per_s(self, metrics: Metrics, checkpoint: Recurring) -> float | None:
        """How fast checkpoints are saved; None: their size is not known, or too small to say."""
        written = metrics.number("checkpoint.bytes") or 0.0
        return written / checkpoint.median_s if written >= self.least_bytes and checkpoint.median_s else None

    def _rate(self, metrics: Metrics, checkpoint: Recurring) -> str:
        rate = self._bytes_per_s(metrics, checkpoint)
        if rate is None or rate >= self.least_bytes_per_s:
            return ""
        return f" Each saves {decimal_size(metrics.number('checkpoint.bytes') or 0.0)} at {decimal_size(rate)}/s."

    @staticmethod
    def _rarer(metrics: Metrics, stall: Stall, change: Change, left: int) -> str:
        count = stall.part.count
        left_s = stall.part.total_s * left / count
        share = percent(left_s / (stall.total_s - stall.part.total_s + left_s))
        number = next(iter(change.arguments.values()), None)
        then = (
            "one is enough for a run of this length"
            if left == 1
            else f"checkpoints then take {share} of the training time"
        )
        why = "" if number is None else f" Why {number:,}: {then}."
        return f"save less often: {change.added[0]}.{why} Trade-off: a crash {lost_by_a_crash(metrics, change, count)}"


def _who_waits(metrics: Metrics) -> str:
    """Under DDP one rank writes, and all meet at a barrier afterwards."""
    others = int(metrics.number("trainer.world_size") or 1) - 1
    if others < 1 or metrics.run.get("trainer.strategy") != "DDPStrategy":
        return ""
    return f" Rank 0 writes, and {counted(others, 'rank')} {'waits' if others == 1 else 'wait'} for it."


def _cheaper(metrics: Metrics) -> list[str]:
    """What makes a checkpoint cheaper and is not on already."""
    ways = []
    if metrics.condition("trainer.checkpoint_save_weights_only") is not True:
        ways.append("save only the weights, without the optimizer: ModelCheckpoint(..., save_weights_only=True)")
    if "Async" not in str(metrics.condition("trainer.checkpoint_io") or ""):
        ways.append("write in the background: Trainer(..., plugins=[lightning.pytorch.plugins.io.AsyncCheckpointIO()])")
    return ways
